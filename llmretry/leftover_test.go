package llmretry

import (
	"errors"
	"net/http"
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
