package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// event is one of a chat stream. Its text holds what a careless reader would take
// for a usage report.
func event(i int) string {
	return fmt.Sprintf(`data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"delta":{"content":"w%d {\"usage\":{\"total_tokens\":9}} "},"finish_reason":null}],"usage":null}`+"\n\n", i)
}

const (
	usageEvent = `data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-mini-2024-07-18","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":200,"total_tokens":211}}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

// streamer answers with n events, each sent when the one before it has been asked
// for through next; then with usage if it was asked to, as OpenAI does.
func streamer(n int, next <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		rc := http.NewResponseController(w)
		for i := range n {
			io.WriteString(w, event(i))
			rc.Flush()
			if next == nil {
				continue
			}
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
		if bytes.Contains(body, []byte(`"include_usage":true`)) {
			io.WriteString(w, usageEvent)
			rc.Flush()
		}
		io.WriteString(w, doneEvent)
	}
}

var consumerLimit = `{site} {` + auth + `
	token_limit {name} {
		consumer_based
		limit 100k tokens per hour
	}
	reverse_proxy {upstream}
}`

const streamBody = `{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hi"}]}`

// open starts a streamed call and returns its response, to be closed.
func (g *gateway) open(ctx context.Context, key, body string) *http.Response {
	g.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+g.addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.send(req)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestStreamArrivesEventByEventAndByteForByte(t *testing.T) {
	const n = 200
	next := make(chan struct{})
	up := newUpstream(t, streamer(n, next))
	g := start(t, up, consumerLimit)
	resp := g.open(t.Context(), keyA, streamBody)

	var got bytes.Buffer
	r := bufio.NewReader(resp.Body)
	for i := range n {
		// the upstream sends no more until this event has been read
		for range 2 {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
			got.WriteString(line)
		}
		next <- struct{}{}
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	got.Write(rest)

	var want strings.Builder
	for i := range n {
		want.WriteString(event(i))
	}
	want.WriteString(doneEvent)
	if got.String() != want.String() {
		t.Errorf("the stream differs; it ends in %q", rest)
	}
	if !strings.Contains(up.last().Body, `"stream_options":{"include_usage":true}`) {
		t.Errorf("usage was not asked for: %s", up.last().Body)
	}
	if u := g.used("", "app-a", "tokens per hour"); u.Used != 211 || u.Reserved != 0 {
		t.Errorf("used %d, reserved %d; want 211, 0", u.Used, u.Reserved)
	}
}

func TestClientThatAsksForUsageGetsIt(t *testing.T) {
	up := newUpstream(t, streamer(3, nil))
	g := start(t, up, consumerLimit)
	body := `{"model":"gpt-4o-mini","stream":true,"stream_options":{"include_usage":true},"messages":[]}`
	a := g.call("POST", "/v1/chat/completions", keyA, body)
	if want := event(0) + event(1) + event(2) + usageEvent + doneEvent; a.Body != want {
		t.Errorf("got %s", a.Body)
	}
	if up.last().Body != body {
		t.Errorf("the request was changed: %s", up.last().Body)
	}
}

func TestUpstreamThatRefusesStreamOptionsIsAskedAgainWithout(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte("stream_options")) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-First", "yes")
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		streamer(3, nil)(w, r)
	})
	g := start(t, up, `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 100k tokens per hour
		}
		handle_path /prefix/* {
			rewrite * /again{uri}
			reverse_proxy {upstream}
		}
	}`)
	for call := range 2 {
		a := g.call("POST", "/prefix/v1/chat/completions", keyA, streamBody)
		if a.Status != http.StatusOK || a.Body != event(0)+event(1)+event(2)+doneEvent {
			t.Errorf("call %d: %d %s", call, a.Status, a.Body)
		}
		if a.Header.Get("X-First") != "" {
			t.Errorf("call %d has the header of the answer that was dropped", call)
		}
		if u := up.last().URI; u != "/again/v1/chat/completions" {
			t.Errorf("call %d went to %s", call, u)
		}
	}
	if n := up.calls(); n != 3 {
		t.Errorf("the upstream was asked %d times, want 3: it is remembered", n)
	}
	if u := g.used("", "app-a", "tokens per hour"); u.Used < 2*1024 || u.Reserved != 0 {
		t.Errorf("used %d, reserved %d: a stream without usage costs what is expected", u.Used, u.Reserved)
	}
}

// eventually waits for what another goroutine is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after 10 s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestAbortedStreamIsCharged(t *testing.T) {
	next := make(chan struct{}, 1)
	up := newUpstream(t, streamer(200, next))
	g := start(t, up, consumerLimit)
	ctx, abort := context.WithCancel(t.Context())
	resp := g.open(ctx, keyA, streamBody)
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	abort()
	eventually(t, "settled", func() bool {
		u := g.counter("", "app-a", "tokens per hour")
		return u.Reserved == 0 && u.Used >= 1024
	})
}

func TestAbortBeforeTheAnswerIsCharged(t *testing.T) {
	up := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	g := start(t, up, consumerLimit)
	ctx, abort := context.WithCancel(t.Context())
	go func() {
		for up.calls() == 0 {
			time.Sleep(time.Millisecond)
		}
		abort()
	}()
	if _, err := g.try(ctx, "POST", "/v1/chat/completions", keyA, streamBody); err == nil {
		t.Fatal("the call was not aborted")
	}
	eventually(t, "settled", func() bool {
		u := g.counter("", "app-a", "tokens per hour")
		return u.Reserved == 0 && u.Used >= 1024
	})
}

func TestUpstreamThatBreaksOffIsCharged(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, event(0))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	g := start(t, up, consumerLimit)
	if _, err := g.try(t.Context(), "POST", "/v1/chat/completions", keyA, streamBody); err == nil {
		t.Fatal("the stream was not broken")
	}
	eventually(t, "settled", func() bool {
		u := g.counter("", "app-a", "tokens per hour")
		return u.Reserved == 0 && u.Used >= 1024
	})
}

func TestStreamThatOutlivesItsConfigIsCharged(t *testing.T) {
	next := make(chan struct{})
	up := newUpstream(t, streamer(4, next))
	g := start(t, up, consumerLimit)
	resp := g.open(t.Context(), keyA, streamBody)
	next <- struct{}{}
	for range 3 {
		if err := g.tryLoad(up, consumerLimit); err != nil {
			t.Fatal(err)
		}
	}
	if u := g.counter("", "app-a", "tokens per hour"); u.Reserved == 0 {
		t.Error("nothing is held for the call at work")
	}
	for range 3 {
		next <- struct{}{}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), doneEvent) {
		t.Errorf("%v: %q", err, body)
	}
	eventually(t, "settled", func() bool {
		u := g.counter("", "app-a", "tokens per hour")
		return u.Reserved == 0 && u.Used == 211
	})
}

// Caddy's own respond writes a body where there may be none, and looks at no error.
func TestAnswerWithoutBodyIsNoLostClient(t *testing.T) {
	g := start(t, nil, `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 100k tokens per hour
		}
		respond "nothing" 204
	}`)
	if a := g.chat(keyA); a.Status != http.StatusNoContent || a.Body != "" {
		t.Errorf("%d %q", a.Status, a.Body)
	}
}

func TestStatusOfTheUpstreamDecidesWhatAnErrorCosts(t *testing.T) {
	var status atomic.Int64
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Load()))
		io.WriteString(w, `{"error":{"message":"no","type":"server_error"}}`)
	})
	g := start(t, up, `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 100k tokens per hour
			limit 10 requests per hour
		}
		reverse_proxy {upstream}
		handle_errors {
			respond "sorry" 500
		}
	}`)
	for _, end := range []int{400, 401, 429, 500, 503, 529} {
		status.Store(int64(end))
		if a := g.chat(keyA); a.Status != end {
			t.Errorf("%d became %d", end, a.Status)
		}
	}
	if u := g.used("", "app-a", "tokens per hour"); u.Used != 0 || u.Reserved != 0 {
		t.Errorf("errors cost %d tokens, %d reserved", u.Used, u.Reserved)
	}
	if u := g.used("", "app-a", "requests per hour"); u.Used != 6 {
		t.Errorf("%d requests counted, want 6", u.Used)
	}
}
