package llmretry

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/sony/gobreaker/v2"
)

// Breaker answers in a provider's place while that is not going to help. There is one for
// each consumer, which counts calls that end in a 4xx status, 429 above all; and one for
// each route, which counts attempts that end in a 5xx status or without an answer. What
// is a consumer's doing never stops others.
type Breaker struct {
	// Failures is how many of them open it. Required.
	Failures int `json:"failures"`
	// Per is the time in which they come. Required.
	Per caddy.Duration `json:"per"`
	// Open is how long it stays open; then one call at a time tries. Default: Per.
	Open caddy.Duration `json:"open,omitempty"`
}

const (
	// mostFailures bounds what a breaker counts to.
	mostFailures = 1_000_000
	// mostConsumers bounds those whose failures are known; of more, the one that has not
	// called for longest is forgotten.
	mostConsumers = 10_000
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
}

func newBreaker(b *Breaker) *breaker {
	per, open := time.Duration(b.Per), time.Duration(b.Open)
	if open == 0 {
		open = per
	}
	br := &breaker{open: open}
	br.TwoStepCircuitBreaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     per,
		BucketPeriod: per / buckets,
		Timeout:      open - time.Millisecond, // who waits as long as told must not come too early
		ReadyToTrip:  func(n gobreaker.Counts) bool { return int(n.TotalFailures) >= b.Failures },
		IsExcluded:   func(err error) bool { return errors.Is(err, errUnknown) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				br.opened.Store(time.Now().UnixNano())
			}
		},
	})
	return br
}

// allow returns what to tell the end of the call to, or how long to wait.
func (b *breaker) allow() (done func(error), wait time.Duration) {
	done, err := b.Allow()
	switch {
	case err == nil:
		return done, 0
	case errors.Is(err, gobreaker.ErrOpenState):
		return nil, max(time.Until(time.Unix(0, b.opened.Load()).Add(b.open)), trialWait)
	default:
		return nil, trialWait
	}
}

// breakers are those of a handler.
type breakers struct {
	config *Breaker
	routes []*breaker

	mu        sync.Mutex
	consumers map[string]*list.Element
	recent    list.List // of *known, the last to call first
}

// known is a consumer.
type known struct {
	name    string
	breaker *breaker
}

func newBreakers(b *Breaker, routes int) *breakers {
	all := &breakers{config: b, consumers: make(map[string]*list.Element)}
	for range routes {
		all.routes = append(all.routes, newBreaker(b))
	}
	return all
}

// consumer is the breaker of a consumer.
func (b *breakers) consumer(name string) *breaker {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.consumers[name]; e != nil {
		b.recent.MoveToFront(e)
		return e.Value.(*known).breaker
	}
	if b.recent.Len() >= mostConsumers {
		oldest := b.recent.Back()
		delete(b.consumers, b.recent.Remove(oldest).(*known).name)
	}
	k := &known{name, newBreaker(b.config)}
	b.consumers[name] = b.recent.PushFront(k)
	return k.breaker
}
