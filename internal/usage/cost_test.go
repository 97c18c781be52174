package usage

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/costcase"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// costCase is a call and the terms of its price: how much of what has a price.
type costCase struct{ *costcase.Case }

func costCases(t *testing.T) (cases []costCase) {
	t.Helper()
	for _, c := range costcase.Read(t, filepath.Join("testdata", "cost.json")) {
		cases = append(cases, costCase{c})
	}
	return cases
}

// request is what the call asks for.
func (c *costCase) request(t *testing.T) *Request {
	t.Helper()
	path := c.Path()
	if c.API == "batch_line" {
		path = "/v1/batches"
	}
	q, err := ParseRequest(identify(t, http.MethodPost, path, nil), reqHeader, c.Body(t))
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// answers are the call's answer as a whole and, where the API has them, as a stream.
func (c *costCase) answers(t *testing.T) (whole, stream string) {
	t.Helper()
	whole = string(c.Answer(t))
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
	var terms map[string]string
	if err := json.Unmarshal(c.Terms, &terms); err != nil {
		t.Fatal(err)
	}
	want := make(map[string]int64)
	for what, units := range terms {
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
