package meter

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestErrorRouteBeginsANewCall(t *testing.T) {
	var bodies []string
	failing := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	})
	working := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(b)+" "+r.URL.Path+" "+r.Header.Get("Content-Encoding"))
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event+eventEnd+eventUsage+eventDone)
	})
	for _, encoding := range []string{"", "gzip"} {
		t.Run("encoding "+encoding, func(t *testing.T) {
			bodies = nil
			m := New()
			first, second := newLimiter(m, "first"), newLimiter(m, "second")
			first.cap = 50
			g := newGateway(t,
				[]object{use(t, first), {"handler": "rewrite", "uri": "/elsewhere"}, proxy(failing)},
				[]object{use(t, second), proxy(working)})
			body, headers := streamBody, []string{"X-Any", "1"}
			if encoding != "" {
				body, headers = compress(t, streamBody), []string{"Content-Encoding", encoding}
			}
			res := g.post(t.Context(), t, chatPath, body, headers...)
			if got := readAll(t, res); res.StatusCode != 200 || got != event+eventEnd+eventDone {
				t.Fatalf("got %d %q", res.StatusCode, got)
			}
			if o := first.wait(t); o.Status != 502 || o.Source != SourceEstimated || o.Usage.Output != 50 {
				t.Errorf("first: %+v", o)
			}
			if o := second.wait(t); o.Status != 200 || o.Source != SourceReported || o.Usage.Output != 12 {
				t.Errorf("second: %+v", o)
			}
			if want := askedBody + " " + chatPath + " "; len(bodies) != 1 || bodies[0] != want {
				t.Errorf("the upstream got %q, want %q", bodies, want)
			}
			nothingHeld(t, m)
		})
	}
}

func TestErrorRouteHasTheBodyThatAnotherHandlerPut(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r := newRequest(http.MethodPost, chatPath, plainBody)
	fail := handler(func(http.ResponseWriter, *http.Request) error { return errors.New("fails") })
	if err := serve(httptest.NewRecorder(), r, fail, l); err == nil {
		t.Fatal("no error")
	}
	other := strings.Replace(plainBody, "gpt-5", "other", 1)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(other)), int64(len(other))
	c := m.Call(r)
	if err := c.Inspect(r); err != nil || c.Model() != "other" {
		t.Errorf("model %q, %v", c.Model(), err)
	}
	c.leave()
	nothingHeld(t, m)
}

func TestErrorRouteFindsNoRoomForTheBody(t *testing.T) {
	m := New()
	r := newRequest(http.MethodPost, chatPath, plainBody)
	fail := handler(func(http.ResponseWriter, *http.Request) error { return io.ErrNoProgress })
	_ = serve(httptest.NewRecorder(), r, fail, newLimiter(m, "first"))
	m.SetOptions(Options{MaxBuffered: 1})
	if err := serve(httptest.NewRecorder(), r, fail, newLimiter(m, "second")); !errors.Is(err, ErrBusy) {
		t.Errorf("got error %v", err)
	}
	nothingHeld(t, m)
}

func TestErrorRouteBehindAHandlerThatAskedForTheModel(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	l.cap = 10
	r := newRequest(http.MethodPost, chatPath, plainBody)
	_, release, err := m.RequestModel(r)
	if err != nil {
		t.Fatal(err)
	}
	release() // the route has failed
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		if b, _ := io.ReadAll(r.Body); string(b) != `{"max_completion_tokens":10,`+plainBody[1:] {
			t.Errorf("%q goes on", b)
		}
		return answer(200, document, chatAnswer)(w, r)
	})
	if err := serve(httptest.NewRecorder(), r, next, l); err != nil {
		t.Fatal(err)
	}
	if o := l.wait(t); o.Source != SourceReported {
		t.Errorf("got %+v", o)
	}
	nothingHeld(t, m)
}
