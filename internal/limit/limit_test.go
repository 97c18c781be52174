package limit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// noon is what the clock of these tests shows.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// newTestLimiter is a limiter of one config that no app knows.
func newTestLimiter(t testing.TB, c Config) *Limiter {
	t.Helper()
	l, err := newLimiter(&c, TokenLimit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// parse reads rules as a config has them, such as "10k tokens per hour" or
// "100 tokens per rolling 1h".
func parse(t testing.TB, lines ...string) []Rule {
	t.Helper()
	rules := make([]Rule, 0, len(lines))
	for _, line := range lines {
		words := strings.Fields(line)
		r := Rule{Amount: words[0], Unit: Unit(words[1])}
		rest := words[2:]
		if len(rest) > 0 && rest[0] == "per" {
			if rest = rest[1:]; rest[0] == "rolling" {
				r.Rolling, rest = true, rest[1:]
			}
			r.Window, rest = rest[0], rest[1:]
		}
		if len(rest) > 0 && rest[0] == "burst" {
			r.Burst, rest = rest[1], rest[2:]
		}
		r.Shadow = len(rest) > 0 && rest[0] == "shadow"
		rules = append(rules, r)
	}
	return rules
}

// newRequest is a request as Caddy's server hands it to handlers. Headers are given
// as name, value, ….
func newRequest(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
}

// newCall is a call whose request has been read.
func newCall(t testing.TB, m *meter.Meter, r *http.Request) *meter.Call {
	t.Helper()
	call := m.Call(r)
	if err := call.Inspect(r); err != nil {
		t.Fatal(err)
	}
	return call
}
