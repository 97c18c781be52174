package usage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// costCase is a call and the terms of its price: how much of what has a price.
type costCase struct {
	ID, API, Model string
	Request        map[string]json.RawMessage
	Response       map[string]json.RawMessage
	Terms          map[string]string
	CostUSD        string `json:"cost_usd"`
}

func costCases(t *testing.T) (cases []costCase) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "cost.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// costAPIs are the paths of the APIs, and what stands around the usage in their answers.
var costAPIs = map[string]struct{ path, answer string }{
	"chat_completions": {
		"/v1/chat/completions",
		`{"object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}]}`,
	},
	"responses":           {"/v1/responses", `{"object":"response","status":"completed","model":%q}`},
	"batch_line":          {"/v1/batches", `{"model":%q}`},
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

// request is what the call asks for.
func (c *costCase) request(t *testing.T) *Request {
	t.Helper()
	body := map[string]any{"model": c.Model}
	for name, value := range c.Request {
		body[name] = value
	}
	if n, ok := c.Request["input_characters"]; ok {
		delete(body, "input_characters")
		characters, _ := strconv.Atoi(string(n))
		body["input"] = strings.Repeat("ü", characters-1) + "\U0001F30A"
	}
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	q, err := ParseRequest(identify(t, http.MethodPost, costAPIs[c.API].path, nil), reqHeader, raw)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// answers are the call's answer as a whole and, where the API has them, as a stream.
func (c *costCase) answers(t *testing.T) (whole, stream string) {
	t.Helper()
	around := costAPIs[c.API].answer
	if around == "" {
		return "", ""
	}
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(fmt.Appendf(nil, around, c.Model), &all); err != nil {
		t.Fatal(err)
	}
	for name, value := range c.Response {
		all[name] = value
	}
	if images, ok := all["data"]; ok && c.API == "images" {
		all["data"] = json.RawMessage(strings.ReplaceAll(string(images), "{}", `{"b64_json":"aGk="}`))
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	whole = string(raw)
	switch c.API {
	case "batch_line":
		return `{"custom_id":"1","response":{"status_code":200,"body":` + whole + `}}`, ""
	case "chat_completions":
		return whole, events(`{"choices":[{"index":0,"delta":{"content":"Hi"}}],"usage":null,"service_tier":null}`,
			strings.Replace(whole, `"message"`, `"delta"`, 1), done)
	case "responses":
		return whole, events(`{"type":"response.created","response":{"object":"response","status":"in_progress",`+
			`"service_tier":"auto","output":[],"usage":null}}`,
			`{"type":"response.output_text.delta","delta":"Hi"}`,
			`{"type":"response.completed","response":`+whole+`}`)
	case "messages":
		return whole, events(`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":0,"output_tokens":0,"speed":null}}}`,
			`{"type":"content_block_delta","delta":{"text":"Hi"}}`,
			strings.Replace(whole, `"type":"message"`, `"type":"message_delta"`, 1), `{"type":"message_stop"}`)
	case "generate_content":
		return whole, events(`{"candidates":[{"content":{"parts":[{"text":"Hi"}]}}],"usageMetadata":{"promptTokenCount":1}}`, whole)
	}
	return whole, ""
}

// costNames are the names of terms that have others.
var costNames = map[string]string{
	"text in": "input", "miss": "input", "hit": "cache read", "cache_read": "cache read", "cache_write": "cache write 5m",
	"answer": "output", "thoughts": "reasoning", "web search": "searches", "web search calls": "searches", "search queries": "searches",
}

// costTerms is what of a report and of a request may have a price of its own.
func costTerms(r *Report, q *Request) map[string]int64 {
	u := &r.Usage
	return map[string]int64{
		"input":      u.Input - u.CacheRead - u.CacheWrite5m - u.CacheWrite1h - u.AudioIn - u.ImageIn - u.VideoIn,
		"cache read": u.CacheRead, "cache write 5m": u.CacheWrite5m, "cache write 1h": u.CacheWrite1h,
		"output":    u.Output - u.Reasoning - u.AudioOut - u.ImageOut - u.VideoOut,
		"reasoning": u.Reasoning, "image out": u.ImageOut, "images": u.Images, "citation": u.Citations,
		"pages": u.Pages, "search units": u.SearchUnits, "seconds": u.AudioMillis / 1000,
		"characters": q.Hints.Characters, "searches": u.WebSearches,
	}
}

// check compares what is known of a call with the terms of its price.
func (c *costCase) check(t *testing.T, r *Report, q *Request) {
	t.Helper()
	if c.CostUSD != "" {
		want, err := money.ParseUSD(c.CostUSD)
		if err != nil || !r.Terms.CostKnown || r.Terms.Cost != want {
			t.Errorf("got %+v, want %s", r.Terms, c.CostUSD)
		}
		return
	}
	want := make(map[string]int64)
	for what, units := range c.Terms {
		if name, ok := costNames[what]; ok {
			what = name
		}
		n, err := strconv.ParseInt(units, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want[what] = n
	}
	for what, got := range costTerms(r, q) {
		if what == "images" && want[what] == 0 {
			continue // they have a price by tokens
		}
		if got != want[what] {
			t.Errorf("%s: got %d, want %d; %+v", what, got, want[what], r.Usage)
		}
	}
}

func TestAnswersHoldAllTermsOfTheirPrice(t *testing.T) {
	for _, c := range costCases(t) {
		t.Run(c.ID, func(t *testing.T) {
			q := c.request(t)
			whole, stream := c.answers(t)
			for _, size := range []int{1, 7, 1 << 20} {
				cut := func(int) int { return size }
				r := readAnswer(q, jsonHeader, http.StatusOK, []byte(whole), true, cut)
				c.check(t, &r, q)
				if stream != "" {
					r := readAnswer(q, streamHeader, http.StatusOK, []byte(stream), true, cut)
					c.check(t, &r, q)
				}
			}
		})
	}
}

func TestRequestsSayWhatDecidesTheirPrice(t *testing.T) {
	for _, c := range costCases(t) {
		h := c.request(t).Hints
		for name, got := range map[string]string{
			"service_tier": h.ServiceTier, "speed": h.Speed, "size": h.ImageSize, "quality": h.ImageQuality,
		} {
			if want := strings.Trim(string(c.Request[name]), `"`); got != want {
				t.Errorf("%s: got %s %q, want %q", c.ID, name, got, want)
			}
		}
	}
}
