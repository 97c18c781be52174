package load

import (
	"math"
	"slices"
	"time"
)

// Result compares server a with server b.
type Result struct {
	A, B Side
	// CPU, P50, P99 and Rate are a's figures by b's.
	CPU, P50, P99, Rate Ratio
	// Added is the processor time that a takes more than b for a call, and AddedEvent for
	// an event of a stream.
	Added, AddedEvent time.Duration
}

// Side is what was measured of one server.
type Side struct {
	Calls, Events, Reads int64
	Took, CPU            time.Duration
}

// PerCall is the processor time of a call.
func (s *Side) PerCall() time.Duration { return s.CPU / time.Duration(max(s.Calls, 1)) }

// PerEvent is the processor time of an event; 0 without events.
func (s *Side) PerEvent() time.Duration {
	if s.Events == 0 {
		return 0
	}
	return s.CPU / time.Duration(s.Events)
}

// Ratio is the ratio of neighbouring slices: its median, and what 80 of 100 pairs lie
// between. Absolute figures move with all that the machine does, such ratios much less.
type Ratio struct{ Median, Low, High float64 }

func newResult(a, b []slice) *Result {
	r := &Result{A: sideOf(a), B: sideOf(b)}
	r.Added = r.A.PerCall() - r.B.PerCall()
	r.AddedEvent = r.A.PerEvent() - r.B.PerEvent()
	r.CPU = ratio(a, b, func(s *slice) float64 { return float64(s.cpu) / float64(s.calls) })
	r.P50 = ratio(a, b, func(s *slice) float64 { return quantile(s.times, 0.5) })
	r.P99 = ratio(a, b, func(s *slice) float64 { return quantile(s.times, 0.99) })
	r.Rate = ratio(a, b, func(s *slice) float64 { return float64(s.calls) / float64(s.took) })
	return r
}

func sideOf(all []slice) (s Side) {
	for i := range all {
		s.Calls += all[i].calls
		s.Events += all[i].events
		s.Reads += all[i].reads
		s.Took += all[i].took
		s.CPU += all[i].cpu
	}
	return s
}

func ratio(a, b []slice, of func(*slice) float64) Ratio {
	var all []float64
	for i := range min(len(a), len(b)) {
		if x, y := of(&a[i]), of(&b[i]); x > 0 && y > 0 {
			all = append(all, x/y)
		}
	}
	if len(all) == 0 {
		return Ratio{math.NaN(), math.NaN(), math.NaN()}
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(math.Round(q*float64(len(all)-1)))] }
	middle := (all[(len(all)-1)/2] + all[len(all)/2]) / 2
	return Ratio{middle, at(0.1), at(0.9)}
}

// quantile of sorted times, in nanoseconds; 0 without any.
func quantile(times []time.Duration, q float64) float64 {
	if len(times) == 0 {
		return 0
	}
	return float64(times[int(math.Ceil(q*float64(len(times))))-1])
}
