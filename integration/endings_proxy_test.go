package integration

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

// deadAddr is an address that refuses connections.
func deadAddr(t testing.TB) string { return loopback.Address(t) }

func TestEndingsThroughTheProxysOptions(t *testing.T) {
	const wrong = `{"error":{"message":"overloaded","type":"server_error"}}`
	sixty := http.HandlerFunc(sixtyTokens)
	failing := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, wrong)
	}
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, tt := range []struct {
		name   string
		h      http.HandlerFunc
		routes string
		status int
		body   string // that the client gets; empty if it does not matter
		cost   int64
		calls  int // that the upstream gets
	}{
		{
			name: "retries, the first upstream refusing connections", h: sixty, status: 200, cost: 60, calls: 1,
			routes: limits + "reverse_proxy {dead} {upstream} {\n lb_policy first\n fail_duration 1m\n lb_retries 2\n request_buffers 1MiB\n}",
		},
		{
			name: "retries without request_buffers", h: sixty, status: 200, cost: 60, calls: 1,
			routes: limits + "reverse_proxy {dead} {upstream} {\n lb_policy first\n fail_duration 1m\n lb_retries 2\n}",
		},
		{
			name: "retries after an answer", h: once(failing, sixty), status: 200, cost: 60, calls: 2,
			routes: limits + "reverse_proxy {upstream} {\n lb_retries 2\n request_buffers 1MiB\n lb_retry_match {\n  expression `{rp.status_code} == 503`\n  method POST\n }\n}",
		},
		{
			name: "retries after a connection that broke", h: once(broken, sixty), status: 200, cost: 60 + 1032, calls: 2,
			routes: limits + "reverse_proxy {upstream} {\n lb_retries 2\n request_buffers 1MiB\n lb_retry_match {\n  method POST\n }\n}",
		},
		{
			name: "an upstream too slow", h: hangs, status: 504, cost: 1032, calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n transport http {\n  response_header_timeout 100ms\n }\n}",
		},
		{
			name: "no upstream at all", h: sixty, status: 502,
			routes: limits + "reverse_proxy {dead}",
		},
		{
			name: "a replaced status of a call that reports", h: sixty, status: 503, cost: 60, calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n @ok status 200\n replace_status @ok 503\n}",
		},
		{
			name: "a replaced error status", h: failing, status: 200, body: wrong, calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n @bad status 5xx\n replace_status @bad 200\n}",
		},
		{
			name: "a replaced error", h: failing, status: 418, body: "sorry", calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n @bad status 5xx\n handle_response @bad {\n  respond sorry 418\n }\n}",
		},
		{
			// the report is not seen: what was expected is charged
			name: "a replaced answer", h: sixty, status: 200, body: "other", cost: 1032, calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n @ok status 200\n handle_response @ok {\n  respond other 200\n }\n}",
		},
		{
			name: "a copied answer", h: sixty, status: 200, cost: 60, calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n @ok status 200\n handle_response @ok {\n  copy_response_headers\n  copy_response\n }\n}",
		},
		{
			name: "an intercepted error, outside", h: failing, status: 503, body: "sorry", calls: 1,
			routes: "intercept {\n @bad status 5xx\n handle_response @bad {\n  header -Content-Length\n  respond sorry 503\n }\n}\n" + limits + "reverse_proxy {upstream}",
		},
		{
			name: "an intercepted answer, outside", h: sixty, status: 200, body: "other", cost: 60, calls: 1,
			routes: "intercept {\n @ok status 200\n handle_response @ok {\n  header -Content-Length\n  respond other 200\n }\n}\n" + limits + "reverse_proxy {upstream}",
		},
		{
			name: "a page for errors", h: broken, status: 502, body: "sorry", cost: 1032, calls: 1,
			routes: limits + "reverse_proxy {upstream}\nhandle_errors {\n respond sorry 502\n}",
		},
		{
			name: "buffers for the answer", h: sixty, status: 200, cost: 60, calls: 1,
			routes: limits + "reverse_proxy {upstream} {\n response_buffers 1MiB\n}",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newUpstream(t, tt.h)
			g := start(t, up, drainSite("2s", strings.ReplaceAll(tt.routes, "{dead}", deadAddr(t))))
			a := g.call("POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`)
			if a.Status != tt.status || tt.body != "" && a.Body != tt.body {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
			g.charged(tt.cost, 1)
			if n := up.calls(); n != tt.calls {
				t.Errorf("the upstream was called %d times, want %d", n, tt.calls)
			}
			if body := up.last().Body; tt.calls > 0 && !strings.Contains(body, `"content":"hi"`) {
				t.Errorf("the upstream got %q", body)
			}
		})
	}
}

// once answers the first call with one handler and the others with another.
func once(first, then http.HandlerFunc) http.HandlerFunc {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-turn:
			first(w, r)
		default:
			then(w, r)
		}
	}
}

const fallback = limits + `
	reverse_proxy {dead}
	handle_errors {
		token_limit {name}-fallback {
			consumer_based
			limit 10M tokens per hour
			limit 10k requests per hour
			limit 100 concurrent
		}
		reverse_proxy {upstream}
	}
`

func TestErrorRouteWithALimiterOfItsOwnIsChargedThere(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, drainSite("2s", strings.ReplaceAll(fallback, "{dead}", deadAddr(t))))
	if a := g.chat(keyA); a.Status != http.StatusOK && a.Status != http.StatusBadGateway {
		t.Fatalf("got %d %s", a.Status, a.Body)
	}
	g.charged(0, 1)
	g.settled("-fallback")
	if u := g.used("-fallback", "app-a", "tokens per hour"); u.Used != 60 {
		t.Errorf("used %d tokens", u.Used)
	}
	if u := g.used("-fallback", "app-a", "requests per hour"); u.Used != 1 || up.calls() != 1 {
		t.Errorf("counted %d requests, the upstream %d", u.Used, up.calls())
	}
}

func TestErrorRouteBeginsNothingForAClientThatHasGone(t *testing.T) {
	first, second := newLed(t), newUpstream(t, nil)
	g := start(t, first.upstream, drainSite("1m", strings.ReplaceAll(strings.ReplaceAll(fallback, "{upstream}", second.addr), "{dead}", "{upstream}")))
	c := g.begin(g.client.Transport, "http", streamBody)
	within(t, "at the upstream", first.arrived)
	c.leave()
	within(t, "left", clientGone)
	first.do(t, step{cut: true})
	within(t, "over", c.body)
	g.charged(estimatedCost, 1)
	if n := second.calls(); n != 0 {
		t.Errorf("the other upstream was called %d times", n)
	}
}

func TestEncodeOutsideIsDrained(t *testing.T) {
	for _, tt := range []struct {
		name  string
		drain string
		then  []step
		cost  int64
	}{
		{"complete", "", []step{{text: event(1) + usageEvent}, {}}, reportedCost},
		{"report in time", "1m", []step{{text: event(1) + usageEvent}, {}}, reportedCost},
		{"too slow", "50ms", nil, estimatedCost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newLed(t)
			drain := tt.drain
			if drain == "" {
				drain = "1m"
			}
			g := start(t, up.upstream, drainSite(drain, "encode {\n gzip\n minimum_length 1\n match {\n  header Content-Type text/event-stream*\n }\n}\n"+proxied))
			c := g.begin(compressed{g.client.Transport}, "http", streamBody)
			within(t, "at the upstream", up.arrived)
			up.do(t, stream(event(0)))
			if tt.drain != "" {
				c.leave()
				within(t, "left", clientGone)
			}
			up.do(t, tt.then...)
			body := within(t, "over", c.body)
			g.charged(tt.cost, 1)
			if tt.drain == "" {
				z, err := gzip.NewReader(strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if plain, err := io.ReadAll(z); err != nil || string(plain) != event(0)+event(1) {
					t.Errorf("got %q, %v", plain, err)
				}
			}
		})
	}
}

// compressed asks for gzip and leaves it as it is.
type compressed struct{ http.RoundTripper }

func (c compressed) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept-Encoding", "gzip")
	return c.RoundTripper.RoundTrip(r)
}
