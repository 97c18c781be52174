package llmapp

import "github.com/llmlimits/caddy-llm-limits/internal/metrics"

// What a store may tell of itself, for metrics.
type (
	// sized is a store that counts in this process.
	sized interface {
		// Len is how many entities are kept.
		Len() int
	}
	// remote is a store that can be away.
	remote interface {
		// Away tells whether it is taken to be.
		Away() bool
		// Pending is how many charges wait to be handed to it.
		Pending() int
	}
)

// gauges is where the metrics of what is shared are read. It refers to no config.
func (s *shared) gauges() metrics.Gauges {
	g := metrics.Gauges{
		Holds:  func() int64 { return int64(s.leases.Len()) },
		Drains: s.meter.Drains, BodyBytes: s.meter.BodyBytes,
	}
	if c, ok := s.counters.(sized); ok {
		g.Entities = func() int64 { return int64(c.Len()) }
	}
	if c, ok := s.counters.(remote); ok {
		g.Outage = c.Away
		g.Pending = func() int64 { return int64(c.Pending()) }
	}
	return g
}
