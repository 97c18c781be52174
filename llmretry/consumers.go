package llmretry

import (
	"container/list"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
)

// mostConsumers bounds those that are known; of more, the one that has not called for
// longest is forgotten.
const mostConsumers = 10_000

// consumers are those that have called lately. It is safe for concurrent use.
type consumers struct {
	mu     sync.Mutex
	byName map[string]*list.Element
	recent list.List // of *consumer, the last to call first
}

// consumer is what is known of one of them.
type consumer struct {
	name    string
	retries budget

	mu     sync.Mutex
	calls  *breaker         // of the calls that end in 4xx
	routes map[int]*private // of attempts, by route; those that were tried
}

// get returns a consumer, which is new if it is not known.
func (cs *consumers) get(name string, now time.Time) *consumer {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if e := cs.byName[name]; e != nil {
		cs.recent.MoveToFront(e)
		return e.Value.(*consumer)
	}
	if cs.recent.Len() >= mostConsumers {
		delete(cs.byName, cs.recent.Remove(cs.recent.Back()).(*consumer).name)
	}
	if cs.byName == nil {
		cs.byName = make(map[string]*list.Element)
	}
	c := &consumer{name: name}
	c.retries.init(budgetOwn, budgetSaved, now)
	cs.byName[name] = cs.recent.PushFront(c)
	return c
}

// breaker is that of the consumer's calls.
func (c *consumer) breaker(b *Breaker) *breaker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = newBreaker(b, changed)
	}
	return c.calls
}

// changed tells the metrics the state of a consumer's breaker.
func changed(to gobreaker.State) {
	metrics.Process.BreakerChanged(metrics.BreakerConsumer, stateOf(to))
}

// stateOf is the state of a breaker in the words of the metrics.
func stateOf(s gobreaker.State) metrics.BreakerState {
	switch s {
	case gobreaker.StateOpen:
		return metrics.BreakerOpen
	case gobreaker.StateHalfOpen:
		return metrics.BreakerHalfOpen
	default:
		return metrics.BreakerClosed
	}
}

// route is the consumer's own breaker of a route.
func (c *consumer) route(b *Breaker, i int) *private {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.routes[i]
	if p == nil {
		p = &private{breaker: newBreaker(b, changed), counted: counted{per: time.Duration(b.Per)}}
		if c.routes == nil {
			c.routes = make(map[int]*private)
		}
		c.routes[i] = p
	}
	return p
}
