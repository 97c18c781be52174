package llmretry

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// TestAttemptsMayLeaveReadersBehind has something look up variables, placeholders and
// fields of every attempt's request for as long as others go on, as a dial does that
// outlives it.
func TestAttemptsMayLeaveReadersBehind(t *testing.T) {
	h := newHandler(t, &Handler{
		Attempts: 3, MaxWait: caddy.Duration(time.Millisecond),
		Fallbacks: []*Fallback{{Model: "spare"}, {Routes: make(caddyhttp.RouteList, 1)}},
	})
	stop := make(chan struct{})
	var readers sync.WaitGroup
	up := func(w http.ResponseWriter, r *http.Request) error {
		ctx, begun := r.Context(), make(chan struct{})
		readers.Go(func() {
			for first := true; ; first = false {
				_ = caddyhttp.GetVar(ctx, "route")
				_ = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer).ReplaceAll("{http.vars.route} {http.request.header.X-Extra} {x}", "")
				_ = r.Header.Get("X-Extra") + r.URL.Path + r.Method
				_ = r.Body
				if first {
					close(begun)
				}
				select {
				case <-stop:
					return
				case <-time.After(50 * time.Microsecond):
				}
			}
		})
		<-begun
		return refuses(w, r)
	}
	route := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		caddyhttp.SetVar(r.Context(), "route", time.Now())
		r.Header.Set("X-Extra", "1")
		r.URL.Path = "/prefix" + r.URL.Path
		return up(w, r)
	})
	h.routes[2].compile = func(caddyhttp.Handler) caddyhttp.Handler { return route }
	for range 5 {
		r := request(t.Context(), chatBody)
		r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), nil, nil)
		res := do(h, route, r)
		if res.err == nil {
			t.Errorf("got %d", res.Code)
		}
		// what routes for errors do
		caddyhttp.SetVar(r.Context(), "route", 1)
		r.Header.Set("X-Extra", "2")
		r.URL.Path, r.Method = "/", http.MethodGet
	}
	close(stop)
	readers.Wait()
}
