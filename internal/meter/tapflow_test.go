package meter

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"pgregory.net/rapid"
)

func TestTapFlushes(t *testing.T) {
	t.Run("what may pass of a stream, and not what is held", func(t *testing.T) {
		m := New()
		l := newLimiter(m, "l")
		w := httptest.NewRecorder()
		next := handler(func(inner http.ResponseWriter, _ *http.Request) error {
			inner.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(inner, event+eventUsage[:20])
			if err := http.NewResponseController(inner).Flush(); err != nil {
				t.Error(err)
			}
			if !w.Flushed || w.Body.String() != event {
				t.Errorf("flushed %t, %q", w.Flushed, w.Body)
			}
			_, err := io.WriteString(inner, eventUsage[20:])
			return err
		})
		if err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l); err != nil {
			t.Fatal(err)
		}
		if w.Body.String() != event {
			t.Errorf("got %q", w.Body)
		}
	})
	t.Run("not an error that is held", func(t *testing.T) {
		m := New()
		l := newLimiter(m, "l")
		w := httptest.NewRecorder()
		next := handler(func(inner http.ResponseWriter, _ *http.Request) error {
			inner.WriteHeader(400)
			if err := http.NewResponseController(inner).Flush(); err != nil || w.Flushed {
				t.Errorf("flushed %t, %v", w.Flushed, err)
			}
			return nil
		})
		if err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l); err != nil {
			t.Fatal(err)
		}
		if w.Code != 400 {
			t.Errorf("got %d", w.Code)
		}
	})
	t.Run("through a recorder that has no Flush", func(t *testing.T) {
		m := New()
		l := newLimiter(m, "l")
		w := httptest.NewRecorder()
		rec := caddyhttp.NewResponseRecorder(w, nil, nil)
		if err := serve(rec, newRequest(http.MethodPost, chatPath, plainBody), answer(200, "text/plain", "x"), l); err != nil {
			t.Fatal(err)
		}
		if !w.Flushed {
			t.Error("not flushed")
		}
	})
	t.Run("and says where it cannot", func(t *testing.T) {
		m := New()
		l := newLimiter(m, "l")
		next := handler(func(w http.ResponseWriter, _ *http.Request) error {
			return http.NewResponseController(w).Flush()
		})
		w := struct{ http.ResponseWriter }{httptest.NewRecorder()}
		if err := serve(w, newRequest(http.MethodPost, chatPath, plainBody), next, l); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestTapStreamsEventByEvent(t *testing.T) {
	next := make(chan string)
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for s := range next {
			_, _ = io.WriteString(w, s)
			_ = http.NewResponseController(w).Flush()
		}
	})
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	got := make(chan string)
	go func() {
		defer close(got)
		res := g.post(t.Context(), t, chatPath, streamBody)
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			if lines.Text() != "" {
				got <- lines.Text()
			}
		}
	}()
	// each event arrives before the next is sent
	for _, e := range []string{event, event, eventEnd} {
		next <- e
		if line := receive(t, got); line+"\n\n" != e {
			t.Errorf("got %q", line)
		}
	}
	next <- eventUsage
	next <- eventDone
	if line := receive(t, got); line+"\n\n" != eventDone {
		t.Errorf("got %q", line)
	}
	close(next)
	if line := receive(t, got); line != "" {
		t.Errorf("got %q", line)
	}
	if o := l.wait(t); o.Source != SourceReported {
		t.Errorf("got %+v", o)
	}
}

func TestTapLetsTrailersPass(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+eventUsage+eventDone)
		w.Header().Set("X-Sum", "2")
		w.Header().Set(http.TrailerPrefix+"X-Late", "3")
	})
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	res := g.post(t.Context(), t, chatPath, streamBody)
	if got := readAll(t, res); got != event+eventDone {
		t.Errorf("got %q", got)
	}
	if res.Trailer.Get("X-Sum") != "2" || res.Trailer.Get("X-Late") != "3" {
		t.Errorf("trailer %v", res.Trailer)
	}
}

func TestTapLetsAConnectionBeTakenOver(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	l.counts = true
	take := middleware(func(w http.ResponseWriter, _ *http.Request, _ caddyhttp.Handler) error {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello")
		return rw.Flush()
	})
	g := newGateway(t, []object{use(t, l), use(t, take)}, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	got, _ := io.ReadAll(conn)
	if !bytes.HasSuffix(got, []byte("\r\n\r\nhello")) {
		t.Errorf("got %q", got)
	}
	if o := l.wait(t); o.Source != SourceNone {
		t.Errorf("got %+v", o)
	}
	nothingHeld(t, m)
}

// The flushes of reverse_proxy come from timers, its informational statuses from the
// transport, while its own goroutine writes: the race detector watches.
func TestTapAmongTheGoroutinesOfReverseProxy(t *testing.T) {
	const calls, events = 20, 50
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", r.Header.Get("X-Want"))
		rc := http.NewResponseController(w)
		for range events {
			_, _ = io.WriteString(w, event)
			_ = rc.Flush()
		}
		if r.Header.Get("X-Break") != "" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, eventEnd+eventUsage+eventDone)
	})
	m := New()
	l := newLimiter(m, "l")
	delayed := proxy(upstream)
	delayed["flush_interval"] = 1000 // a microsecond: timers all the time
	g := newGateway(t, []object{use(t, l), delayed}, nil)
	done := make(chan error, calls)
	for i := range calls {
		headers := []string{"X-Want", []string{"text/event-stream", "application/json"}[i%2]}
		if i%5 == 0 {
			headers = append(headers, "X-Break", "1")
		}
		go func() {
			res := g.post(t.Context(), t, chatPath, streamBody, headers...)
			_, err := io.Copy(io.Discard, res.Body)
			if i%5 == 0 && errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			done <- err
		}()
	}
	for range calls {
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
		l.wait(t)
		receive(t, g.log)
	}
	nothingHeld(t, m)
	reported := 0
	for _, o := range l.outcome {
		if o.Source == SourceReported && o.Usage.Output == 12 {
			reported++
		}
	}
	if reported != calls-calls/5 {
		t.Errorf("%d of %d calls were reported", reported, calls)
	}
}

func FuzzTapPassesEveryByte(f *testing.F) {
	f.Add([]byte(event+eventUsage+eventDone), "text/event-stream", 200, 3)
	f.Add([]byte(chatAnswer), "application/json", 200, 1)
	f.Add([]byte(unknownOption), "application/json", 400, 5)
	f.Add([]byte("data: {\"choices\":[]\r\r\n"), "text/event-stream; x", 422, 1000)
	f.Fuzz(func(t *testing.T, body []byte, contentType string, status, step int) {
		if status >= 200 && status <= 599 && status != 204 && status != 304 && step >= 1 {
			passesEveryByte(t, body, contentType, status, step)
		}
	})
}

func TestTapPassesEveryByteOfAnyAnswer(t *testing.T) {
	parts := []string{event, eventEnd, eventUsage, eventDone, chatAnswer, unknownOption, "data:", "\r", "\n", "\n\n", ": x\n", "{", "}", "\xff", "include_usage"}
	rapid.Check(t, func(rt *rapid.T) {
		body := strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(rt, "parts"), "")
		contentType := rapid.SampledFrom([]string{sse, document, "", "text/event-stream; charset=utf-8", "audio/mpeg"}).Draw(rt, "type")
		status := rapid.SampledFrom([]int{200, 201, 302, 400, 422, 429, 500}).Draw(rt, "status")
		passesEveryByte(rt, []byte(body), contentType, status, rapid.IntRange(1, 300).Draw(rt, "step"))
	})
}

// failer is a test, or a try of one.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
}

// passesEveryByte sends an answer through a tap, in steps, to clients that asked for
// usage, that need not ask, and that have it asked for.
func passesEveryByte(t failer, body []byte, contentType string, status, step int) {
	t.Helper()
	// a client that asked itself gets everything
	for _, request := range []string{plainBody, askedBody, streamBody} {
		m := New()
		l := newLimiter(m, "l")
		w := httptest.NewRecorder()
		runs := 0
		next := handler(func(w http.ResponseWriter, _ *http.Request) error {
			runs++
			w.Header()["Content-Type"] = []string{contentType}
			w.WriteHeader(status)
			for rest := body; len(rest) > 0; rest = rest[min(step, len(rest)):] {
				if _, err := w.Write(rest[:min(step, len(rest))]); err != nil {
					return err
				}
			}
			return nil
		})
		if err := serve(w, newRequest(http.MethodPost, chatPath, request), next, l); err != nil {
			t.Fatal(err)
		}
		if w.Code != status {
			t.Errorf("status %d, want %d", w.Code, status)
		}
		got := w.Body.Bytes()
		if request != streamBody && (!bytes.Equal(got, body) || runs != 1) {
			t.Errorf("got %q, want %q", got, body)
		}
		if len(got) > len(body) || status >= 400 && !strings.Contains(strings.ToLower(contentType), "event-stream") && !bytes.Equal(got, body) {
			t.Errorf("got %q, want %q", got, body)
		}
		if len(l.outcome) != 1 || l.cancels != 0 || m.bodies.used.Load() != 0 {
			t.Errorf("settled %d times, %d bytes held", len(l.outcome), m.bodies.used.Load())
		}
	}
}
