package llmretry

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/sony/gobreaker/v2"
)

// Breaker answers in a provider's place while that is not going to help. One for each
// consumer counts calls that end in a 4xx status, 429 above all. Two for each route count
// attempts that end in a 5xx status or without an answer: one of each consumer, which is
// for its own calls, and one that all share. What a single consumer does never opens that
// one, and so never stops others.
type Breaker struct {
	// Failures is how many of them open it. Required.
	Failures int `json:"failures"`
	// Per is the time in which they come. Required.
	Per caddy.Duration `json:"per"`
	// Open is how long it stays open; then one call at a time tries, which has as long
	// before the next one may. Default: Per.
	Open caddy.Duration `json:"open,omitempty"`
}

const (
	// mostFailures bounds what a breaker counts to.
	mostFailures = 1_000_000
	// buckets is in how many steps the time slides in which failures count.
	buckets = 10
	// trialWait is what a call waits for that of another which tries, in the worst case.
	trialWait = time.Second
)

func (b *Breaker) check() error {
	switch {
	case b.Failures < 1 || b.Failures > mostFailures:
		return fmt.Errorf("failures %d is not a number from 1 to %d", b.Failures, mostFailures)
	case time.Duration(b.Per) < time.Second:
		return fmt.Errorf("per %s is shorter than a second", time.Duration(b.Per))
	case b.Open != 0 && time.Duration(b.Open) < time.Second:
		return fmt.Errorf("open %s is shorter than a second", time.Duration(b.Open))
	}
	return nil
}

// open is how long a breaker stays open.
func (b *Breaker) open() time.Duration {
	if b.Open == 0 {
		return time.Duration(b.Per)
	}
	return time.Duration(b.Open)
}

// errFailed and errUnknown are what breakers are told of a call.
var (
	errFailed  = errors.New("failed")
	errUnknown = errors.New("ended without telling")
)

// breaker is a circuit breaker that knows when it tries again.
type breaker struct {
	*gobreaker.TwoStepCircuitBreaker[struct{}]
	open   time.Duration
	opened atomic.Int64 // when it did last, in Unix nanoseconds

	mu    sync.Mutex
	trial *trial // the one that others wait for; nil if there is none
}

// trial is a call that finds out whether others may follow.
type trial struct {
	done  func(error)
	until time.Time // then the next one may try as well
}

// newBreaker makes a breaker that tells changed, if that is not nil, its new state.
func newBreaker(b *Breaker, changed func(gobreaker.State)) *breaker {
	br := &breaker{open: b.open()}
	br.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     time.Duration(b.Per),
		BucketPeriod: time.Duration(b.Per) / buckets,
		Timeout:      br.open - time.Millisecond, // who waits as long as told must not come too early
		ReadyToTrip:  func(n gobreaker.Counts) bool { return int(n.TotalFailures) >= b.Failures },
		IsExcluded:   func(err error) bool { return errors.Is(err, errUnknown) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				br.opened.Store(time.Now().UnixNano())
			}
			if changed != nil {
				changed(to)
			}
		},
	})
	return br
}

// allow returns what to tell the end of the call to, once, and whether the call is a
// trial; or how long to wait.
func (b *breaker) allow() (done func(error), trying bool, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.trial != nil && !now.Before(b.trial.until) {
		b.trial.done(errUnknown)
		b.trial = nil
	}
	done, err := b.Allow()
	switch {
	case err == nil && b.State() == gobreaker.StateHalfOpen:
		t := &trial{done: done, until: now.Add(b.open)}
		b.trial = t
		return func(err error) { b.end(t, err) }, true, 0
	case err == nil:
		return done, false, 0
	case errors.Is(err, gobreaker.ErrOpenState):
		return nil, false, max(b.since().Add(b.open).Sub(now), trialWait)
	default:
		return nil, false, trialWait
	}
}

// end ends a trial. What comes of one that took too long counts still: providers may take
// longer for an answer than a breaker stays open.
func (b *breaker) end(t *trial, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trial == t {
		b.trial = nil
	} else if errors.Is(err, errUnknown) {
		return // so it was told when its time was over
	}
	t.done(err)
}

// since is when the breaker opened last.
func (b *breaker) since() time.Time { return time.Unix(0, b.opened.Load()) }
