package meter

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

const (
	sse        = "text/event-stream"
	document   = "application/json"
	messages   = "/v1/messages"
	claudeBody = `{"model":"claude-opus-4-5","max_tokens":200,"stream":true,"messages":[{"role":"user","content":"Hi"}]}`

	claudeStart = "event: message_start\ndata: " + `{"type":"message_start","message":{"model":"claude-opus-4-5","usage":{"input_tokens":25,"output_tokens":1}}}` + "\n\n"
	claudeText  = "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"0123456789ab"}}` + "\n\n"
	claudeDelta = "event: message_delta\ndata: " + `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}` + "\n\n"
	claudeStop  = "event: message_stop\ndata: " + `{"type":"message_stop"}` + "\n\n"
	claudeError = "event: error\ndata: " + `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}` + "\n\n"
)

const (
	toolSearch = `{"type":"response.output_item.done","item":{"type":"web_search_call","action":{"type":"search"}}}`
	toolFailed = `{"type":"response.failed","response":{"object":"response","status":"failed","error":{"message":"x"},"usage":null}}`
	// responsePrompt is the estimate of a prompt of two words.
	responsePrompt = 9
)

// ending is how the handlers behind came to an end.
type ending struct {
	status      int // 0 where no header was written
	contentType string
	body        string
	err         error
	aborts      bool // panics
	gone        bool // the client
}

func TestOutcome(t *testing.T) {
	boom := errors.New("boom")
	expected := usage.Usage{Input: promptTokens, Output: unknownOutput}
	tests := []struct {
		name string
		path string // chatPath unless set
		body string // of the request; plainBody unless set
		ending
		source Source
		usage  usage.Usage
	}{
		// reported
		{name: "reported by a document", ending: ending{status: 200, contentType: document, body: chatAnswer}, source: SourceReported, usage: usage.Usage{Input: 9, Output: 12}},
		{name: "reported by a stream", ending: ending{status: 200, contentType: sse, body: event + eventEnd + eventUsage + eventDone}, source: SourceReported, usage: usage.Usage{Input: 9, Output: 12}},
		{name: "reported, and the client goes with the last byte", ending: ending{status: 200, contentType: document, body: chatAnswer, gone: true}, source: SourceReported, usage: usage.Usage{Input: 9, Output: 12}},
		{name: "reported, and the client goes before the end of the stream is sent", ending: ending{status: 200, contentType: sse, body: event + eventEnd + eventUsage, gone: true, aborts: true}, source: SourceReported, usage: usage.Usage{Input: 9, Output: 12}},
		{name: "reported beside an error", ending: ending{status: 500, contentType: document, body: `{"error":{"message":"x"},"usage":{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}}`}, source: SourceReported, usage: usage.Usage{Input: 9}},
		{name: "all zero without output", ending: ending{status: 200, contentType: document, body: `{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`}, source: SourceReported},
		{name: "an error in a stream after usage", path: messages, body: claudeBody, ending: ending{status: 200, contentType: sse, body: claudeStart + claudeText + claudeError}, source: SourceReported, usage: usage.Usage{Input: 25, Output: 3}},
		{name: "reported by parts of a stream", path: messages, body: claudeBody, ending: ending{status: 200, contentType: sse, body: claudeStart + claudeText + claudeDelta + claudeStop}, source: SourceReported, usage: usage.Usage{Input: 25, Output: 15}},

		// estimated
		{name: "all zero beside output", ending: ending{status: 200, contentType: document, body: strings.Replace(strings.Replace(strings.Replace(chatAnswer, ":9", ":0", 1), ":12", ":0", 1), ":21", ":0", 1)}, source: SourceEstimated, usage: expected},
		{name: "a document without usage", ending: ending{status: 200, contentType: document, body: `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`}, source: SourceEstimated, usage: expected},
		{name: "a stream without usage", ending: ending{status: 200, contentType: sse, body: event + eventEnd + eventDone}, source: SourceEstimated, usage: expected},
		{name: "more delivered than expected", ending: ending{status: 200, contentType: sse, body: strings.Repeat(event, 1000) + eventEnd + eventDone}, source: SourceEstimated, usage: usage.Usage{Input: promptTokens, Output: 1250}},
		{name: "a stream that is cut", ending: ending{status: 200, contentType: sse, body: event, aborts: true}, source: SourceEstimated, usage: expected},
		{name: "a stream that ends in the middle", ending: ending{status: 200, contentType: sse, body: event}, source: SourceEstimated, usage: expected},
		{name: "the client goes in a stream", ending: ending{status: 200, contentType: sse, body: event, aborts: true, gone: true}, source: SourceEstimated, usage: expected},
		{name: "the client goes before a stream's first event", ending: ending{status: 200, contentType: sse, aborts: true, gone: true}, source: SourceEstimated, usage: expected},
		{name: "the upstream breaks off before a stream's first event", ending: ending{status: 200, contentType: sse, aborts: true}, source: SourceEstimated, usage: expected},
		{name: "input known, output cut off", path: messages, body: claudeBody, ending: ending{status: 200, contentType: sse, body: claudeStart + claudeText, aborts: true}, source: SourceEstimated, usage: usage.Usage{Input: 25, Output: 200}},
		{name: "an error in a stream after output", ending: ending{status: 200, contentType: sse, body: event + "event: error\ndata: {\"error\":{\"message\":\"x\"}}\n\n"}, source: SourceEstimated, usage: expected},
		{name: "an answer of no known shape", ending: ending{status: 200, contentType: "audio/mpeg", body: "\xff\xfb"}, source: SourceEstimated, usage: expected},
		{name: "an answer without a body", ending: ending{status: 204}, source: SourceEstimated, usage: expected},
		{name: "an unknown endpoint", path: "/v9/anything", ending: ending{status: 200, contentType: document, body: `{}`}, source: SourceEstimated, usage: expected},
		{name: "the client goes before the header", ending: ending{status: 499, gone: true}, source: SourceEstimated, usage: expected},
		{name: "the client goes and the handler says nothing", ending: ending{gone: true}, source: SourceEstimated, usage: expected},
		{name: "the client goes and the handler fails", ending: ending{gone: true, err: caddyhttp.Error(502, boom)}, source: SourceEstimated, usage: expected},
		{name: "the client goes and the handler panics", ending: ending{gone: true, aborts: true}, source: SourceEstimated, usage: expected},
		{name: "a search before an error", path: "/v1/responses", body: `{"model":"gpt-4o","input":"Hi there","max_output_tokens":50}`, ending: ending{status: 200, contentType: sse, body: "data: " + toolSearch + "\n\ndata: " + toolFailed + "\n\n"}, source: SourceEstimated, usage: usage.Usage{Input: responsePrompt, Output: 50, WebSearches: 1}},

		// none
		{name: "an error without a search", path: "/v1/responses", body: `{"model":"gpt-4o","input":"Hi there","max_output_tokens":50}`, ending: ending{status: 200, contentType: sse, body: "data: " + toolFailed + "\n\n"}, source: SourceNone},
		{name: "refused by the provider", ending: ending{status: 429, contentType: document, body: `{"error":{"message":"slow down"}}`}, source: SourceNone},
		{name: "refused by the provider, and the client goes", ending: ending{status: 400, contentType: document, body: `{"error":{"message":"x"}}`, gone: true}, source: SourceNone},
		{name: "a redirect", ending: ending{status: 302}, source: SourceNone},
		{name: "an error under status 200", ending: ending{status: 200, contentType: document, body: `{"error":{"message":"x"}}`}, source: SourceNone},
		{name: "no upstream", ending: ending{err: caddyhttp.Error(503, boom)}, source: SourceNone},
		{name: "an upstream too slow", ending: ending{err: caddyhttp.Error(504, boom)}, source: SourceNone},
		{name: "status 499 of the provider's", ending: ending{status: 499}, source: SourceNone},
		{name: "no answer", source: SourceNone},
		{name: "a free endpoint", path: "/v1/moderations", ending: ending{status: 200, contentType: document, body: `{"id":"m","results":[{"flagged":false}]}`}, source: SourceNone},
		{name: "a free endpoint that leads to another", path: "/v1/files", ending: ending{status: 200, contentType: document, body: chatAnswer}, source: SourceReported, usage: usage.Usage{Input: 9, Output: 12}},
		{name: "an endpoint that is let pass unmetered", path: "/v1/batches", ending: ending{status: 200, contentType: document, body: `{"id":"b"}`}, source: SourceNone},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			path, body := chatPath, plainBody
			if test.path != "" {
				path = test.path
			}
			if test.body != "" {
				body = test.body
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			r := newRequest(http.MethodPost, path, body)
			r = r.WithContext(withCancel{r.Context(), ctx})
			next := handler(func(w http.ResponseWriter, _ *http.Request) error {
				if test.status != 0 {
					w.Header().Set("Content-Type", test.contentType)
					w.WriteHeader(test.status)
					_, _ = io.WriteString(w, test.ending.body)
				}
				if test.gone {
					leave()
				}
				if test.aborts {
					panic(http.ErrAbortHandler)
				}
				return test.err
			})
			func() {
				defer func() { _ = recover() }()
				_ = serve(httptest.NewRecorder(), r, next, l)
			}()
			got := l.wait(t)
			if got.Source != test.source || got.Usage != test.usage {
				t.Errorf("got %s %+v, want %s %+v", got.Source, got.Usage, test.source, test.usage)
			}
			l.once(t)
			nothingHeld(t, m)
		})
	}
}

func TestOutcomeSumsAllModels(t *testing.T) {
	o := Outcome{
		Usage: usage.Usage{Input: 1, Output: 2},
		Other: []usage.ModelUsage{{Model: "a", Usage: usage.Usage{Input: 10}}, {Model: "b", Usage: usage.Usage{Output: 100}}},
	}
	if got := o.All(); got != (usage.Usage{Input: 11, Output: 102}) {
		t.Errorf("got %+v", got)
	}
	if o.Usage.Input != 1 {
		t.Error("the sum changed a part")
	}
}

func TestOnlyWholeAnswersTeach(t *testing.T) {
	tests := []struct {
		name string
		next handler
		want int
	}{
		{"a whole answer", answer(200, document, chatAnswer), 1},
		{"an answer without usage", answer(200, document, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`), 0},
		{"usage beside an error", answer(200, document, `{"error":{"message":"x"},"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`), 0},
		{"a stream that is cut", answer(200, sse, event), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			if err := serve(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), test.next, newLimiter(m, "l")); err != nil {
				t.Fatal(err)
			}
			if got := len(m.learned.models); got != test.want {
				t.Errorf("%d models are known", got)
			}
		})
	}
}

func TestCallThatNobodyReadsIsNotEstimated(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	l.counts = true
	if err := serve(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), answer(200, document, chatAnswer), l); err != nil {
		t.Fatal(err)
	}
	if o := l.wait(t); o.Source != SourceNone || o.Status != 200 {
		t.Errorf("got %+v", o)
	}
}
