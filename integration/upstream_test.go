package integration

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// upstream is an LLM provider. It records what it is asked.
type upstream struct {
	addr string

	mu       sync.Mutex
	requests []seen
}

// seen is a request as it arrived.
type seen struct {
	Method, URI string
	Header      http.Header
	Body        string
}

// newUpstream serves with a handler; nil is one that answers each call with 60 tokens.
func newUpstream(t testing.TB, h http.HandlerFunc) *upstream {
	t.Helper()
	if h == nil {
		h = sixtyTokens
	}
	u := new(upstream)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		u.mu.Lock()
		u.requests = append(u.requests, seen{r.Method, r.URL.RequestURI(), r.Header.Clone(), string(body)})
		u.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	u.addr = strings.TrimPrefix(srv.URL, "http://")
	return u
}

// calls is how many requests have arrived.
func (u *upstream) calls() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.requests)
}

// last is the request that arrived last.
func (u *upstream) last() seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.requests) == 0 {
		return seen{}
	}
	return u.requests[len(u.requests)-1]
}

func sixtyTokens(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there."},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}`)
}
