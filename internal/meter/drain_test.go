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
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// leaving is a request whose client goes when leave is called.
func leaving(t testing.TB, path, body string) (r *http.Request, leave context.CancelFunc) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	r = newRequest(http.MethodPost, path, body)
	return r.WithContext(withCancel{r.Context(), ctx}), leave
}

// catch serves and tells what was returned and what was panicked with.
func catch(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, hs ...*limiter) (panicked any, err error) {
	defer func() { panicked = recover() }()
	return nil, serve(w, r, next, hs...)
}

func TestDrain(t *testing.T) {
	const drain = 3 * time.Second
	reported := usage.Usage{Input: 9, Output: 12}
	expected := usage.Usage{Input: promptTokens, Output: unknownOutput}
	tests := []struct {
		name   string
		before []string      // what the client gets before it goes
		after  []string      // what comes then
		pause  time.Duration // before each piece of that
		fails  bool          // the client is there, but takes no more
		ends   time.Duration // after the client has gone
		source Source
		usage  usage.Usage
		aborts bool
	}{
		{name: "a stream reports in time", before: []string{event}, after: []string{event, eventEnd, eventUsage, eventDone}, pause: 500 * time.Millisecond, ends: 2 * time.Second, source: SourceReported, usage: reported},
		{name: "a stream reports too late", before: []string{event}, after: []string{event, eventUsage}, pause: 2 * time.Second, ends: drain, source: SourceEstimated, usage: expected, aborts: true},
		{name: "a stream reports in time and does not end", before: []string{event}, after: []string{eventEnd + eventUsage, "never"}, pause: 2 * time.Second, ends: drain, source: SourceReported, usage: reported, aborts: true},
		{name: "a stream ends without a report", before: []string{event}, after: []string{eventEnd, eventDone}, pause: time.Second, ends: 2 * time.Second, source: SourceEstimated, usage: expected},
		{name: "an answer begins in time", after: []string{event, eventEnd + eventUsage + eventDone}, pause: time.Second, ends: 2 * time.Second, source: SourceReported, usage: reported},
		{name: "no answer begins", after: []string{event}, pause: time.Hour, ends: drain, source: SourceEstimated, usage: expected, aborts: true},
		{name: "a client takes no more", before: []string{event}, after: []string{event, eventUsage, eventDone}, pause: time.Second, fails: true, ends: 3 * time.Second, source: SourceReported, usage: reported, aborts: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := New()
				m.SetOptions(Options{Drain: drain})
				l := newLimiter(m, "l")
				r, leave := leaving(t, chatPath, streamBody)
				w := &brokenWriter{httptest.NewRecorder(), 1 << 20}
				var left time.Time
				next := handler(func(w2 http.ResponseWriter, r *http.Request) error {
					w2.Header().Set("Content-Type", sse)
					for _, p := range test.before {
						if _, err := io.WriteString(w2, p); err != nil {
							t.Error(err)
						}
					}
					w.n, left = 0, time.Now()
					if !test.fails {
						leave()
					}
					for _, p := range test.after {
						select {
						case <-time.After(test.pause):
						case <-r.Context().Done():
							panic(http.ErrAbortHandler)
						}
						if n, err := io.WriteString(w2, p); err != nil || n != len(p) {
							t.Errorf("wrote %d, %v", n, err)
						}
						if err := http.NewResponseController(w2).Flush(); err != nil {
							t.Error(err)
						}
					}
					return nil
				})
				panicked, err := catch(w, r, next, l)
				if err != nil || (panicked != nil) != test.aborts {
					t.Errorf("error %v, panic %v", err, panicked)
				}
				if d := time.Since(left); d != test.ends {
					t.Errorf("ended after %v, want %v", d, test.ends)
				}
				got := l.wait(t)
				if got.Source != test.source || got.Usage != test.usage {
					t.Errorf("got %s %+v, want %s %+v", got.Source, got.Usage, test.source, test.usage)
				}
				if body := w.ResponseWriter.(*httptest.ResponseRecorder).Body.String(); body != strings.Join(test.before, "") {
					t.Errorf("the client got %q", body)
				}
				l.once(t)
				ended(t, m)
			})
		})
	}
}

// ended tells that nothing is left of any call.
func ended(t testing.TB, m *Meter) {
	t.Helper()
	nothingHeld(t, m)
	if n := m.drains.all + len(m.drains.by); n != 0 {
		t.Errorf("%d calls drain", n)
	}
	if n := len(m.live.calls); n != 0 {
		t.Errorf("%d calls are on their way", n)
	}
}

func TestCallThatIsNotDrainedEndsWithItsClient(t *testing.T) {
	tests := []struct {
		name, path string
		counts     bool // requests only
		drain      time.Duration
	}{
		{name: "off", path: chatPath, drain: -1},
		{name: "only requests are counted", path: chatPath, counts: true},
		{name: "a free endpoint", path: "/v1/moderations"},
		{name: "let pass unmetered", path: "/v1/batches"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := New()
			m.SetOptions(Options{Drain: test.drain})
			l := newLimiter(m, "l")
			l.counts = test.counts
			r, leave := leaving(t, test.path, plainBody)
			before := r.Context()
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				leave()
				if r.Context().Done() != before.Done() || r.Context().Err() == nil {
					t.Error("the context does not end with the client's")
				}
				if _, err := io.WriteString(w, "x"); !errors.Is(err, errHungUp) {
					t.Errorf("got error %v", err)
				}
				return nil
			})
			if err := serve(&brokenWriter{httptest.NewRecorder(), 0}, r, next, l); err != nil {
				t.Fatal(err)
			}
			l.wait(t)
			ended(t, m)
		})
	}
}

func TestDrainKeepsWhatTheContextHolds(t *testing.T) {
	type key struct{}
	m := New()
	l := newLimiter(m, "l")
	r, leave := leaving(t, chatPath, plainBody)
	r = r.WithContext(context.WithValue(r.Context(), key{}, "v"))
	next := handler(func(w http.ResponseWriter, behind *http.Request) error {
		if behind.Context().Value(key{}) != "v" || m.Call(behind) == nil {
			t.Error("values are missing")
		}
		child, cancel := context.WithCancel(behind.Context())
		defer cancel()
		leave()
		if behind.Context().Err() != nil || child.Err() != nil {
			t.Error("the context ends with the client")
		}
		return answer(200, document, chatAnswer)(w, behind)
	})
	if err := serve(httptest.NewRecorder(), r, next, l); err != nil {
		t.Fatal(err)
	}
	if r.Context().Err() == nil || r.Context().Value(key{}) != "v" {
		t.Error("the context is not the client's afterwards")
	}
	select {
	case <-r.Context().Done():
	default:
		t.Error("the context has not ended")
	}
	if o := l.wait(t); o.Source != SourceReported {
		t.Errorf("got %+v", o)
	}
	ended(t, m)
}

func TestContextFollowsTheClientAfterTheCall(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r, leave := leaving(t, chatPath, plainBody)
	if err := serve(httptest.NewRecorder(), r, answer(200, document, chatAnswer), l); err != nil {
		t.Fatal(err)
	}
	child, cancel := context.WithCancel(r.Context())
	defer cancel()
	if child.Err() != nil {
		t.Error("the context ends with the call")
	}
	leave()
	receive(t, child.Done())
	ended(t, m)
}

func TestDrainKeepsDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		l := newLimiter(m, "l")
		begin := time.Now()
		r, leave := leaving(t, chatPath, plainBody)
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		next := handler(func(_ http.ResponseWriter, r *http.Request) error {
			if d, ok := r.Context().Deadline(); !ok || d != begin.Add(time.Second) {
				t.Errorf("deadline %v, %t", d, ok)
			}
			leave()
			<-r.Context().Done()
			return r.Context().Err()
		})
		err := serve(httptest.NewRecorder(), r.WithContext(ctx), next, l)
		if d := time.Since(begin); d != time.Second {
			t.Errorf("ended after %v, error %v", d, err)
		}
		l.wait(t)
		ended(t, m)
	})
}

func TestDrainBeginsAtTheLimiterThatCountsUse(t *testing.T) {
	m := New()
	outer, inner := newLimiter(m, "outer"), newLimiter(m, "inner")
	outer.counts = true
	r, leave := leaving(t, chatPath, plainBody)
	between := handler(func(w http.ResponseWriter, r *http.Request) error {
		err := serve(w, r, handler(func(w http.ResponseWriter, r *http.Request) error {
			leave()
			if r.Context().Err() != nil {
				t.Error("cancelled with the client")
			}
			return answer(200, document, chatAnswer)(w, r)
		}), inner)
		if r.Context().Err() == nil {
			t.Error("outside of the inner limiter the client has not gone")
		}
		return err
	})
	if err := serve(&brokenWriter{httptest.NewRecorder(), 0}, r, between, outer); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*limiter{outer, inner} {
		if o := l.wait(t); o.Source != SourceReported || o.Usage.Output != 12 {
			t.Errorf("%s: %+v", l.name, o)
		}
		l.once(t)
	}
	ended(t, m)
}

func TestErrorBehindAClientThatHasGoneStartsNothingElse(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r, leave := leaving(t, chatPath, plainBody)
	w := httptest.NewRecorder()
	next := handler(func(http.ResponseWriter, *http.Request) error {
		leave()
		return caddyhttp.Error(http.StatusBadGateway, io.ErrUnexpectedEOF)
	})
	if err := serve(w, r, next, l); err != nil || w.Code != statusClientGone {
		t.Errorf("got %d, error %v", w.Code, err)
	}
	if o := l.wait(t); o.Status != statusClientGone || o.Source != SourceEstimated {
		t.Errorf("got %+v", o)
	}
	ended(t, m)
}

func TestStreamIsNotAskedAgainForAClientThatHasGone(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	r, leave := leaving(t, chatPath, streamBody)
	runs := 0
	next := handler(func(w http.ResponseWriter, r *http.Request) error {
		runs++
		leave()
		return answer(400, document, unknownOption)(w, r)
	})
	if err := serve(httptest.NewRecorder(), r, next, l); err != nil || runs != 1 {
		t.Errorf("%d runs, error %v", runs, err)
	}
	if o := l.wait(t); o.Source != SourceNone {
		t.Errorf("got %+v", o)
	}
	ended(t, m)
}

func TestCallOfAClientThatHadGoneCostsNothing(t *testing.T) {
	for _, status := range []int{0, statusClientGone} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			r, leave := leaving(t, chatPath, plainBody)
			leave()
			next := handler(func(w http.ResponseWriter, r *http.Request) error {
				if r.Context().Err() == nil {
					t.Error("a call begins for nobody")
				}
				if status != 0 {
					w.WriteHeader(status)
					return nil
				}
				return r.Context().Err()
			})
			_ = serve(httptest.NewRecorder(), r, next, l)
			if o := l.wait(t); o.Source != SourceNone {
				t.Errorf("got %+v", o)
			}
			ended(t, m)
		})
	}
}

func TestFinishSettlesWhatIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		if !m.Finish() {
			t.Error("nothing is on its way")
		}
		l := newLimiter(m, "l")
		deaf := make(chan struct{})
		for i := range 3 {
			r, leave := leaving(t, chatPath, plainBody)
			next := handler(func(_ http.ResponseWriter, r *http.Request) error {
				<-r.Context().Done()
				if i == 2 {
					<-deaf
				}
				return r.Context().Err()
			})
			go func() { _ = serve(httptest.NewRecorder(), r, next, l) }()
			if i == 0 {
				synctest.Wait()
				leave() // this one drains
			}
		}
		synctest.Wait()
		begin := time.Now()
		if m.Finish() || time.Since(begin) != finishMost || len(l.ended) != 2 {
			t.Errorf("%d calls were settled after %v", len(l.ended), time.Since(begin))
		}
		close(deaf)
		if !m.Finish() || len(l.ended) != 3 {
			t.Errorf("%d calls were settled", len(l.ended))
		}
		ended(t, m)
	})
}
