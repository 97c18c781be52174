package limit

import (
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// pricer is what says what a call will cost, and host the upstream that it will come to,
// if that is known. Handlers further in that may have the last word are asked already
// now: what a call is admitted by must not depend on the order of directives.
func (l *Limiter) pricer(call *meter.Call) (p meter.Pricer, host string) {
	// Servers may start before the app that walks the routes.
	_ = l.app.Routes() // a config that is wrong is not going to run
	call.PriceByDefault(l.byDefault)
	ahead := l.ahead.Load()
	switch {
	case ahead == nil:
		return call.Pricer(), ""
	case len(ahead.Pricers) == 0:
		return call.Pricer(), ahead.Upstream
	case ahead.Always && len(ahead.Pricers) == 1:
		return ahead.Pricers[0], ahead.Upstream
	case ahead.Always:
		return candidates(ahead.Pricers), ahead.Upstream
	}
	return candidates(append(slices.Clone(ahead.Pricers), call.Pricer())), ahead.Upstream
}

// LookAhead implements llmapp.Lookout.
func (l *Limiter) LookAhead(a llmapp.Ahead) { l.ahead.Store(&a) }

// candidates are pricers of which it is not known yet which will price a call. A call is
// taken for the dearest that it may be, and for one that has a price if any has one.
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

// Expect implements meter.Pricer.
func (ps candidates) Expect(p *meter.Priced, input, output int64) (usd money.USD, ok bool) {
	for _, each := range ps {
		if m, known := each.Expect(p, input, output); known {
			usd, ok = max(usd, m), true
		}
	}
	return usd, ok
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

// Presume implements meter.Presumer.
func (ps candidates) Presume(p *meter.Priced, input, output int64) (usd money.USD) {
	for _, each := range ps {
		if each, ok := each.(meter.Presumer); ok {
			usd = max(usd, each.Presume(p, input, output))
		}
	}
	return usd
}

// Interface guards
var (
	_ meter.Pricer   = candidates(nil)
	_ meter.Presumer = candidates(nil)
)
