package llmretry

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// detour makes an upstream of the n-th fallback, from 1 on, as routes that were provisioned
// would be.
func detour(h *Handler, n int, up *script) {
	h.routes[n].compile = func(caddyhttp.Handler) caddyhttp.Handler { return caddyhttp.HandlerFunc(up.serve) }
}

func TestFallbacksAreTriedInOrder(t *testing.T) {
	const spared = `{"model":"spare","messages":[{"role":"user","content":"Hi"}]}`
	down, ok := steps(replies(503, "primary")), steps(replies(200, sixty))
	for _, tt := range []struct {
		name                   string
		body                   string
		primary, first, second []caddyhttp.HandlerFunc
		calls                  [3]int
		status                 int
		got                    string
		seen                   string // by the first fallback
	}{
		{"the primary serves", chatBody, ok, ok, ok, [3]int{1, 0, 0}, 200, sixty, ""},
		{"the first serves, with its model", chatBody, down, ok, ok, [3]int{2, 1, 0}, 200, sixty, spared},
		{"at once where waiting does not help", chatBody, steps(replies(429, busy, "Retry-After", "3600")), ok, ok, [3]int{1, 1, 0}, 200, sixty, spared},
		{"the second serves, with the client's model", chatBody, down, steps(refuses), ok, [3]int{2, 1, 1}, 200, sixty, spared},
		{"all are down", chatBody, down, steps(refuses), steps(replies(529, "last")), [3]int{2, 1, 1}, 529, "last", spared},
		{"all refuse connections but one", chatBody, down, steps(refuses), steps(refuses), [3]int{2, 1, 1}, 503, "primary", spared},
		{"a body that names no model passes the first over", `{"messages":[]}`, down, ok, ok, [3]int{2, 0, 1}, 200, sixty, ""},
		{"the fallback's own refusal", chatBody, down, steps(replies(400, "no such model")), ok, [3]int{2, 1, 0}, 400, "no such model", spared},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up, first, second := &script{steps: tt.primary}, &script{steps: tt.first}, &script{steps: tt.second}
				h := newHandler(t, &Handler{Attempts: 2, Fallbacks: []*Fallback{{Model: "spare"}, {Routes: make(caddyhttp.RouteList, 1)}}})
				detour(h, 1, first)
				detour(h, 2, second)
				res := do(h, up.serve, request(t.Context(), tt.body))
				if res.Code != tt.status || res.Body.String() != tt.got {
					t.Errorf("got %d %s, %v", res.Code, res.Body, res.err)
				}
				if calls := [3]int{up.calls, first.calls, second.calls}; calls != tt.calls {
					t.Errorf("calls are %v, want %v", calls, tt.calls)
				}
				if tt.seen != "" && !strings.HasSuffix(first.seen[0], " "+tt.seen) {
					t.Errorf("the first got %s", first.seen[0])
				}
				if second.calls > 0 && !strings.HasSuffix(second.seen[0], " "+tt.body) {
					t.Errorf("the second got %s", second.seen[0])
				}
				if want := int64(60); res.settled != 1 || tt.status == 200 && res.total() != want || tt.status != 200 && res.total() != 0 {
					t.Errorf("charged %d times, %d tokens", res.settled, res.total())
				}
			})
		})
	}
}

func TestModelAloneIsAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &script{steps: steps(replies(503, ""), replies(200, sixty))}
		h := newHandler(t, &Handler{Attempts: 1, Fallbacks: []*Fallback{{Model: "spare"}}})
		res := do(h, up.serve, request(t.Context(), chatBody))
		if res.Code != 200 || up.calls != 2 || !strings.Contains(up.seen[0], `"gpt-5"`) || !strings.Contains(up.seen[1], `"spare"`) {
			t.Errorf("got %d, the upstream %q", res.Code, up.seen)
		}
	})
}

func TestModelOfThePathIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &script{steps: steps(replies(503, ""), replies(200, "{}"))}
		h := newHandler(t, &Handler{Attempts: 1, Fallbacks: []*Fallback{{Model: "spare"}}})
		r := request(t.Context(), `{"contents":[]}`)
		r.URL.Path = "/v1beta/models/gemini-2.5-pro:generateContent"
		do(h, up.serve, r)
		if len(up.seen) != 2 || !strings.HasPrefix(up.seen[1], "/v1beta/models/spare:generateContent ") {
			t.Errorf("the upstream got %q", up.seen)
		}
	})
}

func TestSignedRequestsKeepTheirModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &script{steps: steps(replies(503, "down"))}
		h := newHandler(t, &Handler{Attempts: 1, Fallbacks: []*Fallback{{Model: "spare"}}})
		res := do(h, up.serve, request(t.Context(), chatBody, "Authorization", "AWS4-HMAC-SHA256 x"))
		if res.Code != 503 || up.calls != 1 {
			t.Errorf("got %d after %d calls", res.Code, up.calls)
		}
	})
}

// fares is a pricer that tells for which model it was asked.
type fares struct{ requested string }

func (f *fares) Price(q *meter.Priced) (money.USD, meter.CostStatus) {
	f.requested = q.Requested
	return 1, meter.CostCalculated
}
func (*fares) Expect(*meter.Priced, int64, int64) (money.USD, bool) { return 0, true }
func (*fares) Worst(*meter.Priced, int64, int64) (money.USD, bool)  { return 0, true }
func (*fares) Denies(bool) bool                                     { return false }

func TestFallbackIsPricedByTheModelThatItAsksFor(t *testing.T) {
	deployment := func(w http.ResponseWriter, r *http.Request) error {
		r.URL.Path = "/openai/deployments/spare/chat/completions"
		return replies(200, sixty)(w, r)
	}
	for _, tt := range []struct {
		name    string
		primary caddyhttp.HandlerFunc
		model   string
		spare   caddyhttp.HandlerFunc
		want    string
	}{
		{"the route behind, by the client's name", deployment, "", nil, "gpt-5"},
		{"a model of its own", replies(503, ""), "spare", replies(200, sixty), "spare"},
		{"a path that names one", replies(503, ""), "", deployment, "spare"},
		{"neither", replies(503, ""), "", replies(200, sixty), "gpt-5"},
		{"the kept answer of the route behind", replies(503, `{"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`), "spare", refuses, "gpt-5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t, &Handler{Attempts: 1, Fallbacks: []*Fallback{{Model: tt.model, Routes: make(caddyhttp.RouteList, 1)}}})
				detour(h, 1, &script{steps: steps(tt.spare)})
				r, f := request(t.Context(), chatBody), new(fares)
				h.meter.Call(r).Price(f)
				do(h, tt.primary, r)
				if f.requested != tt.want {
					t.Errorf("priced as %q, want %q", f.requested, tt.want)
				}
			})
		})
	}
}
