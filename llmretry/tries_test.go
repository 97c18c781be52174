package llmretry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

func TestCallsAreTriedAgain(t *testing.T) {
	const expected = 1032 // of a call that does not say what it used
	const overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
	ok := replies(200, sixty)
	for _, tt := range []struct {
		name    string
		h       *Handler
		steps   []caddyhttp.HandlerFunc
		request []string // fields of its header
		status  int
		body    string // part of it
		calls   int
		tokens  int64
		atLeast time.Duration
		atMost  time.Duration
	}{
		{name: "nothing fails", steps: steps(ok), status: 200, body: sixty, calls: 1, tokens: 60},
		{
			name: "429 with Retry-After", steps: steps(replies(429, busy, "Retry-After", "1"), ok), status: 200, body: sixty, calls: 2, tokens: 60,
			atLeast: time.Second, atMost: 1100 * time.Millisecond,
		},
		{
			name: "429 with retry-after-ms", steps: steps(replies(429, busy, "Retry-After-Ms", "300", "Retry-After", "1"), ok), status: 200, calls: 2, tokens: 60,
			atLeast: 300 * time.Millisecond, atMost: 330 * time.Millisecond,
		},
		{
			name: "two that do not say when", steps: steps(replies(503, "{}"), replies(529, "{}"), ok), status: 200, calls: 3, tokens: 60,
			atMost: 1500 * time.Millisecond,
		},
		{name: "no connection", steps: steps(refuses, ok), status: 200, calls: 2, tokens: 60, atMost: time.Second},
		{name: "no connection, whatever the list says", h: &Handler{On: []int{429}}, steps: steps(refuses, ok), status: 200, calls: 2, tokens: 60, atMost: time.Second},
		{name: "a stream that begins with an error", steps: steps(streams(overloaded), streams(delta)), status: 200, body: delta, calls: 2, tokens: 1032, atMost: time.Second},
		{name: "a stream that breaks before its first event", steps: steps(breaks(": hello\n\n"), ok), status: 200, body: sixty, calls: 2, tokens: 60 + expected, atMost: time.Second},
		{name: "a stream that begins with an error and breaks", steps: steps(breaks(overloaded), ok), status: 200, body: sixty, calls: 2, tokens: 60, atMost: time.Second},
		{name: "an error that breaks off", steps: steps(breaksOff(503), ok), status: 200, body: sixty, calls: 2, tokens: 60, atMost: time.Second},
		{name: "an error that breaks off, whatever the list says", h: &Handler{On: []int{503}}, steps: steps(breaksOff(503), ok), status: 200, body: sixty, calls: 2, tokens: 60, atMost: time.Second},
		{name: "a connection that breaks", steps: steps(drops, ok), status: 200, body: sixty, calls: 2, tokens: 60 + expected, atMost: time.Second},
		{name: "timeouts", steps: []caddyhttp.HandlerFunc{slow, slow, ok}, status: 200, body: sixty, calls: 3, tokens: 60 + 2*expected, atMost: 2 * time.Second},
		{name: "a timeout, and then a refusal", steps: steps(slow, replies(400, "no")), status: 400, body: "no", calls: 2, tokens: expected, atMost: time.Second},
		{name: "a refusal, and then timeouts", steps: steps(replies(503, "no"), slow), status: 503, body: "no", calls: 3, tokens: 2 * expected, atMost: 2 * time.Second},
		{name: "an error under 200", steps: steps(replies(200, `{"error":{"code":503,"message":"x"}}`), ok), status: 200, body: sixty, calls: 2, tokens: 60, atMost: time.Second},
		{
			name: "one that reports what it used", steps: steps(replies(500, `{"error":{"message":"x"},"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`), ok),
			status: 200, body: sixty, calls: 2, tokens: 67, atMost: time.Second,
		},

		{name: "no more than said", steps: steps(replies(500, "no")), status: 500, body: "no", calls: 3, atMost: 2 * time.Second},
		{name: "once only", h: &Handler{Attempts: 1}, steps: steps(replies(500, "no")), status: 500, body: "no", calls: 1},
		{name: "not another status", steps: steps(replies(400, "no")), status: 400, body: "no", calls: 1},
		{name: "not a status that is not listed", h: &Handler{On: []int{503}}, steps: steps(replies(500, "no")), status: 500, body: "no", calls: 1},
		{name: "not where the wait is too long", steps: steps(replies(429, busy, "Retry-After", "60")), status: 429, body: busy, calls: 1},
		{name: "not without a quota", steps: steps(replies(429, `{"error":{"code":"insufficient_quota"}}`)), status: 429, calls: 1},
		{name: "not if the provider says so", steps: steps(replies(500, "no", "X-Should-Retry", "false")), status: 500, calls: 1},
		{name: "not past the client's deadline", steps: steps(replies(429, busy, "Retry-After", "5")), request: []string{"X-Stainless-Timeout", "4"}, status: 429, calls: 1},
		{name: "not with an error that a retry does not change", steps: steps(streams("data: {\"error\":{\"type\":\"invalid_request_error\"}}\n\n")), status: 200, body: "invalid", calls: 1},
		{name: "not a stream that has begun", steps: steps(streams(delta, overloaded)), status: 200, body: delta + overloaded, calls: 1, tokens: 1032},
		{name: "not a long error", steps: steps(replies(500, strings.Repeat("x", mostHeld+1))), status: 500, calls: 1},
		{name: "the answer rather than the error after it", steps: steps(replies(429, busy, "Retry-After", "2"), refuses), status: 429, body: busy, calls: 3, atLeast: 2 * time.Second, atMost: 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t, cmp.Or(tt.h, new(Handler)))
				up := &script{steps: tt.steps}
				res := do(h, up.serve, request(t.Context(), chatBody, tt.request...))
				if res.err != nil || res.aborted {
					t.Fatalf("error %v, aborted %t", res.err, res.aborted)
				}
				if res.Code != tt.status || !strings.Contains(res.Body.String(), tt.body) {
					t.Errorf("got %d %s", res.Code, res.Body)
				}
				if up.calls != tt.calls {
					t.Errorf("the upstream got %d calls, want %d", up.calls, tt.calls)
				}
				if res.settled != 1 || res.total() != tt.tokens {
					t.Errorf("charged %d times, %d tokens; want once, %d", res.settled, res.total(), tt.tokens)
				}
				if res.duration < tt.atLeast || res.duration > tt.atMost {
					t.Errorf("it took %s", res.duration)
				}
			})
		})
	}
}

func steps(s ...caddyhttp.HandlerFunc) []caddyhttp.HandlerFunc { return s }

func TestStreamThatBreaksOffIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &script{steps: steps(breaks(delta))}
		res := do(newHandler(t, new(Handler)), up.serve, request(t.Context(), chatBody))
		if !res.aborted || up.calls != 1 || res.Body.String() != delta {
			t.Errorf("aborted %t, %d calls, got %q", res.aborted, up.calls, res.Body)
		}
		if res.settled != 1 || res.total() == 0 {
			t.Errorf("charged %d times, %d tokens", res.settled, res.total())
		}
	})
}

func TestOtherPanicsGoOn(t *testing.T) {
	defer func() {
		if v := recover(); v != "broken" {
			t.Errorf("recovered %v", v)
		}
	}()
	do(newHandler(t, new(Handler)), func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusServiceUnavailable)
		panic("broken")
	}, request(t.Context(), chatBody))
}

func TestEveryAttemptGetsTheSameRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &script{steps: steps(replies(503, ""), replies(200, sixty))}
		r := request(t.Context(), chatBody, "X-Extra", "a")
		var vars []any
		res := do(newHandler(t, new(Handler)), func(w http.ResponseWriter, r *http.Request) error {
			// what a route does
			vars = append(vars, caddyhttp.GetVar(r.Context(), "seen"))
			caddyhttp.SetVar(r.Context(), "seen", true)
			r.URL.Path = "/prefix" + r.URL.Path
			r.URL.RawQuery = "q=1"
			r.Header.Add("X-Extra", "b")
			r.Header.Set("X-Extra", r.Header.Get("X-Extra")+"!")
			w.Header().Add("X-Answer", "1")
			return up.serve(w, r)
		}, r)
		if res.Code != 200 || len(up.seen) != 2 || up.seen[0] != up.seen[1] || up.seen[0] != "/prefix/v1/chat/completions?q=1 a! "+chatBody {
			t.Errorf("got %d, the upstream %q", res.Code, up.seen)
		}
		if got := res.Header()["X-Answer"]; len(got) != 1 {
			t.Errorf("the answer's header has %q", got)
		}
		if vars[0] != nil || vars[1] != nil {
			t.Errorf("variables are %v", vars)
		}
	})
}

func TestTheWaitThatIsLeftIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, &Handler{Attempts: 2, MaxWait: caddy.Duration(3 * time.Second)})
		slow := func(w http.ResponseWriter, r *http.Request) error {
			time.Sleep(2500 * time.Millisecond)
			return caddyhttp.Error(http.StatusGatewayTimeout, context.DeadlineExceeded)
		}
		up := &script{steps: steps(replies(429, busy, "Retry-After", "2", "X-Provider", "yes"), slow)}
		res := do(h, up.serve, request(t.Context(), chatBody))
		if res.Code != 429 || res.Header().Get("Retry-After") != "1" || res.Header().Get("X-Provider") != "yes" {
			t.Errorf("got %d %v", res.Code, res.Header())
		}

		up = &script{steps: steps(replies(429, busy, "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "1m30s"))}
		res = do(h, up.serve, request(t.Context(), chatBody))
		if got := res.Header().Get("Retry-After"); got != "90" {
			t.Errorf("Retry-After is %q", got)
		}
	})
}

func TestNobodyWaitsForAClientThatHasGone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  caddyhttp.HandlerFunc
		status int
	}{
		{"after an answer", replies(429, busy, "Retry-After", "5"), 429},
		{"after no answer", refuses, statusClientGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				up := &script{steps: steps(func(w http.ResponseWriter, r *http.Request) error {
					cancelSoon := time.AfterFunc(time.Nanosecond, cancel)
					t.Cleanup(func() { cancelSoon.Stop() })
					return tt.first(w, r)
				})}
				res := do(newHandler(t, new(Handler)), up.serve, request(ctx, chatBody))
				if up.calls != 1 || res.duration > time.Second || res.Code != tt.status {
					t.Errorf("%d calls, %s, got %d, %v", up.calls, res.duration, res.Code, res.err)
				}
				if res.settled != 1 || res.total() != 0 {
					t.Errorf("charged %d times, %d tokens", res.settled, res.total())
				}
			})
		})
	}
}

func TestLongBodiesThatNobodyReadsAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &script{steps: steps(replies(503, "no"))}
		r := request(t.Context(), strings.Repeat("x", 2<<20))
		r.URL.Path = "/v1/files"
		res := do(newHandler(t, new(Handler)), up.serve, r)
		if up.calls != 1 || res.Code != 503 || len(up.seen[0]) < 2<<20 {
			t.Errorf("%d calls, got %d", up.calls, res.Code)
		}
	})
}

func TestWhatGoesOnAfterItsAnswerIsNotBegunTwice(t *testing.T) {
	undialled := func(http.ResponseWriter, *http.Request) error {
		return caddyhttp.Error(http.StatusBadGateway, reverseproxy.NewDialError(errors.New("refused")))
	}
	ok := replies(200, `{"id":"x"}`)
	for _, tt := range []struct {
		name  string
		first caddyhttp.HandlerFunc
		calls int
	}{
		{"no room", replies(429, busy), 2},
		{"overloaded", replies(529, "{}"), 2},
		{"no connection", undialled, 2},
		{"a server error", replies(500, "{}"), 1},
		{"a timeout", replies(504, "{}"), 1},
		{"a connection that broke", refuses, 1},
		{"an answer that broke off", breaks(), 1},
	} {
		for _, of := range []struct{ path, body string }{{"/v1/batches", `{"input_file_id":"f"}`}, {"/v1/responses", `{"model":"gpt-5","input":"x","background":true}`}, {"/v1/responses", `{"model":"gpt-5","input":"x","conversation":"c"}`}, {"/v1/files", "x"}, {"/v1/threads", "{}"}} {
			t.Run(tt.name+" of "+of.path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					up, spare := &script{steps: steps(tt.first, ok)}, &script{steps: steps(ok)}
					h := newHandler(t, &Handler{Fallbacks: []*Fallback{{Routes: make(caddyhttp.RouteList, 1)}}})
					detour(h, 1, spare)
					r := request(t.Context(), of.body)
					r.URL.Path = of.path
					do(h, up.serve, r)
					if n := up.calls + spare.calls; n != tt.calls {
						t.Errorf("it is begun %d times", n)
					}
				})
			})
		}
	}
}

func TestOutsideSeesTheAttemptThatServed(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []caddyhttp.HandlerFunc
		want  string
	}{
		{"the last", steps(replies(503, ""), replies(200, sixty)), "2"},
		{"the answer that was kept", steps(replies(503, ""), refuses), "1"},
		{"the last error", steps(refuses), "3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &script{steps: tt.steps}
				r := request(t.Context(), chatBody)
				do(newHandler(t, new(Handler)), func(w http.ResponseWriter, r *http.Request) error {
					repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
					if got, known := repl.GetString("upstream"); known {
						t.Errorf("an attempt knows the upstream of another: %s", got)
					}
					repl.Set("upstream", fmt.Sprint(up.calls+1))
					return up.serve(w, r)
				}, r)
				repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
				if got, _ := repl.GetString("upstream"); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		})
	}
}

func TestWhatOnlyAsksIsAskedAgain(t *testing.T) {
	for _, path := range []string{"/v1/moderations", "/v1/messages/count_tokens", "/v1beta/models/gemini-2.5-pro:countTokens"} {
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			synctest.Test(t, func(t *testing.T) {
				up := &script{steps: steps(replies(500, "{}"), replies(200, "{}"))}
				r := request(t.Context(), `{"input":"x"}`)
				r.URL.Path, r.Method = path, method
				do(newHandler(t, new(Handler)), up.serve, r)
				if want := map[string]int{http.MethodPost: 2, http.MethodDelete: 1}[method]; up.calls != want {
					t.Errorf("%s %s is sent %d times, want %d", method, path, up.calls, want)
				}
			})
		}
	}
}

// breaksOff begins an answer and breaks it off.
func breaksOff(status int) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(status)
		panic(http.ErrAbortHandler)
	}
}

func TestRequestsThatHadNoAnswerAreChargedOnceEach(t *testing.T) {
	const expected = 1032
	// a proxy that tries two upstreams by itself, the first of which does not answer
	twice := func(last caddyhttp.HandlerFunc) caddyhttp.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) error {
			sends(r)
			return last(w, r)
		}
	}
	serves := func(w http.ResponseWriter, r *http.Request) error {
		sends(r)
		httptrace.ContextClientTrace(r.Context()).GotFirstResponseByte()
		return replies(200, sixty)(w, r)
	}
	for _, tt := range []struct {
		name   string
		h      *Handler
		step   caddyhttp.HandlerFunc
		calls  int
		times  int64 // that what is expected is charged
		tokens int64 // that are reported
	}{
		{"timeouts", new(Handler), slow, 3, 3, 0},
		{"a timeout that is not to be repeated", &Handler{On: []int{502, 503}}, slow, 1, 1, 0},
		{"broken connections", new(Handler), drops, 3, 3, 0},
		{"a broken connection that is not to be repeated", &Handler{On: []int{503, 504}}, drops, 1, 1, 0},
		{"no connection", &Handler{On: []int{500}}, refuses, 3, 0, 0},
		{"timeouts that the proxy hides", new(Handler), twice(slow), 3, 6, 0},
		{"one that the proxy hides, and then no connection", new(Handler), twice(func(_ http.ResponseWriter, r *http.Request) error {
			httptrace.ContextClientTrace(r.Context()).GetConn("example.com:443")
			return refuses(nil, nil)
		}), 3, 3, 0},
		{"one that the proxy hides, and then an answer", new(Handler), twice(serves), 1, 1, 60},
		{"an answer", new(Handler), serves, 1, 0, 60},
		{"a stream that breaks, and one that the proxy hides", new(Handler), twice(breaks(delta)), 1, 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &script{steps: steps(tt.step)}
				r, f := request(t.Context(), chatBody), new(fares)
				h := newHandler(t, tt.h)
				h.meter.Call(r).Price(f)
				res := do(h, up.serve, r)
				if up.calls != tt.calls {
					t.Errorf("%d calls, error %v", up.calls, res.err)
				}
				if want := tt.tokens + tt.times*expected; res.settled != 1 || res.total() != want {
					t.Errorf("settled %d times, %d tokens; want %d", res.settled, res.total(), want)
				}
				want := tt.times
				if tt.tokens > 0 {
					want++
				}
				if int64(res.outcome.Cost) != want {
					t.Errorf("cost %d, want %d", res.outcome.Cost, want)
				}
				if tt.times > 0 && (res.outcome.Source != meter.SourceEstimated || res.outcome.CostStatus != meter.CostEstimated) {
					t.Errorf("figures are %s, cost is %s", res.outcome.Source, res.outcome.CostStatus)
				}
			})
		})
	}
}

func TestAClientThatGoesIsChargedForWhatWasSent(t *testing.T) {
	const expected = 1032
	for _, tt := range []struct {
		name  string
		steps func(leave func()) []caddyhttp.HandlerFunc
		times int64
	}{
		{"while it waits for the answer", func(leave func()) []caddyhttp.HandlerFunc {
			return steps(func(w http.ResponseWriter, r *http.Request) error {
				leave()
				return slow(w, r)
			})
		}, 1},
		{"while it waits for the second", func(leave func()) []caddyhttp.HandlerFunc {
			return steps(slow, func(w http.ResponseWriter, r *http.Request) error {
				leave()
				return slow(w, r)
			})
		}, 2},
		{"between two", func(leave func()) []caddyhttp.HandlerFunc {
			return steps(func(w http.ResponseWriter, r *http.Request) error {
				time.AfterFunc(time.Millisecond, leave)
				return slow(w, r)
			})
		}, 1},
		{"as the proxy notes itself", func(leave func()) []caddyhttp.HandlerFunc {
			return steps(func(w http.ResponseWriter, r *http.Request) error {
				sends(r)
				leave()
				w.WriteHeader(statusClientGone)
				return nil
			})
		}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				up := &script{steps: tt.steps(leave)}
				res := do(newHandler(t, &Handler{Attempts: 5}), up.serve, request(ctx, chatBody))
				if res.settled != 1 || res.total() != tt.times*expected {
					t.Errorf("settled %d times, %d tokens after %d attempts; want %d", res.settled, res.total(), up.calls, tt.times*expected)
				}
			})
		})
	}
}
