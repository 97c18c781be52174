package memory

import (
	"math"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// peek returns the state of the rule's counter rolled to now, and what is held
// of it, without making one. The entity may be nil.
func (e *entity) peek(r *store.Rule, guess int, now int64) (c state, held int64) {
	if e != nil {
		if i := e.find(r, guess); i >= 0 {
			c, held = e.counters[i].state, e.held(i)
		}
	}
	c.roll(r, now)
	return c, held
}

// check fills the result of a take with the state as it is, and whether the take
// exceeds the limit.
func check(c state, t *store.Take, held, now int64, res *store.Result) {
	*res = store.Result{Limit: t.Limit, Held: held}
	fill(res, &c, t.Rule, now)
	counted := held
	if t.IgnoreHeld {
		counted = 0
	}
	need := max(1, t.Need)
	if c.exceeds(t.Rule, now, t.Limit, counted, need) {
		res.Exceeded = true
		res.RetryAfter = milliseconds(c.wait(t.Rule, now, t.Limit, need))
	}
}

// commit takes what was found to be free, or is taken all the same in shadow.
func commit(e *entity, t *store.Take, i int, now int64, res *store.Result, l *store.Line) {
	l.Rule = t.Rule
	charge, got := max(0, t.Charge), max(0, t.Hold)
	if t.HoldMost > got {
		free := sub(sub(t.Limit, res.Used), charge)
		if !t.IgnoreHeld {
			free = sub(free, res.Held)
		}
		got = max(got, min(free, t.HoldMost))
	}
	if charge == 0 && got == 0 {
		return
	}
	j := e.counter(t.Rule, i, now)
	c := &e.counters[j]
	if charge > 0 {
		c.charge(t.Rule, charge)
		l.Charged, l.ChargedIn = charge, c.chargedIn(t.Rule)
	}
	if got > 0 {
		e.hold(j, got)
		l.Held, res.Got = got, got
	}
	res.Held = e.held(j)
	fill(res, &c.state, t.Rule, now)
}

// fill puts what is used, and the window, into a result.
func fill(res *store.Result, c *state, r *store.Rule, now int64) {
	res.Used = c.level(r, now)
	if r.Window.Kind() == store.KindNone {
		return
	}
	start, reset := c.window(r, now)
	res.WindowStart, res.ResetAt = time.UnixMilli(start), time.UnixMilli(reset)
}

func newTicket(r *store.Reservation, hash uint64, now int64) *ticket {
	t := &ticket{hash: hash, place: -1, deadline: now + ceilMilli(r.Lease)}
	t.Entity = r.Entity
	t.Deadline = time.UnixMilli(t.deadline)
	t.Private = t
	if n := len(r.Takes); n <= len(t.few) {
		t.Lines = t.few[:n:n]
	} else {
		t.Lines = make([]store.Line, n)
	}
	return t
}

// ceilMilli is a duration in milliseconds, rounded up.
func ceilMilli(d time.Duration) int64 {
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
