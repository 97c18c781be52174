package prices

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// costCase is a call as its provider answers it, the prices of its model and the exact
// cost.
type costCase struct {
	ID, Provider, API, Model string
	Key                      string `json:"price_key"`
	Request                  map[string]any
	Response                 map[string]json.RawMessage
	Prices                   map[string]json.RawMessage
	At                       time.Time
	Reported                 string `json:"provider_reported"`
	Want                     string `json:"expected_cost_usd"`
}

func costCases(tb testing.TB) []costCase {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "cost.json"))
	if err != nil {
		tb.Fatal(err)
	}
	var cases struct{ Rows []costCase }
	if err := json.Unmarshal(raw, &cases); err != nil {
		tb.Fatal(err)
	}
	return cases.Rows
}

// answers are the APIs' paths, and what stands around the usage in their answers.
var answers = map[string]struct{ path, around string }{
	"chat_completions": {
		"/v1/chat/completions",
		`{"object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}`,
	},
	"responses":           {"/v1/responses", `{"object":"response","status":"completed","model":%q}`},
	"batch_line":          {"/v1/chat/completions", `{"object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"content":"Hi"}}]}`},
	"images":              {"/v1/images/generations", `{"model":%q}`},
	"audio_transcription": {"/v1/audio/transcriptions", `{"model":%q,"text":"Hi"}`},
	"audio_speech":        {"/v1/audio/speech", ``},
	"embeddings":          {"/v1/embeddings", `{"object":"list","model":%q,"data":[{"embedding":[0.5]}]}`},
	"messages":            {"/v1/messages", `{"type":"message","model":%q,"content":[{"type":"text","text":"Hi"}]}`},
	"generate_content": {
		"/v1beta/models/m:generateContent",
		`{"modelVersion":%q,"candidates":[{"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}`,
	},
	"rerank":           {"/v2/rerank", `{"id":%q,"results":[{"index":0}]}`},
	"ocr":              {"/v1/ocr", `{"model":%q,"pages":[{"markdown":"Hi"}]}`},
	"bedrock_converse": {"/model/m/converse", `{"trace":%q,"output":{"message":{"content":[{"text":"Hi"}]}},"stopReason":"end_turn"}`},
}

// call is the case as a gateway sees it: its request and its answer are read, not
// copied.
func (c *costCase) call(t *testing.T) *Call {
	t.Helper()
	body := map[string]any{"model": c.Model}
	for name, v := range c.Request {
		body[name] = v
	}
	if n, ok := body["input_characters"].(float64); ok {
		delete(body, "input_characters")
		body["input"] = strings.Repeat("é", int(n))
	}
	sent, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	api := answers[c.API]
	header := http.Header{"Content-Type": {"application/json"}}
	endpoint := usage.Identify(http.MethodPost, &url.URL{Path: api.path}, header)
	q, err := usage.ParseRequest(endpoint, header, sent)
	if err != nil {
		t.Fatal(err)
	}
	r := usage.NewResponse()
	defer r.Release()
	r.Expect(q)
	r.Start(http.StatusOK, header)
	if api.around != "" {
		all := make(map[string]json.RawMessage)
		if err := json.Unmarshal(fmt.Appendf(nil, api.around, c.Model), &all); err != nil {
			t.Fatal(err)
		}
		for name, v := range c.Response {
			all[name] = v
		}
		if images, ok := all["data"]; ok && c.API == "images" {
			all["data"] = json.RawMessage(strings.ReplaceAll(string(images), "{}", `{"b64_json":"aGk="}`))
		}
		answer, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		r.Write(answer)
	}
	report := r.Close(true)
	call := &Call{
		Provider: c.Provider, API: endpoint.API, Requested: c.Model, Served: report.Model,
		Usage: report.Usage, Other: report.Other, Terms: report.Terms, Hints: q.Hints, At: c.At,
	}
	if c.API == "batch_line" {
		call.Terms.ServiceTier = "batch"
	}
	return call
}

// book has the case's prices alone.
func (c *costCase) book(t *testing.T) *Book {
	t.Helper()
	if c.Key == "" {
		return mustBook(t, nil, Options{})
	}
	row := map[string]json.RawMessage{"litellm_provider": json.RawMessage(strconv.Quote(c.Provider))}
	for name, v := range c.Prices {
		row[name] = v
	}
	if c.API == "images" {
		row["mode"] = json.RawMessage(`"image_generation"`)
	}
	doc, err := json.Marshal(map[string]any{c.Key: row})
	if err != nil {
		t.Fatal(err)
	}
	l, err := ParseLiteLLM(doc)
	if err != nil || len(l.Faults) > 0 {
		t.Fatal(err, l.Faults)
	}
	if c.Key == "gpt-4o" { // the row that the undated one lends its services to
		dated := *l.Rows[0]
		dated.Key, dated.Rates = c.Model, Rates{}
		l.Rows[0].Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
			if s != Priority {
				dated.Rates.Set(u, s, tier, rate)
			}
			return true
		})
		l.Rows = append(l.Rows, &dated)
	}
	return mustBook(t, NewTable(time.Time{}, l.Rows), Options{})
}

func mustBook(tb testing.TB, table *Table, o Options) *Book {
	tb.Helper()
	b, err := NewBook(table, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestCallsCostWhatTheirProvidersBill(t *testing.T) {
	for _, c := range costCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			got := c.book(t).Price(c.call(t))
			if got.USD.String() != c.Want {
				t.Errorf("got %s, want %s: %+v", got.USD, c.Want, got)
			}
			want := Calculated
			if c.Reported != "" {
				want = Reported
			}
			if got.Status != want {
				t.Errorf("got %s, want %s: %s", got.Status, want, got.Why)
			}
			if got.Approx {
				t.Errorf("approximate: %s", got.Why)
			}
		})
	}
}
