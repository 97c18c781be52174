package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauges are read with each scrape. What is nil has no series.
type Gauges struct {
	// Holds is how many reservations of calls under way there are.
	Holds func() int64
	// Drains is how many calls are read on without a client.
	Drains func() int64
	// BodyBytes is what request bodies take, in bytes.
	BodyBytes func() int64
	// Entities is how many consumers the store counts.
	Entities func() int64
	// Outage tells whether the store is taken to be away.
	Outage func() bool
	// Pending is how many charges wait for the store.
	Pending func() int64
}

// Table is what is known of the price table in force.
type Table struct {
	// AsOf is when it was made.
	AsOf time.Time
	// ActivatedAfter is how many prices of it are in force that began later.
	ActivatedAfter int
}

// gauges reads them.
type gauges struct {
	from                                             *atomic.Pointer[Gauges]
	holds, drains, bodies, entities, outage, pending *prometheus.Desc
	asOf, activated                                  *prometheus.Desc
}

func newGauges() gauges {
	return gauges{
		from:  new(atomic.Pointer[Gauges]),
		holds: holds.desc(), drains: drains.desc(), bodies: bodyBytes.desc(), entities: storeEntities.desc(),
		outage: storeOutage.desc(), pending: storePending.desc(), asOf: tableAsOf.desc(), activated: activatedAfter.desc(),
	}
}

// SetGauges says where gauges are read, in place of where they were before. The
// functions live as long as they are set, with all that they refer to: they must not
// refer to a config.
func (s *Set) SetGauges(g Gauges) { s.gauges.from.Store(&g) }

// SetTable sets what tells of the price table in force; nil is none. It is asked at each
// scrape, and must not refer to a config.
func (s *Set) SetTable(f func() Table) { s.table.Store(&f) }

// HasTable tells whether a price table is said to be in force.
func (s *Set) HasTable() bool {
	f := s.table.Load()
	return f != nil && *f != nil
}

func (g *gauges) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.holds, g.drains, g.bodies, g.entities, g.outage, g.pending, g.asOf, g.activated} {
		ch <- d
	}
}

func (g *gauges) collect(ch chan<- prometheus.Metric, table *func() Table) {
	send := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	number := func(d *prometheus.Desc, f func() int64) {
		if f != nil {
			send(d, float64(f()))
		}
	}
	if from := g.from.Load(); from != nil {
		number(g.holds, from.Holds)
		number(g.drains, from.Drains)
		number(g.bodies, from.BodyBytes)
		number(g.entities, from.Entities)
		number(g.pending, from.Pending)
		if from.Outage != nil {
			away := 0.
			if from.Outage() {
				away = 1
			}
			send(g.outage, away)
		}
	}
	if table != nil && *table != nil {
		t := (*table)()
		send(g.asOf, float64(t.AsOf.Unix()))
		send(g.activated, float64(t.ActivatedAfter))
	}
}
