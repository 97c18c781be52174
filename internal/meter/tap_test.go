package meter

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestTapPassesEveryByte(t *testing.T) {
	for _, contentType := range []string{"application/json", "text/event-stream", "audio/mpeg", ""} {
		for _, body := range []string{plainBody, streamBody} {
			m := New()
			l := newLimiter(m, "l")
			w := httptest.NewRecorder()
			pieces := []string{"dat", "a: \x00\xff{}\n", "", "\n\nxyz"}
			next := handler(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header()["Content-Type"] = []string{contentType}
				for _, p := range pieces {
					if n, err := io.WriteString(w, p); n != len(p) || err != nil {
						t.Errorf("wrote %d of %d, %v", n, len(p), err)
					}
				}
				return nil
			})
			if err := serve(w, newRequest(http.MethodPost, chatPath, body), next, l); err != nil {
				t.Fatal(err)
			}
			if got, want := w.Body.String(), strings.Join(pieces, ""); got != want || w.Code != 200 {
				t.Errorf("%s: got %d %q, want %q", contentType, w.Code, got, want)
			}
		}
	}
}

func TestTapHidesTheChunkThatTheClientDidNotAskFor(t *testing.T) {
	const whole = event + event + eventEnd + eventUsage + eventDone
	tests := []struct {
		name, contentType, encoding string
		sent, want                  string
		length                      bool // Content-Length stays
	}{
		{name: "an event stream", contentType: "text/event-stream", sent: whole, want: event + event + eventEnd + eventDone},
		{name: "with parameters", contentType: "Text/Event-Stream ; charset=utf-8", encoding: "identity", sent: whole, want: event + event + eventEnd + eventDone},
		{name: "that is cut within the chunk", contentType: "text/event-stream", sent: event + eventUsage[:30], want: event + eventUsage[:30]},
		{name: "a compressed one stays", contentType: "text/event-stream", encoding: "gzip", sent: whole, want: whole, length: true},
		{name: "a document stays", contentType: "application/json", sent: chatAnswer, want: chatAnswer, length: true},
	}
	for _, test := range tests {
		for _, step := range []int{1, 7, len(test.sent)} {
			t.Run(test.name+" by "+strconv.Itoa(step), func(t *testing.T) {
				m := New()
				l := newLimiter(m, "l")
				w := httptest.NewRecorder()
				next := handler(func(w http.ResponseWriter, r *http.Request) error {
					if b, _ := io.ReadAll(r.Body); string(b) != askedBody {
						t.Errorf("%q goes on", b)
					}
					w.Header().Set("Content-Type", test.contentType)
					w.Header().Set("Content-Length", strconv.Itoa(len(test.sent)))
					if test.encoding != "" {
						w.Header().Set("Content-Encoding", test.encoding)
					}
					for rest := test.sent; rest != ""; {
						n, err := io.WriteString(w, rest[:min(step, len(rest))])
						if err != nil || n != min(step, len(rest)) {
							t.Fatalf("wrote %d, %v", n, err)
						}
						rest = rest[n:]
					}
					return nil
				})
				if err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l); err != nil {
					t.Fatal(err)
				}
				if got := w.Body.String(); got != test.want {
					t.Errorf("got %q", got)
				}
				if got := w.Header().Get("Content-Length"); (got != "") != test.length {
					t.Errorf("Content-Length %q", got)
				}
				if o := l.wait(t); test.sent == whole && test.encoding != "gzip" && (o.Source != SourceReported || o.Usage.Output != 12) {
					t.Errorf("got %+v", o)
				}
			})
		}
	}
}

func TestTapLetsInformationalStatusesPass(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.Header().Del("Link")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, chatAnswer)
	})
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	var codes []int
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if h.Get("X-Left") != "" {
				t.Error("limits are told too early")
			}
			codes = append(codes, code)
			return nil
		},
	})
	res := g.post(t, ctx, chatPath, plainBody)
	if got := readAll(t, res); got != chatAnswer || res.StatusCode != 200 || res.Header.Get("Link") != "" {
		t.Errorf("got %d %q %v", res.StatusCode, got, res.Header)
	}
	if len(codes) != 2 || codes[0] != 103 || codes[1] != 102 {
		t.Errorf("informational statuses %v", codes)
	}
	if o := l.wait(t); o.Status != 200 || o.Source != SourceReported || l.headers != 1 {
		t.Errorf("got %+v, limits told %d times", o, l.headers)
	}
}

// recorder is a response writer that keeps every status.
type recorder struct {
	*httptest.ResponseRecorder
	statuses []int
}

func (r *recorder) WriteHeader(status int) {
	r.statuses = append(r.statuses, status)
	r.ResponseRecorder.WriteHeader(status)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseRecorder }

func TestTapStatuses(t *testing.T) {
	tests := []struct {
		name     string
		do       func(w http.ResponseWriter)
		statuses []int // that reach the writer underneath
		status   int   // that the call ends with
		headers  int   // how often limits were told
	}{
		{name: "none", do: func(http.ResponseWriter) {}},
		{name: "none but a body", do: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "x") }, statuses: []int{200}, status: 200, headers: 1},
		{name: "none but an empty body", do: func(w http.ResponseWriter) { _, _ = w.Write(nil) }, statuses: []int{200}, status: 200, headers: 1},
		{name: "none but a flush", do: func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, statuses: []int{200}, status: 200, headers: 1},
		{name: "no content", do: func(w http.ResponseWriter) { w.WriteHeader(204) }, statuses: []int{204}, status: 204, headers: 1},
		{name: "a superfluous one", do: func(w http.ResponseWriter) { w.WriteHeader(201); w.WriteHeader(500) }, statuses: []int{201, 500}, status: 201, headers: 1},
		{name: "a superfluous one after an error that is held", do: func(w http.ResponseWriter) { w.WriteHeader(400); w.WriteHeader(500) }, statuses: []int{400}, status: 400, headers: 1},
		{name: "informational ones", do: func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(102); w.WriteHeader(202) }, statuses: []int{103, 102, 202}, status: 202, headers: 1},
		{name: "informational ones alone", do: func(w http.ResponseWriter) { w.WriteHeader(103) }, statuses: []int{103}},
		{name: "another protocol", do: func(w http.ResponseWriter) { w.WriteHeader(101) }, statuses: []int{101}, status: 101, headers: 1},
		{name: "informational ones before an error that is held", do: func(w http.ResponseWriter) { w.WriteHeader(103); w.WriteHeader(422) }, statuses: []int{103, 422}, status: 422, headers: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			w := &recorder{ResponseRecorder: httptest.NewRecorder()}
			next := handler(func(w http.ResponseWriter, _ *http.Request) error { test.do(w); return nil })
			if err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), next, l); err != nil {
				t.Fatal(err)
			}
			if len(w.statuses) != len(test.statuses) {
				t.Fatalf("statuses %v", w.statuses)
			}
			for i := range w.statuses {
				if w.statuses[i] != test.statuses[i] {
					t.Errorf("statuses %v", w.statuses)
				}
			}
			if o := l.wait(t); o.Status != test.status || l.headers != test.headers {
				t.Errorf("status %d, limits told %d times", o.Status, l.headers)
			}
		})
	}
}

func TestTapSetsLimitsOverTheProviders(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Left", "of the provider's")
	})
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)
	res := g.post(t, t.Context(), chatPath, plainBody)
	readAll(t, res)
	if got := res.Header["X-Left"]; len(got) != 1 || got[0] != "1" {
		t.Errorf("X-Left: %q", got)
	}
}

func TestTapReadsWhatAnotherReaderBrings(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	w := httptest.NewRecorder()
	next := handler(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		// io.Copy would hand the reader to the writer underneath
		n, err := io.Copy(w, onlyReader{strings.NewReader(chatAnswer)})
		if n != int64(len(chatAnswer)) {
			t.Errorf("copied %d bytes", n)
		}
		return err
	})
	if err := serve(w, newRequest(http.MethodPost, chatPath, plainBody), next, l); err != nil {
		t.Fatal(err)
	}
	if o := l.wait(t); o.Source != SourceReported || w.Body.String() != chatAnswer {
		t.Errorf("got %+v %q", o, w.Body)
	}
}

// onlyReader hides WriteTo.
type onlyReader struct{ io.Reader }

// brokenWriter is a client that takes n bytes.
type brokenWriter struct {
	http.ResponseWriter
	n int
}

var errHungUp = errors.New("connection reset by peer")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) <= w.n {
		w.n -= len(p)
		return w.ResponseWriter.Write(p)
	}
	n, _ := w.ResponseWriter.Write(p[:w.n])
	w.n = 0
	return n, errHungUp
}

func TestTapReadsWhatTheClientDoesNotTake(t *testing.T) {
	tests := []struct {
		name, contentType, body string
		request                 string
		source                  Source
	}{
		{name: "a whole document", contentType: "application/json", body: chatAnswer, request: plainBody, source: SourceReported},
		{name: "a whole stream", contentType: "text/event-stream", body: event + eventEnd + eventUsage + eventDone, request: plainBody, source: SourceReported},
		{name: "a whole stream without the hidden chunk", contentType: "text/event-stream", body: event + eventEnd + eventUsage + eventDone, request: streamBody, source: SourceReported},
		{name: "a part of a stream", contentType: "text/event-stream", body: event + event, request: streamBody, source: SourceEstimated},
		{name: "an unknown body", contentType: "application/x-ndjson", body: `{"prompt_eval_count":1,"eval_count":1}` + "\n", request: plainBody, source: SourceEstimated},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			w := &brokenWriter{httptest.NewRecorder(), 10}
			next := handler(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", test.contentType)
				if _, err := io.WriteString(w, test.body); !errors.Is(err, errHungUp) {
					t.Errorf("got error %v", err)
				}
				return nil
			})
			if err := serve(w, newRequest(http.MethodPost, chatPath, test.request), next, l); err != nil {
				t.Fatal(err)
			}
			if o := l.wait(t); o.Source != test.source {
				t.Errorf("got %+v", o)
			}
		})
	}
}

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
		res := g.post(t, t.Context(), chatPath, streamBody)
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
	res := g.post(t, t.Context(), chatPath, streamBody)
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
			res := g.post(t, t.Context(), chatPath, streamBody, headers...)
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
		if status < 200 || status > 599 || step < 1 {
			return
		}
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
			l.once(t)
			nothingHeld(t, m)
		}
	})
}
