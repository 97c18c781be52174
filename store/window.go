package store

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Kind tells how a window moves on.
type Kind uint8

const (
	// KindNone never starts again: only what is held counts.
	KindNone Kind = iota
	// KindCalendar starts again with the minute, hour, day, week or month of a
	// time zone.
	KindCalendar
	// KindFixed starts again every so many milliseconds, counted from the Unix
	// epoch.
	KindFixed
	// KindRolling slides: what was used in the previous of two fixed windows
	// counts by the share of it that the sliding window still covers.
	KindRolling
	// KindBucket is a token bucket, which gets back a rule's Refill evenly in the
	// length of the window.
	KindBucket
)

// Bounds of the length of a window that is not of the calendar.
const (
	minLength = time.Second
	maxLength = 3660 * 24 * time.Hour
)

// Window says when a counter starts again. It does not change once it is made,
// and is safe for use by many goroutines.
//
// Instants are Unix milliseconds. They are exact for some 30,000 years around
// the epoch.
type Window struct {
	kind   Kind
	unit   unit
	loc    *time.Location
	length int64 // milliseconds

	// last is the calendar window that was asked for last, since the time of day
	// in a zone takes far longer to find than to compare two numbers.
	last atomic.Pointer[span]
	// around is the span that was asked for last with its neighbours.
	around atomic.Pointer[[4]int64]
}

// span is the time from start up to but without end.
type span struct{ start, end int64 }

// Calendar returns a window that follows the wall clock of loc, UTC if nil. The
// unit is minute, hour, day, week (from Monday) or month.
func Calendar(unit string, loc *time.Location) (*Window, error) {
	u, ok := units[unit]
	if !ok {
		return nil, fmt.Errorf("calendar window %q must be minute, hour, day, week or month", unit)
	}
	if loc == nil {
		loc = time.UTC
	}
	return &Window{kind: KindCalendar, unit: u, loc: loc, length: u.length().Milliseconds()}, nil
}

// Fixed returns windows of the length d that lie end to end from the Unix epoch
// on. d is whole milliseconds, at least a second and at most 3660 days.
func Fixed(d time.Duration) (*Window, error) { return withLength(KindFixed, d) }

// Rolling returns a window that always covers the last d. The bounds of d are
// those of Fixed.
func Rolling(d time.Duration) (*Window, error) { return withLength(KindRolling, d) }

// Bucket returns the window of a token bucket that gets back a rule's Refill in
// d. The bounds of d are those of Fixed.
func Bucket(d time.Duration) (*Window, error) { return withLength(KindBucket, d) }

// None returns the window of a counter of which only the holds count, such as
// that of the calls in flight.
func None() *Window { return &Window{} }

// WindowOf returns the window of a kind, for who has written one down: unit and zone
// are its String and the name of its Location and count for KindCalendar, and length is
// its Length in milliseconds and counts for KindFixed, KindRolling and KindBucket.
func WindowOf(k Kind, unit, zone string, length int64) (*Window, error) {
	if length < 0 || length > math.MaxInt64/int64(time.Millisecond) {
		return nil, fmt.Errorf("window of %d ms cannot be", length)
	}
	switch k {
	case KindNone:
		return None(), nil
	case KindCalendar:
		loc, err := time.LoadLocation(zone)
		if err != nil {
			return nil, fmt.Errorf("reading the time zone %q: %w", zone, err)
		}
		return Calendar(unit, loc)
	case KindFixed, KindRolling, KindBucket:
		return withLength(k, time.Duration(length)*time.Millisecond)
	default:
		return nil, fmt.Errorf("window is of no kind: %d", k)
	}
}

func withLength(k Kind, d time.Duration) (*Window, error) {
	switch {
	case d < minLength:
		return nil, fmt.Errorf("window %q must be at least %s", d, minLength)
	case d > maxLength:
		return nil, fmt.Errorf("window %q must be at most %d days", d, maxLength/(24*time.Hour))
	case d%time.Millisecond != 0:
		return nil, fmt.Errorf("window %q must be whole milliseconds", d)
	}
	return &Window{kind: k, length: d.Milliseconds()}, nil
}

// Kind tells how the window moves on.
func (w *Window) Kind() Kind { return w.kind }

// Length is how long the window is, zero for KindNone. For KindCalendar it is
// the usual length, which a change of clocks can shorten or extend, and 31 days
// for a month.
func (w *Window) Length() time.Duration { return time.Duration(w.length) * time.Millisecond }

// Location is the time zone of KindCalendar, nil for others.
func (w *Window) Location() *time.Location { return w.loc }

// String names the window, such as "day", "1h0m0s" or "rolling 1h0m0s".
func (w *Window) String() string {
	switch w.kind {
	case KindCalendar:
		return w.unit.String()
	case KindFixed:
		return w.Length().String()
	case KindRolling:
		return "rolling " + w.Length().String()
	case KindBucket:
		return "bucket " + w.Length().String()
	default:
		return "none"
	}
}

// Span returns the window that now lies in, from start up to but without end.
// Windows tile time: the end of one is the start of the next, and none is empty.
// For KindRolling these are the fixed windows it is made of. KindBucket and
// KindNone have a single one, from 0 to math.MaxInt64.
func (w *Window) Span(now int64) (start, end int64) {
	switch w.kind {
	case KindFixed, KindRolling:
		start = floor(now, w.length)
		return start, start + w.length
	case KindCalendar:
		if s := w.last.Load(); s != nil && s.start <= now && now < s.end {
			return s.start, s.end
		}
		start, end = w.calendarSpan(now)
		w.last.Store(&span{start, end})
		return start, end
	default:
		return 0, math.MaxInt64
	}
}

// Edges returns the start of the window before the one that now lies in, the
// start and the end of this, and the end of the next. It serves stores that
// decide by another clock, which may be a little before or behind. KindBucket
// and KindNone have the edges of Span only.
func (w *Window) Edges(now int64) (prev, start, end, next int64) {
	if e := w.around.Load(); e != nil && e[1] <= now && now < e[2] {
		return e[0], e[1], e[2], e[3]
	}
	start, end = w.Span(now)
	switch w.kind {
	case KindFixed, KindRolling:
		return start - w.length, start, end, end + w.length
	case KindCalendar:
		// Not by Span, which would forget the current window for these two.
		prev, _ = w.calendarSpan(start - 1)
		_, next = w.calendarSpan(end)
		w.around.Store(&[4]int64{prev, start, end, next})
		return prev, start, end, next
	default:
		return start, start, end, end
	}
}

// floor returns the largest multiple of step that is not above n.
func floor(n, step int64) int64 {
	m := n % step
	if m < 0 {
		m += step
	}
	return n - m
}
