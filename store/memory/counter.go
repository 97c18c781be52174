package memory

import (
	"math"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// This file is the arithmetic of a counter: no locks, no clock, no allocation.
// Instants and lengths are Unix milliseconds. What calls hold is kept apart from
// what they used, for holds outlast windows; it is passed in where it matters.

// busy is the wait where only calls that are not settled stand in the way, and
// the shortest where waiting does not help.
const busy = 1000

// state is what has been used of one counter. The zero value is a counter that
// nothing has been charged to.
type state struct {
	// start of the window that used belongs to. It never goes back, even if the
	// clock does. Of a token bucket, the instant it was refilled last.
	start int64
	// used in that window. Of a token bucket, what is missing until it is full.
	// Negative after a grant.
	used int64
	// prev is what was used in the window before, of a rolling window. Of a token
	// bucket, what the last refill left over, in parts of the window's length.
	prev int64
}

// roll brings the state to now: windows that are over are left behind, buckets
// refilled. All other methods take a state that was rolled to the same instant.
func (s *state) roll(r *store.Rule, now int64) {
	switch r.Window.Kind() {
	case store.KindNone:
		*s = state{}
	case store.KindBucket:
		s.refill(r, now)
	default:
		start, _ := r.Window.Span(max(now, s.start))
		if start <= s.start {
			return
		}
		s.prev = 0
		if r.Window.Kind() == store.KindRolling && start-s.start == length(r) {
			s.prev = s.used
		}
		s.start, s.used = start, 0
	}
}

// refill moves a bucket towards full by what came back since the last time. A
// bucket fuller than full loses as fast, so that no grant stays for ever.
func (s *state) refill(r *store.Rule, now int64) {
	elapsed := now - s.start
	if elapsed <= 0 {
		return
	}
	s.start = now
	back, rest := mulAdd(elapsed, max(0, r.Refill), s.prev, length(r))
	if back >= abs(s.used) {
		s.used, s.prev = 0, 0
		return
	}
	s.prev = rest
	if s.used > 0 {
		s.used -= back
	} else {
		s.used += back
	}
}

// level is what is used at now.
func (s *state) level(r *store.Rule, now int64) int64 {
	if r.Window.Kind() != store.KindRolling || s.prev == 0 {
		return s.used
	}
	return add(s.used, share(s.prev, s.left(r, now), length(r)))
}

// left is the time until the current window ends, at most its length.
func (s *state) left(r *store.Rule, now int64) int64 {
	return s.start + length(r) - max(now, s.start)
}

// exceeds tells whether need is not free. held is what calls hold.
func (s *state) exceeds(r *store.Rule, now, limit, held, need int64) bool {
	return add(add(s.level(r, now), held), need) > limit
}

// charge uses an amount up, or grants it if negative.
func (s *state) charge(r *store.Rule, amount int64) {
	switch r.Window.Kind() {
	case store.KindNone:
		return
	case store.KindBucket:
		before := s.used
		s.used = add(s.used, amount)
		// The rest of a refill belongs to a debt or to a grant, not to both.
		if (before > 0) != (s.used > 0) || (before < 0) != (s.used < 0) {
			s.prev = 0
		}
	default:
		s.used = add(s.used, amount)
	}
}

// settle charges the actual amount of a call of which some was charged before,
// in the window that started at in. That is given back only where it still
// counts, and to a bucket only as far as it has not been refilled meanwhile.
func (s *state) settle(r *store.Rule, charged, in, actual int64) {
	if actual >= charged {
		s.charge(r, actual-charged)
		return
	}
	back := charged - actual
	switch kind := r.Window.Kind(); {
	case kind == store.KindBucket:
		s.charge(r, -min(back, max(0, s.used)))
	case in == s.start:
		s.charge(r, -back)
	case kind == store.KindRolling && in == s.start-length(r):
		s.prev = sub(s.prev, back)
	}
}

// chargedIn is the start of the window that a charge now belongs to, as settle
// takes it.
func (s *state) chargedIn(r *store.Rule) int64 {
	if edgeless(r) {
		return 0
	}
	return s.start
}

// window returns the window's start, and when nothing is used any more. Both are
// zero for counters without a window.
func (s *state) window(r *store.Rule, now int64) (start, reset int64) {
	switch r.Window.Kind() {
	case store.KindNone:
		return 0, 0
	case store.KindBucket:
		return now - length(r), max(now, s.refilled(r, abs(s.used)))
	case store.KindRolling:
		return now - length(r), s.decayed(r, now)
	default:
		_, end := r.Window.Span(s.start)
		return s.start, end
	}
}

// idle returns from when on the state says no more than the zero value.
func (s *state) idle(r *store.Rule, now int64) int64 {
	switch {
	case r.Window.Kind() == store.KindNone || s.used == 0 && (edgeless(r) || s.prev == 0):
		return 0
	case r.Window.Kind() == store.KindRolling && s.used == 0:
		return s.start + length(r)
	case r.Window.Kind() == store.KindRolling:
		return s.start + 2*length(r)
	default:
		_, end := s.window(r, now)
		return end
	}
}

// wait returns in how many milliseconds need is free if nothing else is charged
// and nothing held, at least one.
func (s *state) wait(r *store.Rule, now, limit, need int64) int64 {
	room := sub(limit, need)
	kind := r.Window.Kind()
	if kind == store.KindNone || s.level(r, now) <= room {
		return busy
	}
	_, at := s.window(r, now)
	switch {
	case kind == store.KindRolling:
		if t, ok := s.falls(r, now, room); ok {
			at = t
		}
	case kind == store.KindBucket && room >= 0:
		at = s.refilled(r, s.used-room)
	}
	if at <= now {
		return busy
	}
	return at - now
}

// refilled returns when a bucket has got an amount back.
func (s *state) refilled(r *store.Rule, amount int64) int64 {
	switch {
	case amount <= 0:
		return s.start
	case r.Refill <= 0:
		return math.MaxInt64
	}
	// That is where elapsed·refill + prev reaches amount·length.
	elapsed, rest := mulAdd(amount, length(r), 0, r.Refill)
	if rest > s.prev {
		elapsed = add(elapsed, 1)
	} else {
		elapsed -= (s.prev - rest) / r.Refill
	}
	return add(s.start, elapsed)
}

// decayed returns when nothing is used any more in a rolling window, and no grant
// left.
func (s *state) decayed(r *store.Rule, now int64) int64 {
	if s.used >= 0 && s.prev >= 0 {
		if at, ok := s.falls(r, now, 0); ok {
			return at
		}
	}
	return max(now, s.idle(r, now))
}

// falls returns the first instant from now on at which a rolling window's level
// is at most room. There is none if that is less than nothing used.
func (s *state) falls(r *store.Rule, now, room int64) (at int64, ok bool) {
	if s.level(r, now) <= room {
		return now, true
	}
	n, end := length(r), s.start+length(r)
	// Up to the end the previous window decays, after it the current one. What
	// was granted decays too, which only adds to the level.
	switch {
	case s.used <= room:
		return end - covered(s.prev, sub(room, s.used), n), true
	case room >= 0:
		return end + n - covered(s.used, room, n), true
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
