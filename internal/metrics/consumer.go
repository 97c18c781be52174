package metrics

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Default is the consumer of calls without an application.
const Default = "default"

const (
	// consumersMost is how many consumers are told apart.
	consumersMost = 1000
	// pairsMost is how many pairs of a consumer and a model are. Each is up to six
	// series.
	pairsMost = 5000
)

// consumers are those that are told apart, by a bound.
type consumers struct {
	set             *Set
	fallback, other *consumer

	pairs atomic.Int64

	mu    sync.RWMutex
	names map[string]*consumer
}

// consumer is what one consumer used.
type consumer struct {
	label string

	mu       sync.RWMutex
	requests map[answer]prometheus.Counter
	uses     map[*model]*use
}

// answer is what calls are told apart by.
type answer struct{ api, status string }

// use is what a consumer used of a model. Series are made when there is something to
// count.
type use struct {
	model  string
	tokens [kinds]prometheus.Counter // nil where none were used; the consumer's lock guards them
	cost   dollars
}

func (cs *consumers) init(s *Set) {
	cs.set = s
	cs.names = make(map[string]*consumer)
	cs.fallback, cs.other = newConsumer(Default), newConsumer(Other)
}

func newConsumer(label string) *consumer {
	return &consumer{label: label, requests: make(map[answer]prometheus.Counter), uses: make(map[*model]*use)}
}

// of returns a consumer. Only those that the operator named are told apart, the first
// that come.
func (cs *consumers) of(name string, named bool) *consumer {
	switch {
	case name == "" || name == Default:
		return cs.fallback
	case !named || name == Other || !utf8.ValidString(name):
		return cs.other
	}
	cs.mu.RLock()
	c := cs.names[name]
	full := len(cs.names) >= consumersMost
	cs.mu.RUnlock()
	if c != nil {
		return c
	}
	if full {
		return cs.other
	}

	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.names[name]; c != nil {
		return c
	}
	if len(cs.names) >= consumersMost {
		return cs.other
	}
	name = strings.Clone(name)
	c = newConsumer(name)
	cs.names[name] = c
	return c
}

// ended counts a call.
func (c *consumer) ended(s *Set, a answer) {
	c.mu.RLock()
	n := c.requests[a]
	c.mu.RUnlock()
	if n == nil {
		c.mu.Lock()
		n = s.requests.WithLabelValues(c.label, a.api, a.status)
		c.requests[a] = n
		c.mu.Unlock()
	}
	n.Inc()
}

// use returns what the consumer used of a model; where there is no room for another
// pair, what it used of all others.
func (c *consumer) use(s *Set, m *model) *use {
	c.mu.RLock()
	u := c.uses[m]
	c.mu.RUnlock()
	if u != nil {
		return u
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses[m] == nil && m != s.models.other && !s.consumers.claim() {
		m = s.models.other
	}
	if u = c.uses[m]; u == nil {
		u = &use{model: m.label}
		c.uses[m] = u
	}
	return u
}

// claim takes room for a pair.
func (cs *consumers) claim() bool {
	if cs.pairs.Load() >= pairsMost {
		return false
	}
	if cs.pairs.Add(1) > pairsMost {
		cs.pairs.Add(-1)
		return false
	}
	return true
}

// add counts tokens by kind.
func (c *consumer) add(s *Set, u *use, tokens *[kinds]int64) {
	c.mu.RLock()
	counters := u.tokens
	c.mu.RUnlock()
	for k, n := range tokens {
		if n <= 0 {
			continue
		}
		if counters[k] == nil {
			c.mu.Lock()
			counters[k] = s.tokens.WithLabelValues(c.label, u.model, kindNames[k])
			u.tokens[k] = counters[k]
			c.mu.Unlock()
		}
		counters[k].Add(float64(n))
	}
}

// collect says what consumers spent.
func (cs *consumers) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	cs.mu.RLock()
	all := make([]*consumer, 0, len(cs.names)+2)
	all = append(all, cs.fallback, cs.other)
	for _, c := range cs.names {
		all = append(all, c)
	}
	cs.mu.RUnlock()
	for _, c := range all {
		c.collect(ch, desc)
	}
}

func (c *consumer) collect(ch chan<- prometheus.Metric, desc *prometheus.Desc) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, u := range c.uses {
		if spent, ok := u.cost.sum(); ok {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, spent, c.label, u.model)
		}
	}
}

// dollars is a sum of money that does not round and has no end: a process may pass on
// more than an amount in picodollars holds.
type dollars struct {
	mu    sync.Mutex
	known bool
	whole int64 // dollars
	rest  money.USD
}

func (d *dollars) add(amount money.USD) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = true
	d.whole += int64(amount / money.Dollar)
	if d.rest += amount % money.Dollar; d.rest >= money.Dollar {
		d.rest -= money.Dollar
		d.whole++
	}
}

// sum is the amount in dollars; ok is false if nothing was ever added.
func (d *dollars) sum() (usd float64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return float64(d.whole) + float64(d.rest)/float64(money.Dollar), d.known
}
