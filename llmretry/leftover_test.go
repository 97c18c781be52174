package llmretry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestErrorHasNothingOfTheHeaderOfAHeldAnswer(t *testing.T) {
	fails := func(status int) caddyhttp.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(status)
			return caddyhttp.Error(http.StatusInternalServerError, errors.New("boom"))
		}
	}
	for _, tt := range []struct {
		name string
		h    *Handler
		step caddyhttp.HandlerFunc
	}{
		{"not repeated", &Handler{On: []int{503}}, fails(200)},
		{"not repeated, of a failure", &Handler{On: []int{503}}, fails(503)},
		{"in vain", new(Handler), fails(503)},
		{"cut", new(Handler), breaks(": x\n\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				res := do(newHandler(t, tt.h), tt.step, request(t.Context(), chatBody))
				if res.err == nil || len(res.Header()) != 0 {
					t.Errorf("error %v, header %v", res.err, res.Header())
				}
			})
		})
	}
}

func TestWhatAKeptAnswerUsedOutlivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{}
		h := newHandler(t, new(Handler))
		l.m = h.meter
		up := &script{steps: steps(
			replies(500, `{"error":{"message":"x"},"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`),
			func(http.ResponseWriter, *http.Request) error { panic("broken") },
		)}
		func() {
			defer func() {
				if v := recover(); v != "broken" {
					t.Errorf("recovered %v", v)
				}
			}()
			_ = l.serve(httptest.NewRecorder(), request(t.Context(), chatBody), caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
				return h.ServeHTTP(w, r, caddyhttp.HandlerFunc(up.serve))
			}))
		}()
		if len(l.settled) != 1 {
			t.Fatalf("settled %d times", len(l.settled))
		}
		if u := l.settled[0].All(); u.Total() != 7 {
			t.Errorf("charged %d tokens", u.Total())
		}
	})
}
