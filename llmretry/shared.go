package llmretry

import (
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// shared is the breaker of a route that all consumers share. At most half of the failures
// that open it are of one consumer, and a consumer whose trial has failed leaves the next
// one to another.
type shared struct {
	*breaker
	most int // what counts of one consumer, per time

	mu     sync.Mutex
	failed string // whose trial failed last
	wanted bool   // another one has been turned away since
}

// newShared makes the breaker of a route. It takes two consumers at least to open it.
func newShared(b *Breaker, changed func(gobreaker.State)) *shared {
	all := *b
	all.Failures = max(b.Failures, 2)
	return &shared{breaker: newBreaker(&all, changed), most: (all.Failures + 1) / 2}
}

// private is a consumer's own breaker of a route.
type private struct {
	*breaker
	counted counted
}

// allow returns what to tell the end of a consumer's attempt to, or how long to wait.
func (s *shared) allow(name string, own *private) (done func(error), wait time.Duration) {
	tellOwn, wait := own.allow()
	if tellOwn == nil {
		return nil, wait
	}
	tell, trial, wait := s.admit(name)
	if tell == nil {
		tellOwn(errUnknown)
		return nil, wait
	}
	return func(err error) {
		tellOwn(err)
		switch {
		case err != errFailed: //nolint:errorlint // it is told as it is
		case trial:
			s.mu.Lock()
			s.failed, s.wanted = name, false
			s.mu.Unlock()
		case !own.counted.add(s.most, time.Now()):
			err = errUnknown
		}
		tell(err)
	}, 0
}

// admit asks the shared breaker alone; trial is set for the one that finds out whether the
// route works again.
func (s *shared) admit(name string) (tell func(error), trial bool, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	trial = s.State() == gobreaker.StateHalfOpen
	// the other one may have gone for good
	if trial && s.wanted && name == s.failed && time.Since(s.since()) < 2*s.open {
		return nil, false, trialWait
	}
	if tell, wait = s.breaker.allow(); tell == nil && name != s.failed {
		s.wanted = true
	}
	return tell, trial, wait
}

// counted is how many failures of a consumer have counted for others, in a time that
// slides.
type counted struct {
	per time.Duration

	mu        sync.Mutex
	since     time.Time
	last, now int // in the time before, and since then
}

// add counts one if that makes no more than most in any time as long as per.
func (c *counted) add(most int, at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch passed := at.Sub(c.since); {
	case passed >= 2*c.per:
		c.since, c.last, c.now = at, 0, 0
	case passed >= c.per:
		c.since, c.last, c.now = c.since.Add(c.per), c.now, 0
	}
	if c.last+c.now >= most {
		return false
	}
	c.now++
	return true
}
