// Package provider is a stand-in for an LLM provider that costs as little as it can, so
// that a small machine has its processors free for the gateway under test. It speaks
// OpenAI's chat completions, plain and streamed.
package provider

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Request headers that say what the answer is like.
const (
	// SizeHeader is about how many bytes an answer has that is not streamed.
	SizeHeader = "X-Bench-Size"
	// EventsHeader is how many events with content a stream has.
	EventsHeader = "X-Bench-Events"
	// PaceHeader is the time between two events, as time.ParseDuration reads it. Events
	// without one between them travel together, which makes them look cheaper than they are.
	PaceHeader = "X-Bench-Pace"
)

// usage is what every answer reports.
const usage = `{"prompt_tokens":120,"completion_tokens":40,"total_tokens":160,` +
	`"prompt_tokens_details":{"cached_tokens":20,"audio_tokens":0},` +
	`"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`

// Provider answers every POST. The zero value is ready.
type Provider struct {
	answers sync.Map // by size: []byte
}

// ServeHTTP implements http.Handler. The answer is a stream if the body says so.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	if bytes.Contains(body[:min(len(body), 256)], []byte(`"stream":true`)) {
		stream(w, r, bytes.Contains(body, []byte(`"include_usage":true`)))
		return
	}
	size, _ := strconv.Atoi(r.Header.Get(SizeHeader))
	answer := p.answer(size)
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(answer))}
	h["X-Request-Id"] = []string{"req_bench"}
	_, _ = w.Write(answer)
}

func (p *Provider) answer(size int) []byte {
	if a, ok := p.answers.Load(size); ok {
		return a.([]byte)
	}
	a := Answer(size)
	p.answers.Store(size, a)
	return a
}

// Answer is an answer that is not streamed, of about so many bytes.
func Answer(size int) []byte {
	const frame = `{"id":"chatcmpl-bench","object":"chat.completion","created":1790000001,"model":"gpt-4o-mini-2024-07-18",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"%s","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],` +
		`"usage":` + usage + `,"service_tier":"default","system_fingerprint":"fp_bench"}`
	return fmt.Appendf(nil, frame, Text(size-len(frame)))
}

// Text is n bytes of words, as they stand in a JSON string; among them quotes and
// newlines, which are escaped, and a member that is none.
func Text(n int) string {
	const words = `The limit was raised on Monday, \"usage\":{\"total_tokens\":9} and nobody noticed until the bill came.\n`
	if n <= 0 {
		return ""
	}
	t := strings.Repeat(words, n/len(words)+1)[:n]
	return strings.TrimRight(t, `\`)
}

// Events is a stream of so many events with content, and of those that end it. asked
// says that usage was asked for: all events have the member then, and one more has the
// figures.
func Events(n int, asked bool) [][]byte {
	null := ""
	if asked {
		null = `,"usage":null`
	}
	const frame = `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1790000001,"model":"gpt-4o-mini-2024-07-18",` +
		`"service_tier":"default","system_fingerprint":"fp_bench","choices":[%s]%s}` + "\n\n"
	content := fmt.Appendf(nil, frame, `{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}`, null)
	all := make([][]byte, 0, n+3)
	for range n {
		all = append(all, content)
	}
	all = append(all, fmt.Appendf(nil, frame, `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`, null))
	if asked {
		all = append(all, fmt.Appendf(nil, frame, "", `,"usage":`+usage))
	}
	return append(all, []byte("data: [DONE]\n\n"))
}

// stream sends events, each when it is due; those that end the stream go together.
func stream(w http.ResponseWriter, r *http.Request, asked bool) {
	n, _ := strconv.Atoi(r.Header.Get(EventsHeader))
	pace, _ := time.ParseDuration(r.Header.Get(PaceHeader))
	w.Header()["Content-Type"] = []string{"text/event-stream; charset=utf-8"}
	rc := http.NewResponseController(w)
	tick := time.NewTimer(pace)
	defer tick.Stop()
	for i, event := range Events(n, asked) {
		if i < n && pace > 0 {
			select {
			case <-tick.C:
				tick.Reset(pace)
			case <-r.Context().Done():
				return
			}
		}
		if _, err := w.Write(event); err != nil {
			return
		}
		if i < n && rc.Flush() != nil {
			return
		}
	}
}
