package llmretry

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// A handler of a fallback may refuse its attempt, as llm_cost does where it has no price.
// That gives nothing back of what other attempts have used, and says nothing of them.
func TestRefusedAttemptsAreNoRefusedCalls(t *testing.T) {
	const expected = 1032 // of a call that does not say what it used
	ok := steps(replies(200, sixty))
	var h *Handler
	withError := steps(func(_ http.ResponseWriter, r *http.Request) error {
		h.meter.Call(r).Refused(r, "llm_cost")
		return caddyhttp.Error(http.StatusBadRequest, errors.New("the body cannot be read"))
	})
	for _, tt := range []struct {
		name                   string
		on                     []int
		primary, first, second []caddyhttp.HandlerFunc // nil refuses
		status                 int
		settled, cancels       int
		tokens                 int64
	}{
		{"after what was sent", nil, steps(drops), nil, ok, 400, 1, 0, 2 * expected},
		{"after an answer", nil, steps(replies(503, busy)), nil, ok, 400, 1, 0, 0},
		{"before an answer", []int{400, 502}, steps(drops), nil, ok, 200, 1, 0, 2*expected + 60},
		{"twice after what was sent", []int{400, 502}, steps(drops), nil, nil, 400, 1, 0, 2 * expected},
		{"while an earlier answer is what the client gets", []int{400, 529}, steps(replies(529, sixty)), withError, withError, 529, 1, 0, 120},
		{"and nothing else", []int{400}, nil, nil, nil, 400, 0, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h = newHandler(t, &Handler{Attempts: 2, On: tt.on, Fallbacks: []*Fallback{
					{Routes: make(caddyhttp.RouteList, 1)}, {Routes: make(caddyhttp.RouteList, 1)},
				}})
				up := func(s []caddyhttp.HandlerFunc) *script {
					if s != nil {
						return &script{steps: s}
					}
					return &script{steps: steps(func(w http.ResponseWriter, r *http.Request) error {
						h.meter.Call(r).Refused(r, "llm_cost")
						return replies(400, `{"error":{"code":"model_not_priced"}}`)(w, r)
					})}
				}
				detour(h, 1, up(tt.first))
				detour(h, 2, up(tt.second))
				res := do(h, up(tt.primary).serve, request(t.Context(), chatBody))
				if res.Code != tt.status {
					t.Errorf("got %d %s, %v", res.Code, res.Body, res.err)
				}
				if res.settled != tt.settled || res.cancels != tt.cancels || res.total() != tt.tokens {
					t.Errorf("charged %d times and cancelled %d, %d tokens; want %d, %d, %d",
						res.settled, res.cancels, res.total(), tt.settled, tt.cancels, tt.tokens)
				}
			})
		})
	}
}
