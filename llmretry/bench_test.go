package llmretry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// BenchmarkNothingFails compares calls with and without llm_retry.
func BenchmarkNothingFails(b *testing.B) {
	h := newHandler(b, new(Handler))
	up := replies(200, sixty)
	for _, bench := range []struct {
		name string
		next caddyhttp.HandlerFunc
	}{
		{"without", up},
		{"with", func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, up) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l := &limiter{m: h.meter}
				if err := l.serve(httptest.NewRecorder(), request(b.Context(), chatBody), bench.next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestNothingThatFailsCostsLittle bounds what llm_retry allocates for a call that succeeds
// at once: a request with variables and placeholders of its own, above all.
func TestNothingThatFailsCostsLittle(t *testing.T) {
	const most = 36 // 29 with Go 1.26
	h := newHandler(t, new(Handler))
	up := replies(200, sixty)
	allocs := func(next caddyhttp.HandlerFunc) float64 {
		return testing.AllocsPerRun(200, func() {
			l := &limiter{m: h.meter}
			if err := l.serve(httptest.NewRecorder(), request(t.Context(), chatBody), next); err != nil {
				t.Fatal(err)
			}
		})
	}
	without := allocs(up)
	with := allocs(func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, up) })
	if with-without > most {
		t.Errorf("%.0f allocations with llm_retry, %.0f without", with, without)
	}
}

// grownBy is how many bytes were allocated for a call behind a limiter.
func grownBy(t *testing.T, h *Handler, body string, up caddyhttp.HandlerFunc) (bytes uint64, err error) {
	t.Helper()
	l := &limiter{m: h.meter}
	var before, after runtime.MemStats
	err = l.serve(httptest.NewRecorder(), request(t.Context(), body), caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
		runtime.ReadMemStats(&before)
		err := h.ServeHTTP(w, r, up)
		runtime.ReadMemStats(&after)
		return err
	}))
	return after.TotalAlloc - before.TotalAlloc, err
}

// TestLargeRequestsAreNotCopied holds that another attempt sends the same memory.
func TestLargeRequestsAreNotCopied(t *testing.T) {
	const size = 20 << 20
	body := `{"model":"gpt-5","messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}]}`
	synctest.Test(t, func(t *testing.T) {
		got := 0
		up := func(w http.ResponseWriter, r *http.Request) error {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil || n != int64(len(body)) || r.ContentLength != n {
				t.Errorf("got %d bytes of %d: %v", n, r.ContentLength, err)
			}
			if got++; got < 3 {
				return replies(503, "")(w, r)
			}
			return replies(200, sixty)(w, r)
		}
		h := newHandler(t, new(Handler))
		grown, err := grownBy(t, h, body, up)
		if err != nil || got != 3 {
			t.Fatalf("%d attempts, %v", got, err)
		}
		if grown > size/20 {
			t.Errorf("%d bytes were allocated for three attempts", grown)
		}
	})
}

// TestFallbacksWithModelsCopyNothing holds that each sends the memory of the request but for
// the name, and that none takes of what others may hold.
func TestFallbacksWithModelsCopyNothing(t *testing.T) {
	const size = 20 << 20
	text := strings.Repeat("x", size)
	body := `{"model":"gpt-5","messages":[{"role":"user","content":"` + text + `"}]}`
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &Handler{Attempts: 1, Fallbacks: []*Fallback{{Model: "spare-one"}, {Model: "two"}, {Model: "the-third-of-them"}}})
		var models []string
		var held []int64
		room := make([]byte, 64<<10)
		up := func(w http.ResponseWriter, r *http.Request) error {
			n, err := io.ReadFull(r.Body, room)
			rest, err2 := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r.Body}, room[1<<10:])
			if err != nil || err2 != nil || r.ContentLength != int64(n)+rest || r.Header.Get("Content-Length") != strconv.FormatInt(r.ContentLength, 10) {
				t.Errorf("got %d and %d of %d bytes: %v, %v", n, rest, r.ContentLength, err, err2)
			}
			models = append(models, strings.Split(string(room[:30]), `"`)[3])
			held = append(held, h.meter.BodyBytes())
			return replies(503, "")(w, r)
		}
		grown, err := grownBy(t, h, body, up)
		if want := []string{"gpt-5", "spare-one", "two", "the-third-of-them"}; err != nil || !slices.Equal(models, want) {
			t.Errorf("asked for %q, want %q; %v", models, want, err)
		}
		if grown > size/20 {
			t.Errorf("%d bytes were allocated for four attempts", grown)
		}
		for i, n := range held {
			if n != held[0] {
				t.Errorf("attempt %d holds %d bytes, the first %d", i+1, n, held[0])
			}
		}
		if n := h.meter.BodyBytes(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	})
}

func TestItWorksWithoutALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, new(Handler))
		up := &script{steps: steps(replies(503, ""), replies(200, sixty))}
		r := request(t.Context(), chatBody)
		w := httptest.NewRecorder()
		if err := h.ServeHTTP(w, r, caddyhttp.HandlerFunc(up.serve)); err != nil || w.Code != 200 || up.seen[0] != up.seen[1] {
			t.Errorf("got %d, %v, the upstream %q", w.Code, err, up.seen)
		}
		if n := h.meter.BodyBytes(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
	})
}
