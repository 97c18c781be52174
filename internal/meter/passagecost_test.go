package meter

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
)

// A passage is what every call pays, whatever its limits: one piece of memory, where the
// handlers behind get the request that came; else a header, variables and placeholders of
// their own.
func TestAPassageCostsLittle(t *testing.T) {
	m := New()
	w := httptest.NewRecorder()
	for _, tt := range []struct {
		name string
		pass func(c *Call, r *http.Request) *Passage
		most float64
	}{
		{"the only one", func(c *Call, r *http.Request) *Passage { return c.pass(r.Context(), r) }, 1},
		{"apart", func(c *Call, r *http.Request) *Passage { return c.passApart(r.Context(), w, r) }, 17}, // 15 with Go 1.26
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRequest(http.MethodPost, chatPath, plainBody, "Authorization", "Bearer x", "Accept", "*/*", "User-Agent", "test")
			c, ctx := m.Call(r), r.Context()
			tt.pass(c, r) // the first opens the window of the request
			n := testing.AllocsPerRun(1000, func() {
				*r = *r.WithContext(ctx)
				tt.pass(c, r)
			})
			if n > tt.most {
				t.Errorf("%.0f allocations, want at most %.0f", n, tt.most)
			}
			first := testing.AllocsPerRun(1000, func() {
				r := newRequest(http.MethodPost, chatPath, plainBody)
				tt.pass(m.Call(r), r)
			}) - testing.AllocsPerRun(1000, func() {
				m.Call(newRequest(http.MethodPost, chatPath, plainBody))
			})
			if first > tt.most {
				t.Errorf("%.0f allocations of the first, want at most %.0f", first, tt.most)
			}
		})
	}
}

// A transport that looks for a trace makes one, of three closures that have nothing but a
// pointer each.
func TestATraceCostsLittle(t *testing.T) {
	r := newRequest(http.MethodPost, chatPath, plainBody)
	c, ctx := New().Call(r), r.Context()
	without := testing.AllocsPerRun(1000, func() { c.pass(ctx, r) })
	with := testing.AllocsPerRun(1000, func() { httptrace.ContextClientTrace(c.pass(ctx, r)) })
	if with-without > 3 {
		t.Errorf("%.0f allocations with a trace, %.0f without", with, without)
	}
}
