package llmapp

import (
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// RolePricer is the part of a handler that says what calls cost.
const RolePricer Role = "pricer"

// PricedLimiter is a limiter that needs to know what a call may cost before the call has
// come to the handlers that say so.
type PricedLimiter interface {
	// PricedAhead tells which pricers stand further in, so that one of them may have the
	// last word. Unless always is set, a call may also pass by all of them. It is called
	// once, and may be at a time at which calls are served.
	PricedAhead(pricers []meter.Pricer, always bool)
}

// pricing is a handler that says what calls cost.
type pricing interface {
	Pricer() meter.Pricer
}

// sight is a place at which a limiter stands, and what it sees from there.
type sight struct {
	limiter PricedLimiter
	some    []meter.Pricer // that some calls meet
	all     meter.Pricer   // that all calls meet before those; nil if there is none
}

// opening is a sight that reaches to a place in the chain.
type opening struct {
	*sight
	partly bool // not all calls that pass the limiter come to this place
}

// sees notes that a limiter stands at a place.
func (w *walk) sees(l PricedLimiter, at *position) {
	s := &sight{limiter: l}
	if w.standalone && slices.ContainsFunc(w.sights, func(have *sight) bool { return have.limiter == l }) {
		return // its route has been walked from where it is invoked
	}
	w.sights = append(w.sights, s)
	at.open = append(slices.Clip(at.open), opening{sight: s})
}

// seen notes that a pricer can be seen from limiters further out.
func (at *position) seen(p meter.Pricer) {
	for _, o := range at.open {
		switch {
		case !o.partly:
			o.all, o.some = p, nil // it has the last word over those before it
		case o.all != p && !slices.Contains(o.some, p):
			o.some = append(o.some, p)
		}
	}
}

// partial is a place that not all calls come to that have come so far.
func (at position) partial() position {
	open := make([]opening, len(at.open))
	for i, o := range at.open {
		open[i] = opening{o.sight, true}
	}
	at.open = open
	return at
}

// join adds the openings of a place that calls may come from.
func (at *position) join(open []opening) {
	for _, o := range open {
		if !slices.ContainsFunc(at.open, func(have opening) bool { return have.sight == o.sight }) {
			at.open = append(slices.Clip(at.open), o)
		}
	}
}

// tellSights tells limiters which pricers stand further in, over all the places at which
// each of them stands.
func tellSights(sights []*sight) {
	for i, s := range sights {
		if slices.ContainsFunc(sights[:i], func(before *sight) bool { return before.limiter == s.limiter }) {
			continue
		}
		var pricers []meter.Pricer
		always := true
		for _, other := range sights[i:] {
			if other.limiter != s.limiter {
				continue
			}
			always = always && other.all != nil
			for _, p := range append([]meter.Pricer{other.all}, other.some...) {
				if p != nil && !slices.Contains(pricers, p) {
					pricers = append(pricers, p)
				}
			}
		}
		s.limiter.PricedAhead(pricers, always)
	}
}
