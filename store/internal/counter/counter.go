// Package counter is the arithmetic of one counter, which all stores have in
// common: no locks, no clock, no allocation. Instants and lengths are Unix
// milliseconds. What calls hold is kept apart from what they used, for holds
// outlast windows; it is passed in where it matters.
package counter

import (
	"math"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// busy is the wait where only calls that are not settled stand in the way, and
// the shortest where waiting does not help.
const busy = 1000

// State is what has been used of one counter. The zero value is a counter that
// nothing has been charged to.
type State struct {
	// Start of the window that Used belongs to. It never goes back, even if the
	// clock does. Of a token bucket, the instant it was refilled last.
	Start int64
	// Used in that window. Of a token bucket, what is missing until it is full.
	// Negative after a grant.
	Used int64
	// Prev is what was used in the window before, of a rolling window. Of a token
	// bucket, what the last refill left over, in parts of the window's length.
	Prev int64
}

// Roll brings the state to now: windows that are over are left behind, buckets
// refilled. All other methods take a state that was rolled to the same instant.
func (s *State) Roll(r *store.Rule, now int64) {
	switch r.Window.Kind() {
	case store.KindNone:
		*s = State{}
	case store.KindBucket:
		s.refill(r, now)
	default:
		start, _ := r.Window.Span(max(now, s.Start))
		if start <= s.Start {
			return
		}
		s.Prev = 0
		if r.Window.Kind() == store.KindRolling && start-s.Start == length(r) {
			s.Prev = s.Used
		}
		s.Start, s.Used = start, 0
	}
}

// refill moves a bucket towards full by what came back since the last time. A
// bucket fuller than full loses as fast, so that no grant stays for ever.
func (s *State) refill(r *store.Rule, now int64) {
	elapsed := now - s.Start
	if elapsed <= 0 {
		return
	}
	s.Start = now
	back, rest := mulAdd(elapsed, max(0, r.Refill), s.Prev, length(r))
	if back >= abs(s.Used) {
		s.Used, s.Prev = 0, 0
		return
	}
	s.Prev = rest
	if s.Used > 0 {
		s.Used -= back
	} else {
		s.Used += back
	}
}

// Level is what is used at now.
func (s *State) Level(r *store.Rule, now int64) int64 {
	if r.Window.Kind() != store.KindRolling || s.Prev == 0 {
		return s.Used
	}
	return Add(s.Used, share(s.Prev, s.left(r, now), length(r)))
}

// left is the time until the current window ends, at most its length.
func (s *State) left(r *store.Rule, now int64) int64 {
	return s.Start + length(r) - max(now, s.Start)
}

// Exceeds tells whether need is not free. held is what calls hold.
func (s *State) Exceeds(r *store.Rule, now, limit, held, need int64) bool {
	return Add(Add(s.Level(r, now), held), need) > limit
}

// Charge uses an amount up, or grants it if negative.
func (s *State) Charge(r *store.Rule, amount int64) {
	switch r.Window.Kind() {
	case store.KindNone:
		return
	case store.KindBucket:
		before := s.Used
		s.Used = Add(s.Used, amount)
		// The rest of a refill belongs to a debt or to a grant, not to both.
		if (before > 0) != (s.Used > 0) || (before < 0) != (s.Used < 0) {
			s.Prev = 0
		}
	default:
		s.Used = Add(s.Used, amount)
	}
}

// Settle charges the actual amount of a call of which some was charged before,
// in the window that started at in. That is given back only where it still
// counts, and to a bucket only as far as it has not been refilled meanwhile.
func (s *State) Settle(r *store.Rule, charged, in, actual int64) {
	if actual >= charged {
		s.Charge(r, actual-charged)
		return
	}
	back := charged - actual
	switch kind := r.Window.Kind(); {
	case kind == store.KindBucket:
		s.Charge(r, -min(back, max(0, s.Used)))
	case in == s.Start:
		s.Charge(r, -back)
	case kind == store.KindRolling && in == s.Start-length(r):
		s.Prev = Sub(s.Prev, back)
	}
}

// ChargedIn is the start of the window that a charge now belongs to, as settle
// takes it.
func (s *State) ChargedIn(r *store.Rule) int64 {
	if edgeless(r) {
		return 0
	}
	return s.Start
}

// Window returns the window's start, and when nothing is used any more. Both are
// zero for counters without a window.
func (s *State) Window(r *store.Rule, now int64) (start, reset int64) {
	switch r.Window.Kind() {
	case store.KindNone:
		return 0, 0
	case store.KindBucket:
		return now - length(r), max(now, s.refilled(r, abs(s.Used)))
	case store.KindRolling:
		return now - length(r), s.decayed(r, now)
	default:
		_, end := r.Window.Span(s.Start)
		return s.Start, end
	}
}

// Idle returns from when on the state says no more than the zero value.
func (s *State) Idle(r *store.Rule, now int64) int64 {
	switch {
	case r.Window.Kind() == store.KindNone || s.Used == 0 && (edgeless(r) || s.Prev == 0):
		return 0
	case r.Window.Kind() == store.KindRolling && s.Used == 0:
		return s.Start + length(r)
	case r.Window.Kind() == store.KindRolling:
		return s.Start + 2*length(r)
	default:
		_, end := s.Window(r, now)
		return end
	}
}

// Wait returns in how many milliseconds need is free if nothing else is charged
// and nothing held, at least one.
func (s *State) Wait(r *store.Rule, now, limit, need int64) int64 {
	room := Sub(limit, need)
	kind := r.Window.Kind()
	if kind == store.KindNone || s.Level(r, now) <= room {
		return busy
	}
	_, at := s.Window(r, now)
	switch {
	case kind == store.KindRolling:
		if t, ok := s.falls(r, now, room); ok {
			at = t
		}
	case kind == store.KindBucket && room >= 0:
		at = s.refilled(r, s.Used-room)
	}
	if at <= now {
		return busy
	}
	return at - now
}

// refilled returns when a bucket has got an amount back.
func (s *State) refilled(r *store.Rule, amount int64) int64 {
	switch {
	case amount <= 0:
		return s.Start
	case r.Refill <= 0:
		return math.MaxInt64
	}
	// That is where elapsed·refill + prev reaches amount·length.
	elapsed, rest := mulAdd(amount, length(r), 0, r.Refill)
	if rest > s.Prev {
		elapsed = Add(elapsed, 1)
	} else {
		elapsed -= (s.Prev - rest) / r.Refill
	}
	return Add(s.Start, elapsed)
}

// decayed returns when nothing is used any more in a rolling window, and no grant
// left.
func (s *State) decayed(r *store.Rule, now int64) int64 {
	if s.Used >= 0 && s.Prev >= 0 {
		if at, ok := s.falls(r, now, 0); ok {
			return at
		}
	}
	return max(now, s.Idle(r, now))
}

// falls returns the first instant from now on at which a rolling window's level
// is at most room. There is none if that is less than nothing used.
func (s *State) falls(r *store.Rule, now, room int64) (at int64, ok bool) {
	if s.Level(r, now) <= room {
		return now, true
	}
	n, end := length(r), s.Start+length(r)
	// Up to the end the previous window decays, after it the current one. What
	// was granted decays too, which only adds to the level.
	switch {
	case s.Used <= room:
		return end - covered(s.Prev, Sub(room, s.Used), n), true
	case room >= 0:
		return end + n - covered(s.Used, room, n), true
	default:
		return 0, false
	}
}

// covered returns the longest part of a window of length n, in which an amount
// above room was used, that a sliding window may still cover so that no more than
// room counts.
func covered(amount, room, n int64) int64 {
	// amount·part < (room+1)·n
	q, rest := mulAdd(room+1, n, 0, amount)
	if rest == 0 {
		q--
	}
	return q
}

// edgeless tells whether charges to the counter belong to no window of their own.
func edgeless(r *store.Rule) bool {
	k := r.Window.Kind()
	return k == store.KindNone || k == store.KindBucket
}

func length(r *store.Rule) int64 { return int64(r.Window.Length() / time.Millisecond) }
