package metrics

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Op is an operation of a store.
type Op uint8

// The operations.
const (
	Reserve Op = iota
	Settle
	Renew
	Read
	List
	Adjust
	Keys
)

var ops = [...]string{Reserve: "reserve", Settle: "settle", Renew: "renew", Read: "read", List: "list", Adjust: "adjust", Keys: "keys"}

// storeBuckets reach from a store in the process to one that times out, in seconds.
var storeBuckets = []float64{1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, .1, .25, .5, 1, 2.5}

// began is when the process did.
var began = time.Now()

// Elapsed is a clock by which operations of the store are timed. It is read in half the time
// that time.Now takes, which knows the date as well.
func Elapsed() time.Duration { return time.Since(began) }

// StoreOp counts an operation of the store, how long it took and how it ended.
func (s *Set) StoreOp(op Op, took time.Duration, err error) {
	s.stores[op].Observe(took.Seconds())
	s.StoreFailed(op, err)
}

// StoreFailed counts an operation of the store that went wrong; a nil error did not.
// A call whose client went away meanwhile is no error of the store's.
func (s *Set) StoreFailed(op Op, err error) {
	reason := Other
	switch {
	case err == nil:
		return
	case errors.Is(err, store.ErrFull):
		reason = "full"
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, store.ErrUnavailable):
		reason = "unavailable"
	}
	s.errors.WithLabelValues(ops[op], reason).Inc()
}

// Refused counts a refusal of an instance: by one of its rules, in the config's words
// without the amount, or else by the code of the error. shadow is set if the call
// went on.
func (s *Set) Refused(instance, rule string, shadow bool) {
	flag := "false"
	if shadow {
		flag = "true"
	}
	n := s.refused.get(child{s.refusals, instance, rule, flag, ""}, 3)
	if n == nil {
		n = s.refusals.WithLabelValues(Other, Other, flag)
	}
	n.Inc()
}

// Threshold counts a rule of which percent are used. The consumer is nil for a counter
// that all share.
func (s *Set) Threshold(who *Consumer, instance, rule string, percent int) {
	label := ""
	if who != nil {
		label = s.consumers.of(who.Name, who.Named).label
	}
	share := strconv.Itoa(percent)
	n := s.told.get(child{s.thresholds, label, instance, rule, share}, 4)
	if n == nil {
		n = s.thresholds.WithLabelValues(Other, Other, Other, share)
	}
	n.Inc()
}

// AuthFailed counts a request that was refused for its key. The reason is a word of
// the code's.
func (s *Set) AuthFailed(reason string) { s.auth.WithLabelValues(reason).Inc() }
