package llmretry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// shared is the breaker of a route that all consumers share. At most half of the failures
// that open it are of one consumer, and a consumer whose trial did not succeed leaves the
// next one to another.
type shared struct {
	*breaker
	most  int         // what counts of one consumer, per time
	named atomic.Bool // a consumer that is known has come

	mu     sync.Mutex
	tried  string    // whose trial was the last
	wanted bool      // another one has been turned away since it began
	kept   time.Time // until when the next one is left to that one, which may have gone for good
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

// allow returns what to tell the end of a consumer's attempt to, or how long to wait. Nobody
// has no breaker of its own.
func (s *shared) allow(name string, own *private) (done func(error), wait time.Duration) {
	if own == nil {
		return s.allowNobody()
	}
	s.named.Store(true)
	tellOwn, _, wait := own.allow()
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
		case trial:
			s.end(name, err)
		case err == errFailed && !own.counted.add(s.most, time.Now()): //nolint:errorlint // it is told as it is
			err = errUnknown
		}
		tell(err)
	}, 0
}

// allowNobody is allow for a call whose consumer is not known. Where others are known, it
// cannot fail for them; where nobody is, all count alike.
func (s *shared) allowNobody() (done func(error), wait time.Duration) {
	tell, trial, wait := s.admit(nobody)
	if tell == nil {
		return nil, wait
	}
	return func(err error) {
		switch {
		case trial:
			s.end(nobody, err)
		case err == errFailed && s.named.Load(): //nolint:errorlint // it is told as it is
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
	if s.wanted && name == s.tried && time.Now().Before(s.kept) && s.State() == gobreaker.StateHalfOpen {
		return nil, false, trialWait
	}
	tell, trial, wait = s.breaker.allow()
	switch {
	case trial:
		// one that does not end in its time leaves the next to others, too
		s.tried, s.wanted, s.kept = name, false, time.Now().Add(2*s.open)
	case tell == nil && name != s.tried:
		s.wanted = true
	}
	return tell, trial, wait
}

// end notes how a trial ended. To hang up is no way to get one after the other.
func (s *shared) end(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case name != s.tried:
	case err == nil:
		s.wanted = false
	case err == errFailed: //nolint:errorlint // it is told as it is
		s.kept = time.Now().Add(2 * s.open) // the first half of it nobody tries
	default:
		s.kept = time.Now().Add(s.open)
	}
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
