package llmretry

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// ofKey is a request of a key without an application, ofUser one of another authenticator's
// user, and ofNobody one of neither.
func ofKey(t *testing.T, id string) *http.Request {
	r := ofNobody(t)
	caddyhttp.SetVar(r.Context(), meter.VarKeyID, id)
	return r
}

func ofUser(t *testing.T, id string) *http.Request {
	r := ofNobody(t)
	r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Set("http.auth.user.id", id)
	return r
}

func ofNobody(t *testing.T) *http.Request { return request(t.Context(), chatBody) }

func TestConsumersAreToldApartWithoutApplications(t *testing.T) {
	for _, tt := range []struct {
		name    string
		bad     func(t *testing.T) *http.Request
		stopped bool
	}{
		{"a key", func(t *testing.T) *http.Request { return ofKey(t, "x") }, true},
		{"a user", func(t *testing.T) *http.Request { return ofUser(t, "x") }, true},
		{"an application", func(t *testing.T) *http.Request { return from(t, "x") }, true},
		{"nobody", ofNobody, false},
	} {
		for _, status := range []int{400, 500} {
			t.Run(tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := broken(t)
					do(h, replies(200, sixty), from(t, "y"))
					for range 10 {
						do(h, replies(status, "no"), tt.bad(t))
					}
					if res := do(h, replies(200, sixty), tt.bad(t)); (res.Code != 200) != tt.stopped {
						t.Errorf("after its %d it gets %d", status, res.Code)
					}
					for i, r := range []*http.Request{ofKey(t, "y"), ofUser(t, "y"), from(t, "y"), ofNobody(t)} {
						if res := do(h, replies(200, sixty), r); res.Code != 200 {
							t.Errorf("another one, %d, gets %d", i, res.Code)
						}
					}
				})
			})
		}
	}
}

func TestRouteIsLeftAloneWhereNobodyIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := broken(t)
		for range 3 {
			do(h, replies(500, "down"), ofNobody(t))
		}
		if res := do(h, replies(200, sixty), ofNobody(t)); res.Code != 503 {
			t.Errorf("the route is open: %d", res.Code)
		}
		time.Sleep(10*time.Second + 1)
		for range 2 {
			if res := do(h, replies(200, sixty), ofNobody(t)); res.Code != 200 {
				t.Errorf("after it works again: %d", res.Code)
			}
		}
	})
}
