package limit

import (
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// pricer is what says what a call will cost. Handlers further in that may have the last
// word are asked already now: what a call is admitted by must not depend on the order of
// directives.
func (l *Limiter) pricer(call *meter.Call) meter.Pricer {
	l.app.Routes()
	call.PriceByDefault(l.byDefault)
	ahead := l.ahead.Load()
	switch {
	case ahead == nil:
		return call.Pricer()
	case ahead.always && len(ahead.pricers) == 1:
		return ahead.pricers[0]
	case ahead.always:
		return candidates(ahead.pricers)
	}
	return candidates(append(slices.Clone(ahead.pricers), call.Pricer()))
}

// ahead are the pricers that stand further in than a limiter. A call meets one of them;
// or it may meet none, unless always is set.
type ahead struct {
	pricers []meter.Pricer
	always  bool
}

// PricedAhead implements llmapp.PricedLimiter.
func (l *Limiter) PricedAhead(pricers []meter.Pricer, always bool) {
	if len(pricers) > 0 {
		l.ahead.Store(&ahead{pricers, always})
	}
}

// candidates are pricers of which it is not known yet which will price a call. A call is taken
// for the dearest that it may be, and for one that has a price if any has one.
type candidates []meter.Pricer

// Price implements meter.Pricer.
func (ps candidates) Price(p *meter.Priced) (usd money.USD, status meter.CostStatus) {
	status = meter.CostUnpriced
	for _, each := range ps {
		if m, s := each.Price(p); s != meter.CostUnpriced && (status == meter.CostUnpriced || m > usd) {
			usd, status = m, s
		}
	}
	return usd, status
}

// Worst implements meter.Pricer.
func (ps candidates) Worst(p *meter.Priced, input, output int64) (most money.USD, ok bool) {
	for _, each := range ps {
		if m, known := each.Worst(p, input, output); known {
			most, ok = max(most, m), true
		}
	}
	return most, ok
}

// Denies implements meter.Pricer: a call is let pass if one of them would do so.
func (ps candidates) Denies(budget bool) bool {
	return !slices.ContainsFunc(ps, func(each meter.Pricer) bool { return !each.Denies(budget) })
}
