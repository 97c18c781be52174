package usage

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestPromptTokens(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want int64
	}{
		{"nothing", epChat, `{}`, 3},
		{"a message", epChat, `{"messages":[{"role":"user","content":"hello"}]}`, 2 + 4 + 3},
		{"two messages", epChat, `{"messages":[{"content":"1234"},{"content":"1234"}]}`, 2 + 8 + 3},
		{"input as a string", epResponses, `{"input":"1234"}`, 1 + 4 + 3},
		{"embeddings are no messages", epEmbeddings, `{"input":["1234","1234"]}`, 2 + 3},
		{"ids", epEmbeddings, `{"input":[[1,2],[3]]}`, 3 + 3},
		{"image", epChat, `{"messages":[{"content":[{"image_url":"data:image/png;base64,AA"}]}]}`, 1000 + 4 + 3},
		{"remote image", epChat, `{"messages":[{"content":[{"image_url":"https://x"}]}]}`, 1000 + 4 + 3},
		{"small document", epChat, `{"messages":[{"content":[{"file_data":"data:application/pdf;base64,AA"}]}]}`, 1000 + 4 + 3},
		{
			"recording", epChat, `{"messages":[{"content":[{"input_audio":{"data":"` + strings.Repeat("A", 5000) + `"}}]}]}`,
			5 + 4 + 3,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.body)
			if got := r.PromptTokens(); got != tt.want {
				t.Errorf("PromptTokens() = %d, want %d", got, tt.want)
			}
			if worst := r.PromptWorst(); worst < tt.want {
				t.Errorf("PromptWorst() = %d, under the expectation %d", worst, tt.want)
			}
		})
	}
}

func TestPromptWorstIsATokenPerByte(t *testing.T) {
	r := parse(t, epChat, `{"messages":[{"role":"user","content":"`+strings.Repeat("x", 10_000)+`"}]}`)
	if got := r.PromptWorst(); got < 10_000 || got > 10_200 {
		t.Errorf("PromptWorst() = %d, want 10,000 and a little", got)
	}
	r = parse(t, epChat, `{"messages":[{"content":[{"image_url":"data:image/png;base64,AA"}]}]}`)
	if got := r.PromptWorst(); got < 50_000 {
		t.Errorf("PromptWorst() = %d with an image", got)
	}
	r = parse(t, epChat, `{"messages":[{"content":[{"input_audio":{"data":"`+strings.Repeat("A", 5000)+`"}}]}]}`)
	if got := r.PromptWorst(); got < 5_000 {
		t.Errorf("PromptWorst() = %d with a recording", got)
	}
}

func TestOutputCap(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want int64
	}{
		{"none", epChat, `{"n":3}`, 0},
		{"one choice", epChat, `{"max_tokens":100}`, 100},
		{"choices", epChat, `{"max_tokens":100,"n":3}`, 300},
		{"legacy default", epCompletions, `{"n":3}`, 48},
		{"too many", epChat, `{"max_tokens":9007199254740992,"n":1000}`, 1000 << 53},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.ep, tt.body).OutputCap(); got != tt.want {
				t.Errorf("OutputCap() = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestEstimatesGrowWithTheBody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ep := rapid.SampledFrom([]Endpoint{epChat, epCompletions, epResponses, epEmbeddings, epMessages, {}}).Draw(t, "endpoint")
		in := rapid.SampledFrom([]string{"messages", "input", "prompt", "system", "tools", "other"}).Draw(t, "member")
		items := make([]any, rapid.IntRange(0, 4).Draw(t, "items"))
		for i := range items {
			items[i] = drawJSON(t, 3)
		}
		estimate := func(items []any) *Request {
			body, err := json.Marshal(map[string]any{in: items})
			if err != nil {
				t.Fatal(err)
			}
			r, err := ParseRequest(ep, reqHeader, body)
			if err != nil {
				t.Fatalf("ParseRequest(%s) = %v", body, err)
			}
			if r.PromptWorst() < r.PromptTokens() {
				t.Fatalf("%s: at most %d, expected %d", body, r.PromptWorst(), r.PromptTokens())
			}
			return r
		}
		less := estimate(items)
		more := estimate(append(items[:len(items):len(items)], drawJSON(t, 3)))
		if more.PromptTokens() < less.PromptTokens() || more.PromptWorst() < less.PromptWorst() || more.Choices < less.Choices {
			t.Fatalf("estimates fell from %+v to %+v", less, more)
		}
	})
}
