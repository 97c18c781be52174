package meter

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
)

// A passage is what every call pays, whatever its limits: a header, variables and
// placeholders of its own.
func TestAPassageCostsLittle(t *testing.T) {
	const most = 18 // 16 with Go 1.26
	m := New()
	w := httptest.NewRecorder()
	r := newRequest(http.MethodPost, chatPath, plainBody, "Authorization", "Bearer x", "Accept", "*/*", "User-Agent", "test")
	c := m.Call(r)
	c.pass(r.Context(), w, r) // the first opens the window of the request
	if n := testing.AllocsPerRun(1000, func() { c.pass(r.Context(), w, r) }); n > most {
		t.Errorf("%.0f allocations, want at most %d", n, most)
	}
	first := testing.AllocsPerRun(1000, func() {
		r := newRequest(http.MethodPost, chatPath, plainBody)
		m.Call(r).pass(r.Context(), w, r)
	}) - testing.AllocsPerRun(1000, func() {
		m.Call(newRequest(http.MethodPost, chatPath, plainBody))
	})
	if first > most {
		t.Errorf("%.0f allocations of the first, want at most %d", first, most)
	}
}

// A transport that looks for a trace makes one, of three closures that have nothing but a
// pointer each.
func TestATraceCostsLittle(t *testing.T) {
	w, r := httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody)
	c := New().Call(r)
	without := testing.AllocsPerRun(1000, func() { c.pass(r.Context(), w, r) })
	with := testing.AllocsPerRun(1000, func() { httptrace.ContextClientTrace(c.pass(r.Context(), w, r)) })
	if with-without > 3 {
		t.Errorf("%.0f allocations with a trace, %.0f without", with, without)
	}
}
