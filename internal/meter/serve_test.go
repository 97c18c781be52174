package meter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestServeSettlesEveryEndOfACallOnce(t *testing.T) {
	reported := usage.Usage{Input: 9, Output: 12}
	estimated := usage.Usage{Input: promptTokens, Output: unknownOutput}
	boom := errors.New("boom")
	tests := []struct {
		name   string
		next   handler
		panics any
		err    error
		status int
		source Source
		usage  usage.Usage
	}{
		{
			name: "success", next: answer(200, "application/json", chatAnswer),
			status: 200, source: SourceReported, usage: reported,
		},
		{
			name: "success without usage", next: answer(200, "application/json", `{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}`),
			status: 200, source: SourceEstimated, usage: estimated,
		},
		{
			name: "an error of the provider", next: answer(500, "application/json", `{"error":{"message":"x"}}`),
			status: 500, source: SourceNone,
		},
		{
			name: "an error with status 200", next: answer(200, "application/json", `{"error":{"message":"x"}}`),
			status: 200, source: SourceNone,
		},
		{
			name: "an error of a handler's", next: func(http.ResponseWriter, *http.Request) error {
				return caddyhttp.Error(http.StatusBadGateway, boom)
			},
			err: boom, status: 502, source: SourceNone,
		},
		{
			name: "an error without a status", next: func(http.ResponseWriter, *http.Request) error { return boom },
			err: boom, status: 500, source: SourceNone,
		},
		{
			name: "an error behind a whole answer", next: func(w http.ResponseWriter, r *http.Request) error {
				_ = answer(200, "application/json", chatAnswer)(w, r)
				return boom
			},
			err: boom, status: 200, source: SourceReported, usage: reported,
		},
		{
			name: "an answer that breaks off", next: func(w http.ResponseWriter, r *http.Request) error {
				_ = answer(200, "text/event-stream", event)(w, r)
				panic(http.ErrAbortHandler)
			},
			panics: http.ErrAbortHandler, status: 200, source: SourceEstimated, usage: estimated,
		},
		{
			name: "a whole document before the handler breaks off", next: func(w http.ResponseWriter, r *http.Request) error {
				_ = answer(200, "application/json", chatAnswer)(w, r)
				panic(http.ErrAbortHandler)
			},
			panics: http.ErrAbortHandler, status: 200, source: SourceReported, usage: reported,
		},
		{
			name: "a document that is cut", next: func(w http.ResponseWriter, r *http.Request) error {
				_ = answer(200, "application/json", chatAnswer[:len(chatAnswer)-1])(w, r)
				panic(http.ErrAbortHandler)
			},
			panics: http.ErrAbortHandler, status: 200, source: SourceEstimated, usage: usage.Usage{Input: 9, Output: unknownOutput},
		},
		{
			name: "a panic before the header", next: func(http.ResponseWriter, *http.Request) error { panic("bug") },
			panics: "bug", status: 0, source: SourceNone,
		},
		{
			name: "no handler answers", next: func(http.ResponseWriter, *http.Request) error { return nil },
			status: 0, source: SourceNone,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
			r := newRequest(http.MethodPost, chatPath, plainBody)
			var err error
			recovered := func() (v any) {
				defer func() { v = recover() }()
				err = serve(httptest.NewRecorder(), r, test.next, outer, inner)
				return nil
			}()
			if recovered != test.panics || !errors.Is(err, test.err) {
				t.Errorf("panic %v, error %v", recovered, err)
			}
			for _, l := range []*limiter{outer, inner} {
				got := l.wait(t)
				l.once(t)
				if got.Status != test.status || got.Source != test.source {
					t.Errorf("%s: status %d, %s", l.name, got.Status, got.Source)
				}
				if got.Usage != test.usage {
					t.Errorf("%s: got %+v, want %+v", l.name, got.Usage, test.usage)
				}
			}
			nothingHeld(t, m)
		})
	}
}

// serve sends a request through handlers, the first outermost.
func serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, hs ...*limiter) error {
	for i := len(hs) - 1; i >= 0; i-- {
		l, inner := hs[i], next
		next = handler(func(w http.ResponseWriter, r *http.Request) error { return l.ServeHTTP(w, r, inner) })
	}
	return next.ServeHTTP(w, r)
}

func TestServeChargesAClientThatGoes(t *testing.T) {
	t.Run("before the header", func(t *testing.T) {
		arrived := make(chan struct{})
		upstream := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			close(arrived)
			<-r.Context().Done()
		})
		m := New()
		m.SetOptions(Options{Drain: time.Millisecond})
		l := newLimiter(m, "l")
		g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)

		ctx, leave := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.url+chatPath, strings.NewReader(plainBody))
		failed := make(chan error, 1)
		go func() {
			res, err := http.DefaultTransport.RoundTrip(r)
			if err == nil {
				res.Body.Close()
			}
			failed <- err
		}()
		receive(t, arrived)
		leave()
		if err := receive(t, failed); !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v", err)
		}
		got := l.wait(t)
		if got.Status != statusClientGone || got.Source != SourceEstimated || got.Usage != (usage.Usage{Input: promptTokens, Output: unknownOutput}) {
			t.Errorf("got %+v", got)
		}
		receive(t, g.log)
		l.once(t)
		nothingHeld(t, m)
	})

	t.Run("in a stream", func(t *testing.T) {
		const events = 900 // more text than is expected
		upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range events {
				_, _ = io.WriteString(w, event)
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		m := New()
		m.SetOptions(Options{Drain: time.Millisecond})
		l := newLimiter(m, "l")
		g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)

		ctx, leave := context.WithCancel(t.Context())
		res := g.post(ctx, t, chatPath, streamBody)
		if _, err := io.ReadFull(res.Body, make([]byte, events*len(event))); err != nil {
			t.Fatal(err)
		}
		leave()
		got := l.wait(t)
		want := usage.Usage{Input: promptTokens, Output: (events*5 + 3) / 4}
		if got.Status != 200 || got.Source != SourceEstimated || got.Usage != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		receive(t, g.log)
		l.once(t)
		nothingHeld(t, m)
	})
}

func TestServeTakesAWholeAnswerThatTheClientDidNotWaitFor(t *testing.T) {
	// a client that closes its connection with the last byte is not an abort
	m := New()
	l := newLimiter(m, "l")
	ctx, leave := context.WithCancel(t.Context())
	r := newRequest(http.MethodPost, chatPath, streamBody)
	var call *Call
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		call = m.Call(r)
		err := answer(200, "text/event-stream", event, eventEnd, eventUsage, eventDone)(w, r)
		leave()
		return err
	})
	if err := serve(httptest.NewRecorder(), r.WithContext(withCancel{r.Context(), ctx}), next, l); err != nil {
		t.Fatal(err)
	}
	if got := l.wait(t); got.Source != SourceReported || got.Usage != (usage.Usage{Input: 9, Output: 12}) {
		t.Errorf("got %+v", got)
	}
	if !call.ended {
		t.Error("the call has not ended")
	}
}

// withCancel is the values of one context with the end of another.
type withCancel struct {
	context.Context
	end context.Context
}

func (c withCancel) Done() <-chan struct{} { return c.end.Done() }
func (c withCancel) Err() error            { return c.end.Err() }

func TestServeEstimatesWhenTheUpstreamBreaksOff(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	m := New()
	l := newLimiter(m, "l")
	g := newGateway(t, []object{use(t, l), proxy(upstream)}, nil)

	res := g.post(t.Context(), t, chatPath, streamBody)
	got, err := io.ReadAll(res.Body)
	if string(got) != event || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the client got %q, %v", got, err)
	}
	if o := l.wait(t); o.Source != SourceEstimated || o.Usage.Output != unknownOutput {
		t.Errorf("got %+v", o)
	}
	receive(t, g.log)
	l.once(t)
	nothingHeld(t, m)
}

func TestServeGivesBackWhatARefusalTook(t *testing.T) {
	for _, asError := range []bool{false, true} {
		t.Run(fmt.Sprintf("as an error %t", asError), func(t *testing.T) {
			m := New()
			outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
			inner.refuse, inner.message, inner.asError = 429, `{"usage":{"prompt_tokens":1,"completion_tokens":1}}`, asError
			w := httptest.NewRecorder()
			err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), answer(200, "text/plain"), outer, inner)
			if asError != (err != nil) {
				t.Errorf("error %v", err)
			}
			if !asError && (w.Code != 429 || w.Body.String() != inner.message) {
				t.Errorf("the client got %d %q", w.Code, w.Body)
			}
			if outer.cancels != 1 || len(outer.outcome) != 0 || inner.cancels != 0 || len(inner.outcome) != 0 {
				t.Errorf("outer %d/%d, inner %d/%d", outer.cancels, len(outer.outcome), inner.cancels, len(inner.outcome))
			}
			if outer.headers != 0 {
				t.Error("a refusal writes its own header fields")
			}
			nothingHeld(t, m)
		})
	}
}

func TestServeDoesNotRepeatOurOwnRefusal(t *testing.T) {
	m := New()
	outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
	inner.refuse, inner.message = 400, "stream_options is not what was asked"
	w := httptest.NewRecorder()
	if err := serve(w, newRequest(http.MethodPost, chatPath, streamBody), answer(200, "text/plain"), outer, inner); err != nil {
		t.Fatal(err)
	}
	if w.Code != 400 || w.Body.String() != inner.message || outer.cancels != 1 {
		t.Errorf("got %d %q, cancelled %d times", w.Code, w.Body, outer.cancels)
	}
	nothingHeld(t, m)
}

func TestRefusalOfTheOutermostEndsTheCall(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	l.refuse = 429
	r := newRequest(http.MethodPost, chatPath, plainBody)
	if err := serve(httptest.NewRecorder(), r, answer(200, "text/plain"), l); err != nil {
		t.Fatal(err)
	}
	nothingHeld(t, m)
	if o := logObject(r); o["refused_by"] != "l" || o["usage_source"] != "none" {
		t.Errorf("logged %v", o)
	}
}

func TestServeCountsACallAgainThatGoesOnAfterARefusal(t *testing.T) {
	m := New()
	outer, inner, other := newLimiter(m, "outer"), newLimiter(m, "inner"), newLimiter(m, "other")
	inner.refuse, inner.asError = 429, true
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		if err := serve(w, r, answer(200, "text/plain"), inner); err == nil {
			t.Error("not refused")
		}
		return serve(w, r, answer(200, "application/json", chatAnswer), other)
	})
	if err := serve(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), next, outer); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*limiter{outer, other} {
		if got := l.wait(t); got.Usage.Output != 12 {
			t.Errorf("%s: got %+v", l.name, got)
		}
	}
	nothingHeld(t, m)
}

func TestInstanceThatStandsTwiceCountsOnce(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	if err := serve(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), answer(200, "application/json", chatAnswer), l, l); err != nil {
		t.Fatal(err)
	}
	l.wait(t)
	l.once(t)
}

func TestEndDoesNotNeedTheContext(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newRequest(http.MethodPost, chatPath, plainBody)
	next := handler(func(http.ResponseWriter, *http.Request) error {
		cancel()
		return ctx.Err()
	})
	_ = serve(httptest.NewRecorder(), r.WithContext(withCancel{r.Context(), ctx}), next, l)
	if o := l.wait(t); o.Source != SourceEstimated {
		t.Errorf("got %+v: before the header a provider may have been at work", o)
	}
	nothingHeld(t, m)
}
