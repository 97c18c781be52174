package counter

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func must(w *store.Window, err error) *store.Window {
	if err != nil {
		panic(err)
	}
	return w
}

// drawRule returns a rule of any kind of window, some seconds long.
func drawRule(t *rapid.T) *store.Rule {
	d := time.Duration(rapid.Int64Range(1000, 20_000).Draw(t, "length")) * time.Millisecond
	switch rapid.SampledFrom([]string{"fixed", "rolling", "bucket", "minute", "none"}).Draw(t, "window") {
	case "fixed":
		return &store.Rule{ID: "fixed", Window: must(store.Fixed(d))}
	case "rolling":
		return &store.Rule{ID: "rolling", Window: must(store.Rolling(d))}
	case "bucket":
		return &store.Rule{ID: "bucket", Window: must(store.Bucket(d)), Refill: rapid.Int64Range(0, 1_000_000).Draw(t, "refill")}
	case "minute":
		return &store.Rule{ID: "minute", Window: must(store.Calendar("minute", time.UTC))}
	default:
		return &store.Rule{ID: "none", Window: store.None()}
	}
}

// drawState returns a state after a few changes, and the instant of the last.
func drawState(t *rapid.T, r *store.Rule) (s State, now int64) {
	now = 1_700_000_000_000
	for range rapid.IntRange(1, 6).Draw(t, "changes") {
		now += rapid.Int64Range(-5_000, 25_000).Draw(t, "step")
		s.Roll(r, now)
		s.Charge(r, rapid.Int64Range(-1_000_000, 2_000_000).Draw(t, "amount"))
	}
	return s, now
}

func TestRollingOftenIsRollingOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		s, now := drawState(t, r)
		often := s
		end := now + rapid.Int64Range(0, 60_000).Draw(t, "time")
		for at := now; at < end; at += rapid.Int64Range(1, 20_000).Draw(t, "step") {
			often.Roll(r, at)
		}
		often.Roll(r, end)
		s.Roll(r, end)
		if s.Level(r, end) != often.Level(r, end) || s.Start != often.Start {
			t.Errorf("rolled at once: %+v, in steps: %+v", s, often)
		}
	})
}

// A bucket of dollars gets back what its rate says, to the picodollar, however fast: half
// of an hour's amount in half an hour.
func TestBucketsOfDollarsRefillAtTheirRate(t *testing.T) {
	const dollar = 1_000_000_000_000 // picodollars
	window, err := store.Bucket(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, dollars := range []int64{1, 1000, 2000, 3600, 3601, 86_400, 86_401, 1_000_000} {
		r := &store.Rule{ID: "usd per hour", Window: window, Refill: dollars * dollar}
		var s State
		begin := int64(1_700_000_000_000)
		s.Roll(r, begin)
		s.Charge(r, dollars*dollar)
		for _, tc := range []struct{ after, used int64 }{
			{0, dollars * dollar}, {1, dollars*dollar - dollars*dollar/3_600_000}, {1_800_000, dollars * dollar / 2}, {3_600_000, 0},
		} {
			at := s
			at.Roll(r, begin+tc.after)
			if got := at.Level(r, begin+tc.after); got != tc.used {
				t.Errorf("$%d an hour: %d used after %d ms, want %d", dollars, got, tc.after, tc.used)
			}
		}
	}
}

func TestWindowsNeverGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		s, now := drawState(t, r)
		before := s
		s.Roll(r, now-rapid.Int64Range(0, 1_000_000).Draw(t, "back"))
		if s != before {
			t.Errorf("the state was %+v, and is %+v after a step back", before, s)
		}
	})
}

func TestIdleStatesAreBlank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		s, now := drawState(t, r)
		at := s.Idle(r, now)
		if at == math.MaxInt64 {
			if r.Window.Kind() != store.KindBucket || r.Refill != 0 {
				t.Fatalf("never idle: %+v", s)
			}
			return
		}
		if at > now {
			early := s
			early.Roll(r, at-1)
			if early.Used == 0 && early.Prev == 0 {
				t.Errorf("idle at %d, but blank before: %+v", at, s)
			}
		}
		// Where the clock was put back, to before a window began, a blank state charges the
		// one before: the state has nothing in either.
		at = max(at, now, s.Start)
		var blank State
		blank.Roll(r, at)
		s.Roll(r, at)
		if got := s.Level(r, at); got != 0 {
			t.Errorf("idle at %d, but %d used", at, got)
		}
		// Whatever happens later, the two do not differ.
		later := at + rapid.Int64Range(0, 60_000).Draw(t, "time")
		for _, c := range []*State{&s, &blank} {
			c.Charge(r, 1000)
			c.Roll(r, later)
		}
		if s.Level(r, later) != blank.Level(r, later) {
			t.Errorf("once idle %+v, never used %+v", s, blank)
		}
	})
}

func TestAmountsAtTheEndsDoNotWrap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRule(t)
		var s State
		now := int64(1_700_000_000_000)
		for range 6 {
			now += rapid.Int64Range(0, 25_000).Draw(t, "step")
			s.Roll(r, now)
			before := s.Level(r, now)
			amount := anyInt64().Draw(t, "amount")
			s.Charge(r, amount)
			if after := s.Level(r, now); amount > 0 && after < before || amount < 0 && after > before {
				t.Fatalf("%d used, and %d after a charge of %d", before, after, amount)
			}
			limit, need := rapid.Int64Min(0).Draw(t, "limit"), rapid.Int64Min(1).Draw(t, "need")
			if s.Exceeds(r, now, limit, 0, need) {
				if wait := s.Wait(r, now, limit, need); wait < 1 {
					t.Fatalf("%+v: wait of %d", s, wait)
				}
			}
			if start, reset := s.Window(r, now); start > now || reset != 0 && reset < now {
				t.Fatalf("%+v: window from %d to %d at %d", s, start, reset, now)
			}
		}
	})
}
