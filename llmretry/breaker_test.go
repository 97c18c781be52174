package llmretry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
)

// from is a request of an application.
func from(t *testing.T, app string) *http.Request {
	r := request(t.Context(), chatBody)
	caddyhttp.SetVar(r.Context(), meter.VarApplication, app)
	return r
}

// broken is a handler whose breaker opens after three failures a minute, for ten seconds.
func broken(t *testing.T, fallbacks ...*Fallback) *Handler {
	return newHandler(t, &Handler{Attempts: 1, Fallbacks: fallbacks, Breaker: &Breaker{
		Failures: 3, Per: caddy.Duration(time.Minute), Open: caddy.Duration(10 * time.Second),
	}})
}

func TestConsumersBreakerStopsItsHammeringAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := broken(t)
		up := &script{steps: steps(replies(429, busy))}
		for range 3 {
			if res := do(h, up.serve, from(t, "a")); res.Code != 429 || res.Body.String() != busy {
				t.Fatalf("got %d %s", res.Code, res.Body)
			}
		}
		time.Sleep(4 * time.Second)
		res := do(h, up.serve, from(t, "a"))
		if res.Code != 429 || !strings.Contains(res.Body.String(), "retry_breaker_open") || res.Header().Get("Retry-After") != "6" {
			t.Errorf("got %d %s after %q", res.Code, res.Body, res.Header().Get("Retry-After"))
		}
		if up.calls != 3 || res.cancels != 1 || res.settled != 0 {
			t.Errorf("%d calls; the last was cancelled %d times, settled %d times", up.calls, res.cancels, res.settled)
		}
		up.steps = steps(replies(200, sixty))
		if res := do(h, up.serve, from(t, "b")); res.Code != 200 {
			t.Errorf("another consumer gets %d", res.Code)
		}

		time.Sleep(6 * time.Second)
		if res := do(h, up.serve, from(t, "a")); res.Code != 200 {
			t.Errorf("the trial gets %d", res.Code)
		}
		if res := do(h, up.serve, from(t, "a")); res.Code != 200 {
			t.Errorf("after the trial: %d", res.Code)
		}
	})
}

func TestErrorUnder200CountsAsWhatItStandsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := broken(t)
		up := &script{steps: steps(replies(200, `{"error":{"code":429}}`))}
		for range 3 {
			do(h, up.serve, from(t, "a"))
		}
		if res := do(h, up.serve, from(t, "a")); res.Code != 429 || up.calls != 3 {
			t.Errorf("got %d, the upstream %d calls", res.Code, up.calls)
		}
	})
}

func TestATrialThatFailsOpensTheBreakerAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := broken(t)
		up := &script{steps: steps(replies(400, "no"))}
		for range 3 {
			do(h, up.serve, from(t, "a"))
		}
		time.Sleep(10*time.Second + 1)
		if res := do(h, up.serve, from(t, "a")); res.Code != 400 {
			t.Errorf("the trial gets %d", res.Code)
		}
		if res := do(h, up.serve, from(t, "a")); res.Code != 429 || up.calls != 4 {
			t.Errorf("got %d, the upstream %d calls", res.Code, up.calls)
		}
	})
}

func TestOneTrialAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := broken(t)
		fails := replies(429, busy)
		up := &script{steps: steps(fails)}
		for range 3 {
			do(h, up.serve, from(t, "a"))
		}
		up.steps = steps(func(w http.ResponseWriter, r *http.Request) error {
			if res := do(h, replies(200, sixty), from(t, "a")); res.Code != 429 {
				t.Errorf("beside a trial: %d", res.Code)
			}
			if err := replies(200, "{")(w, r); err != nil {
				return err
			}
			// the trial is over once an answer has begun, however long it takes
			if _, err := w.Write([]byte(`"choices":[`)); err != nil {
				return err
			}
			if res := do(h, replies(200, sixty), from(t, "a")); res.Code != 200 {
				t.Errorf("beside the answer to a trial: %d", res.Code)
			}
			return nil
		})
		time.Sleep(10*time.Second + 1)
		do(h, up.serve, from(t, "a"))
	})
}

func TestFailuresAreForgottenInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := broken(t)
		up := &script{steps: steps(replies(429, busy))}
		for range 10 {
			if res := do(h, up.serve, from(t, "a")); res.Body.String() != busy {
				t.Fatalf("got %d %s", res.Code, res.Body)
			}
			time.Sleep(35 * time.Second)
		}
	})
}

func TestUpstreamsBreaker(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails caddyhttp.HandlerFunc
		opens bool
	}{
		{"5xx", replies(503, "down"), true},
		{"no connection", refuses, true},
		{"an error under 200", replies(200, `{"error":{"code":503}}`), true},
		{"a 429 under 200 is the consumer's", replies(200, `{"error":{"code":429}}`), false},
		{"429 is the consumer's", replies(429, busy), false},
		{"400 is the consumer's", replies(400, "no"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := broken(t)
				up := &script{steps: steps(tt.fails)}
				for i := range 3 {
					do(h, up.serve, from(t, fmt.Sprint(i)))
				}
				up.steps = steps(replies(200, sixty))
				res := do(h, up.serve, from(t, "other"))
				if opened := res.Code == 503 && strings.Contains(res.Body.String(), "retry_breaker_open"); opened != tt.opens || !opened && res.Code != 200 {
					t.Errorf("got %d %s", res.Code, res.Body)
				}
				if tt.opens && (res.cancels != 1 || res.Header().Get("Retry-After") != "10") {
					t.Errorf("cancelled %d times, Retry-After %q", res.cancels, res.Header().Get("Retry-After"))
				}
			})
		})
	}
}

func TestFallbackServesWhileTheBreakerIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, spare := &script{steps: steps(replies(503, "down"))}, &script{steps: steps(replies(200, sixty))}
		h := broken(t, &Fallback{Routes: make(caddyhttp.RouteList, 1)})
		detour(h, 1, spare)
		for range 10 {
			if res := do(h, up.serve, from(t, "a")); res.Code != 200 {
				t.Fatalf("got %d %s", res.Code, res.Body)
			}
		}
		if up.calls != 3 || spare.calls != 10 {
			t.Errorf("%d and %d calls", up.calls, spare.calls)
		}
	})
}

func TestConsumersAreBounded(t *testing.T) {
	var cs consumers
	now := time.Now()
	first := cs.get("0", now)
	for i := range 2 * mostConsumers {
		cs.get(fmt.Sprint(i), now)
		if cs.get("0", now) != first {
			t.Fatal("one that keeps calling is forgotten")
		}
	}
	if len(cs.byName) != mostConsumers || cs.recent.Len() != mostConsumers {
		t.Errorf("%d and %d are known", len(cs.byName), cs.recent.Len())
	}
}

func TestBreakersShowInMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := changes(t)
		h := broken(t)
		up := &script{steps: steps(replies(503, "down"))}
		for i := range 3 {
			do(h, up.serve, from(t, fmt.Sprint(i)))
		}
		limited := &script{steps: steps(replies(429, busy))}
		one := broken(t)
		for range 3 {
			do(one, limited.serve, from(t, "a"))
		}
		time.Sleep(10*time.Second + 1)
		up.steps = steps(replies(200, sixty))
		do(h, up.serve, from(t, "b"))
		after := changes(t)
		for name, want := range map[string]float64{
			"route open": 1, "route half_open": 1, "route closed": 1, "consumer open": 1, "consumer half_open": 0,
		} {
			if got := after[name] - before[name]; got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
		}
	})
}

// changes are the metric of breakers, by breaker and state.
func changes(t *testing.T) map[string]float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	if err := metrics.Process.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "llm_breaker_changes_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			all[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return all
}

func TestWhatTheMeterAsksForIsNotTheConsumersFailure(t *testing.T) {
	const stream = `{"model":"gpt-5","stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	for _, tt := range []struct {
		name   string
		first  string
		status []int
	}{
		{"due to the asking", `{"error":{"message":"unknown parameter: stream_options"}}`, []int{200, 200}},
		{"its own", `{"error":{"message":"no such model"}}`, []int{400, 429}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHandler(t, &Handler{Breaker: &Breaker{Failures: 1, Per: caddy.Duration(time.Minute)}})
				up := &script{steps: steps(replies(400, tt.first), streams(delta))}
				for i, want := range tt.status {
					r := request(t.Context(), stream)
					caddyhttp.SetVar(r.Context(), meter.VarApplication, "a")
					if res := do(h, up.serve, r); res.Code != want {
						t.Errorf("call %d gets %d %s, want %d", i, res.Code, res.Body, want)
					}
				}
			})
		})
	}
}
