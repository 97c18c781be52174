package meter

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
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
	res := g.post(ctx, t, chatPath, plainBody)
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
	res := g.post(t.Context(), t, chatPath, plainBody)
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
			m.SetOptions(Options{Drain: -1})
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
