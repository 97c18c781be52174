package meter

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// onServer is a request for a host to a server with routes for the hosts named.
func onServer(tb testing.TB, host string, names ...string) *http.Request {
	tb.Helper()
	routes := make(caddyhttp.RouteList, len(names))
	for i, name := range names {
		routes[i].MatcherSetsRaw = caddyhttp.RawMatcherSets{
			{"path": json.RawMessage(`["/*"]`)},
			{"method": json.RawMessage(`["POST"]`), "host": json.RawMessage(`["unrelated.example","` + name + `"]`)},
		}
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	tb.Cleanup(cancel)
	if err := routes.ProvisionMatchers(ctx); err != nil {
		tb.Fatal(err)
	}
	r := newRequest(http.MethodPost, chatPath, plainBody)
	r.Host = host
	server := &caddyhttp.Server{Routes: routes}
	return r.WithContext(context.WithValue(r.Context(), caddyhttp.ServerCtxKey, server))
}

func TestHostsThatTheConfigNames(t *testing.T) {
	tests := []struct{ name, host, want string }{
		{"named", "a.example", "a.example"},
		{"the second", "b.example", "b.example"},
		{"with a port", "a.example:8443", "a.example"},
		{"in other letters", "A.Example", "a.example"},
		{"an address", "[2001:db8::1]:443", "2001:db8::1"},
		{"an address without a port", "[2001:db8::1]", "2001:db8::1"},
		{"under a wildcard", "x.wild.example", ""},
		{"the wildcard itself", "*.wild.example", "*.wild.example"},
		{"invented", "evil.example", ""},
		{"none", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := onServer(t, tt.host, "a.example", "b.example", "*.wild.example", "2001:db8::1")
			if got := namedHost(serverOf(r), r.Host); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := namedHost(nil, "example.com"); got != "" {
		t.Errorf("without a server: got %q", got)
	}
}

func TestRoutesAreLearnedApart(t *testing.T) {
	m := New()
	answerOf := func(output string) handler {
		return answer(200, document, `{"model":"m","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":9,"completion_tokens":`+output+`,"total_tokens":`+output+`}}`)
	}
	for range learnEnough {
		for host, output := range map[string]string{"a.example": "8000", "b.example": "50", "evil.example": "1"} {
			l := newLimiter(m, "l")
			if err := serve(httptest.NewRecorder(), onServer(t, host, "a.example", "b.example"), answerOf(output), l); err != nil {
				t.Fatal(err)
			}
			l.wait(t)
		}
	}
	for host, want := range map[string]int64{
		"a.example": top(bucketOf(8000)), "b.example": top(bucketOf(50)),
		// those that nobody has named are one
		"evil.example": top(bucketOf(1)), "other.example": top(bucketOf(1)),
	} {
		c := m.Call(onServer(t, host, "a.example", "b.example"))
		c.Request = &usage.Request{Model: modelOf(t), Choices: 1}
		if _, got, _ := c.Typical(); got != want {
			t.Errorf("%s: got %d, want %d", host, got, want)
		}
		c.route.api = usage.AnthropicMessages
		if _, got, _ := c.Typical(); got != unlearned {
			t.Errorf("%s by another API: got %d", host, got)
		}
	}
	if n := len(m.learned.models); n != 3 {
		t.Errorf("%d are kept", n)
	}
}

// modelOf is the model that plainBody asks for.
func modelOf(t *testing.T) string {
	t.Helper()
	q, err := usage.ParseRequest(usage.Endpoint{API: usage.OpenAIChat}, http.Header{}, []byte(plainBody))
	if err != nil {
		t.Fatal(err)
	}
	return q.Model
}

func BenchmarkRoute(b *testing.B) {
	r := onServer(b, "z.example:443", "a.example", "b.example", "c.example", "z.example")
	b.ReportAllocs()
	for b.Loop() {
		routeOf(serverOf(r), r.Host, usage.OpenAIChat)
	}
}
