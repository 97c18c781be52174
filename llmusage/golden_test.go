package llmusage_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"
)

// times are all that differs from one run to the next.
var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// The shape of the answer is what programs rely on.
func TestAnswerIsTheGoldenOne(t *testing.T) {
	g := start(t, `
	llm_usage
	llm_cost {
		price * {
			input 0
			output 0
			request 0.000000000001
		}
	}
	token_limit golden {
		consumer_based
		limit 100 tokens per day
		limit 5 requests per rolling 1h
		limit 2 concurrent
		group gold {
			limit 200 tokens per day
			limit 5 requests per rolling 1h
			limit 2 concurrent
			model gpt-* {
				limit 1M output_tokens per week
				per_model
			}
			model whisper* {
				limit 90 audio_seconds per month
			}
		}
	}
	cost_limit golden-budget {
		consumer_based
		limit $10 per month
	}
	`)
	g.chat(keyA, 200)
	w := g.do("GET", "/llm/usage", keyA, "")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("got %d, %v: %s", w.Code, w.Header(), w.Body)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, times.ReplaceAll(w.Body.Bytes(), []byte("<time>")), "", "\t"); err != nil {
		t.Fatal(err)
	}
	const path = "testdata/answer.json"
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", &b, want)
	}
}
