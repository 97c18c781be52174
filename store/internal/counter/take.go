package counter

import (
	"math"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Check fills the result of a take with the state as it is, and whether the take
// exceeds the limit. The state was rolled to now; held is what calls hold.
func Check(s State, t *store.Take, held, now int64, res *store.Result) {
	*res = store.Result{Limit: t.Limit, Held: held}
	Fill(res, &s, t.Rule, now)
	counted := held
	if t.IgnoreHeld {
		counted = 0
	}
	need := max(1, t.Need)
	if s.Exceeds(t.Rule, now, t.Limit, counted, need) {
		res.Exceeded = true
		res.RetryAfter = milliseconds(s.Wait(t.Rule, now, t.Limit, need))
	}
}

// CheckOwn is Check by a limit of the entity's own.
func CheckOwn(s State, t *store.Take, limit, held, now int64, res *store.Result) {
	own := *t
	own.Limit = limit
	Check(s, &own, held, now, res)
	res.Overridden = true
}

// Amounts returns what an admitted take charges, and what it holds, given its
// result as Check left it.
func Amounts(t *store.Take, res *store.Result) (charge, got int64) {
	charge, got = max(0, t.Charge), max(0, t.Hold)
	if t.HoldMost > got {
		free := Sub(Sub(res.Limit, res.Used), charge)
		if !t.IgnoreHeld {
			free = Sub(free, res.Held)
		}
		got = max(got, min(free, t.HoldMost))
	}
	return charge, got
}

// Fill puts what is used, and the window, into a result.
func Fill(res *store.Result, s *State, r *store.Rule, now int64) {
	res.Used = s.Level(r, now)
	if r.Window.Kind() == store.KindNone {
		return
	}
	start, reset := s.Window(r, now)
	res.WindowStart, res.ResetAt = time.UnixMilli(start), time.UnixMilli(reset)
}

// CeilMilli is a duration in milliseconds, rounded up.
func CeilMilli(d time.Duration) int64 {
	n := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		n++
	}
	return n
}

// milliseconds is n of them, or the most that a duration has, some 292 years.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
