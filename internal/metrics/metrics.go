// Package metrics holds what these modules count for operators. All metrics are
// named here, and labels are bounded here, whatever clients send.
//
// A process has one [Set]. Caddy makes a registry with each config; the set is
// registered with every one of them, so that counters go on through reloads, and
// it knows none of them, so that those of the past are free to go.
package metrics

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Process is the set of this process.
var Process = New()

// Set is all metrics. It is a collector of its own, and safe for use by many
// goroutines.
type Set struct {
	requests    *prometheus.CounterVec
	tokens      *prometheus.CounterVec
	unpriced    *prometheus.CounterVec
	approximate *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	thresholds  *prometheus.CounterVec
	retries     *prometheus.CounterVec
	breakers    *prometheus.CounterVec
	auth        *prometheus.CounterVec
	expected    *prometheus.CounterVec
	reported    *prometheus.CounterVec
	sources     *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	errors      *prometheus.CounterVec
	rereads     *prometheus.CounterVec
	vecs        []prometheus.Collector // all of the above

	cost   *prometheus.Desc
	gauges gauges

	consumers consumers
	models    models
	refused   children
	told      children
	sourceOf  [len(sources)]prometheus.Counter
	retried   [len(retryNames)]prometheus.Counter
	breaks    [len(breakerNames)][len(stateNames)]prometheus.Counter
	stores    [len(ops)]prometheus.Observer
	table     atomic.Pointer[func() Table]
	keys      keys
}

// New returns a set in which nothing is counted yet.
func New() *Set {
	s := &Set{
		requests: requestsTotal.counters(), tokens: tokensTotal.counters(), unpriced: unpricedTotal.counters(),
		approximate: approximateTotal.counters(),
		refusals:    refusalsTotal.counters(), thresholds: thresholdsTotal.counters(), retries: retriesTotal.counters(), breakers: breakerChangesTotal.counters(), auth: authFailuresTotal.counters(),
		expected: expectedTotal.counters(), reported: reportedTotal.counters(), sources: sourcesTotal.counters(),
		errors: storeErrorsTotal.counters(), rereads: keysRereads.counters(),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: storeSeconds.name, Help: storeSeconds.help, Buckets: storeBuckets,
		}, storeSeconds.labels),
		cost: costTotal.desc(), gauges: newGauges(), keys: newKeys(),
	}
	s.vecs = []prometheus.Collector{
		s.requests, s.tokens, s.unpriced, s.approximate, s.refusals, s.thresholds, s.retries, s.breakers, s.auth,
		s.expected, s.reported, s.sources, s.seconds, s.errors, s.rereads,
	}
	s.keys.reread = s.rereads.WithLabelValues()
	s.models.init(s)
	s.consumers.init(s)
	for i, name := range sources {
		s.sourceOf[i] = s.sources.WithLabelValues(name) // a rate needs a zero to begin at
	}
	for i, name := range retryNames {
		s.retried[i] = s.retries.WithLabelValues(name)
	}
	for i, name := range breakerNames {
		for j, state := range stateNames {
			s.breaks[i][j] = s.breakers.WithLabelValues(name, state)
		}
	}
	for i, op := range ops {
		s.stores[i] = s.seconds.WithLabelValues(op)
	}
	return s
}

// Register makes the metrics part of a registry. To do so again changes nothing.
func (s *Set) Register(r prometheus.Registerer) error {
	err := r.Register(s)
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) && already.ExistingCollector == prometheus.Collector(s) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range s.vecs {
		v.Describe(ch)
	}
	ch <- s.cost
	s.gauges.describe(ch)
	s.keys.describe(ch)
}

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	for _, v := range s.vecs {
		v.Collect(ch)
	}
	s.consumers.collect(ch, s.cost)
	s.gauges.collect(ch, s.table.Load())
	s.keys.collect(ch)
}

// child is a counter of a family whose labels come from the config. Unused parts are
// empty.
type child struct {
	vec        *prometheus.CounterVec
	a, b, c, d string
}

// children keeps such counters at hand.
type children struct {
	mu sync.RWMutex
	m  map[child]prometheus.Counter
}

// childrenMost bounds them: configs come and go, and so do the names in them.
const childrenMost = 5000

// get returns the counter, nil if it is new and there is no room.
func (c *children) get(k child, labels int) prometheus.Counter {
	c.mu.RLock()
	n := c.m[k]
	full := len(c.m) >= childrenMost
	c.mu.RUnlock()
	if n != nil || full {
		return n
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.m[k]; n != nil || len(c.m) >= childrenMost {
		return n
	}
	values := []string{k.a, k.b, k.c, k.d}
	n, err := k.vec.GetMetricWithLabelValues(values[:labels]...)
	if err != nil {
		return nil // a name that is no UTF-8; the rest must stay readable
	}
	if c.m == nil {
		c.m = make(map[child]prometheus.Counter)
	}
	c.m[k] = n
	return n
}

// Interface guard
var _ prometheus.Collector = (*Set)(nil)
