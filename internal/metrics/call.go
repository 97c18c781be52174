package metrics

import (
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// The kinds of tokens.
const (
	input = iota
	output
	cacheRead
	cacheWrite
	reasoning
	kinds
)

// estimates is how many kinds are estimated: input and output, the first two.
const estimates = 2

var kindNames = [kinds]string{"input", "output", "cache_read", "cache_write", "reasoning"}

// sources are where the use of a call is known from.
var sources = [...]string{"reported", "estimated", "none"}

// Consumer is who called.
type Consumer struct {
	// Name is the application, empty for none.
	Name string
	// Named is set if the operator named it. Others are not told apart.
	Named bool
}

// Call is a call that has ended.
type Call struct {
	Consumer Consumer
	// API is one of the names of usage.API.
	API string
	// Status is what was answered, 0 for nothing.
	Status int
	// Refused is set if a limiter answered in the provider's place.
	Refused bool
	// Source is where the use is known from: reported, estimated or none.
	Source string
	// Model is the one that served, or else the one asked for.
	Model string
	// Usage is what it used, and Other what other models used inside the call.
	Usage *usage.Usage
	Other []usage.ModelUsage
	// ExpectedInput and ExpectedOutput are what the call was expected to use before
	// it began, in tokens; both 0 where nothing was expected.
	ExpectedInput, ExpectedOutput int64
	// Cost is what the call cost, as far as it is known, with the other models inside it.
	// Below zero it counts as zero.
	Cost money.USD
	// Unpriced is set if the call used something and its price is not known.
	Unpriced bool
	// Approximate is set if a rate was derived, or is of a row that is not the model's own.
	Approximate bool
}

// Ended counts a call that has ended.
func (s *Set) Ended(c *Call) {
	who := s.consumers.of(c.Consumer.Name, c.Consumer.Named)
	nothing := c.Usage == nil || c.Usage.Total() == 0 && len(c.Other) == 0 && c.Cost <= 0 && !c.Unpriced
	switch {
	case !c.Refused:
		who.ended(s, answer{c.API, class(c.Status)})
	case nothing:
		who.ended(s, answer{c.API, "refused"})
		return
	default: // after attempts that used something
		who.ended(s, answer{c.API, "refused"})
	}
	for i, name := range sources {
		if name == c.Source {
			s.sourceOf[i].Inc()
		}
	}
	if nothing {
		return
	}
	reported := c.Source == sources[0]
	m := s.models.of(c.Model, reported)
	u := who.used(s, m, c.Usage)
	for i := range c.Other {
		who.used(s, s.models.of(c.Other[i].Model, reported), &c.Other[i].Usage)
	}
	if c.Cost > 0 {
		u.cost.add(c.Cost)
	}
	if c.Approximate {
		s.approximate.WithLabelValues(m.label).Inc()
	}
	if c.Unpriced {
		s.unpriced.WithLabelValues(m.label).Inc()
	}
	if reported && c.ExpectedInput+c.ExpectedOutput > 0 {
		m.expected[input].Add(float64(c.ExpectedInput))
		m.expected[output].Add(float64(c.ExpectedOutput))
		m.reported[input].Add(float64(c.Usage.Input))
		m.reported[output].Add(float64(c.Usage.Output))
	}
}

// used counts what a consumer used of a model.
func (c *consumer) used(s *Set, m *model, u *usage.Usage) *use {
	of := c.use(s, m)
	c.add(s, of, &[kinds]int64{
		input: u.Input, output: u.Output, cacheRead: u.CacheRead,
		cacheWrite: u.CacheWrite5m + u.CacheWrite1h, reasoning: u.Reasoning,
	})
	return of
}

// class is the class of a status.
func class(status int) string {
	if status < 100 || status > 599 {
		return "none"
	}
	return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[status/100-1]
}
