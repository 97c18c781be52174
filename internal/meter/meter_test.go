package meter

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestCallIsOneForARequest(t *testing.T) {
	m := New()
	r := newRequest(http.MethodPost, chatPath, plainBody)
	c := m.Call(r)
	if m.Call(r) != c || m.Call(r.WithContext(r.Context())) != c {
		t.Error("a request has two calls")
	}
	c.leave()
	if m.Call(r) == c {
		t.Error("a call that has ended goes on")
	}
}

func TestRequestModel(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		model                    string
		bad                      bool
		unread                   bool
	}{
		{name: "in the body", method: http.MethodPost, path: chatPath, body: plainBody, model: "gpt-5"},
		{name: "in the path", method: http.MethodPost, path: "/model/claude/invoke", body: `{}`, model: "claude"},
		{name: "absent", method: http.MethodPost, path: chatPath, body: `{}`},
		{name: "in a body that is none", method: http.MethodPost, path: chatPath, body: `{`, bad: true},
		{name: "of a call that is free", method: http.MethodGet, path: "/v1/models", body: `{`, unread: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			r := newRequest(test.method, test.path, test.body)
			body := r.Body
			model, release, err := m.RequestModel(r)
			var bad *usage.BadRequest
			if model != test.model || errors.As(err, &bad) != test.bad || !test.bad && err != nil {
				t.Errorf("got %q, %v", model, err)
			}
			if test.unread != (r.Body == body) {
				t.Error("a body that tells nothing is left alone, others are put back")
			}
			if got, _ := io.ReadAll(r.Body); string(got) != test.body {
				t.Errorf("%q goes on", got)
			}
			if test.unread != (m.bodies.used.Load() == 0) {
				t.Errorf("%d bytes are charged", m.bodies.used.Load())
			}
			release()
			release()
			nothingHeld(t, m)
		})
	}
}

func TestRequestModelAndLimitersShareABody(t *testing.T) {
	tests := []struct {
		name  string
		order func(model, limit handler) handler
	}{
		{name: "model outside", order: func(model, _ handler) handler { return model }},
		{name: "model inside", order: func(_, limit handler) handler { return limit }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			upstream := &oldServer{status: 400, message: unknownOption}
			last := handler(func(w http.ResponseWriter, r *http.Request) error {
				upstream.ServeHTTP(w, r)
				return nil
			})
			inside := test.name == "model inside"
			ask := func(next handler) handler {
				return func(w http.ResponseWriter, r *http.Request) error {
					model, release, err := m.RequestModel(r)
					if err != nil || model != "gpt-5" {
						t.Errorf("got %q, %v", model, err)
					}
					defer release()
					return next(w, r)
				}
			}
			limit := func(next handler) handler {
				return func(w http.ResponseWriter, r *http.Request) error { return l.ServeHTTP(w, r, next) }
			}
			model, limited := ask(limit(last)), limit(ask(last))
			r := newRequest(http.MethodPost, chatPath, streamBody)
			w := httptest.NewRecorder()
			if err := test.order(model, limited)(w, r); err != nil {
				t.Fatal(err)
			}
			// the body is needed again after the model's handler has returned
			if len(upstream.seen) != 2 || upstream.seen[1].body != streamBody || w.Code != 200 {
				t.Errorf("inside %t: the upstream got %+v", inside, upstream.seen)
			}
			l.wait(t)
			l.once(t)
			nothingHeld(t, m)
		})
	}
}

func TestInspectGivesTheSameAnswerAgain(t *testing.T) {
	m := New()
	m.SetOptions(Options{MaxBody: 10})
	r := newRequest(http.MethodPost, chatPath, plainBody)
	c := m.Call(r)
	for range 2 {
		if err := c.Inspect(r); !errors.Is(err, ErrTooLarge) {
			t.Errorf("got error %v", err)
		}
	}
	c.leave()
	nothingHeld(t, m)
}

func TestOptionsOfTheNextConfig(t *testing.T) {
	m := New()
	if m.maxBody.Load() != DefaultMaxBody || m.bodies.max.Load() != DefaultMaxBuffered {
		t.Errorf("defaults %d, %d", m.maxBody.Load(), m.bodies.max.Load())
	}
	r := newRequest(http.MethodPost, chatPath, plainBody)
	c := m.Call(r)
	if err := c.Inspect(r); err != nil {
		t.Fatal(err)
	}
	// a reload with less room does not touch the calls that are on their way
	m.SetOptions(Options{MaxBody: 1, MaxBuffered: 1})
	c.leave()
	nothingHeld(t, m)
	m.SetOptions(Options{})
	if m.maxBody.Load() != DefaultMaxBody {
		t.Errorf("limit %d", m.maxBody.Load())
	}
}

func TestModelTypes(t *testing.T) {
	m := New()
	for path, want := range map[string]string{"/v1/embeddings": "embedding", chatPath: "text", "/v1/other": "text"} {
		if got := m.Call(newRequest(http.MethodPost, path, "{}")).ModelType(); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestCapIsNotWrittenOverTheClients(t *testing.T) {
	m := New()
	r := newRequest(http.MethodPost, chatPath, `{"model":"m","max_tokens":5}`)
	c := m.Call(r)
	if err := c.Inspect(r); err != nil {
		t.Fatal(err)
	}
	if c.WriteCap(r, 10) {
		t.Error("a cap was written")
	}
	if b, _ := io.ReadAll(r.Body); string(b) != `{"model":"m","max_tokens":5}` {
		t.Errorf("%q goes on", b)
	}
	c.leave()
	nothingHeld(t, m)
}

func TestEntriesAreInTheOrderOfTheRoute(t *testing.T) {
	m := New()
	var ls []*limiter
	for i := range 6 { // more than a call has room for at first
		ls = append(ls, newLimiter(m, fmt.Sprint(i)))
	}
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		for i, e := range m.Call(r).Entries() {
			if e.ID() != fmt.Sprint(i) {
				t.Errorf("entry %d is %s", i, e.ID())
			}
		}
		return answer(200, document, chatAnswer)(w, r)
	})
	w := httptest.NewRecorder()
	if err := serve(w, newRequest(http.MethodPost, chatPath, plainBody), next, ls...); err != nil {
		t.Fatal(err)
	}
	if w.Header().Get("X-Left") != "6" || ls[0].headers != 1 || ls[1].headers != 0 {
		t.Errorf("header %v", w.Header())
	}
	for _, l := range ls {
		l.wait(t)
		l.once(t)
	}
}
