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
	return Foresee(l.ahead.Load(), call.Pricer())
}

// upstream is the host that calls will come to; empty if it is not known.
func (l *Limiter) upstream() string {
	if a := l.ahead.Load(); a != nil {
		return a.Upstream
	}
	return ""
}

// Foresee is what will price a call, and the upstream that it will come to, if one is
// known, by what is ahead of a handler; nil is not known. own prices calls for which no
// handler further in has the last word.
func Foresee(ahead *llmapp.Ahead, own meter.Pricer) (p meter.Pricer, host string) {
	var ps []meter.Pricer
	switch {
	case ahead == nil:
		return own, ""
	case len(ahead.Pricers) == 0 && !ahead.Always && (ahead.Upstream != "" || len(ahead.Upstreams) < 2):
		return own, ahead.Upstream
	case ahead.Always:
		ps = ahead.Pricers
	default:
		ps = append(slices.Clone(ahead.Pricers), own)
	}
	if ahead.Upstream == "" && len(ahead.Upstreams) > 1 {
		ps = towardsEach(ps, ahead.Upstreams)
	}
	if len(ps) == 1 {
		return ps[0], ahead.Upstream
	}
	return &candidates{ps}, ahead.Upstream
}

// towardsEach are the pricers of calls that may come to any of several hosts.
func towardsEach(ps []meter.Pricer, hosts []string) (all []meter.Pricer) {
	for _, each := range ps {
		for _, h := range hosts {
			all = append(all, towards{each, h})
		}
	}
	return all
}

// towards prices calls as those to one host.
type towards struct {
	meter.Pricer
	host string
}

func (t towards) to(p *meter.Priced) *meter.Priced {
	q := *p
	q.Host = t.host
	return &q
}

// Price implements meter.Pricer.
func (t towards) Price(p *meter.Priced) (money.USD, meter.CostStatus) { return t.Pricer.Price(t.to(p)) }

// Expect implements meter.Pricer.
func (t towards) Expect(p *meter.Priced, input, output int64) (money.USD, bool) {
	return t.Pricer.Expect(t.to(p), input, output)
}

// Worst implements meter.Pricer.
func (t towards) Worst(p *meter.Priced, input, output int64) (money.USD, bool) {
	return t.Pricer.Worst(t.to(p), input, output)
}

// Presume implements meter.Presumer.
func (t towards) Presume(p *meter.Priced, input, output int64) money.USD {
	if each, ok := t.Pricer.(meter.Presumer); ok {
		return each.Presume(t.to(p), input, output)
	}
	return 0
}

// LookAhead implements llmapp.Lookout.
func (l *Limiter) LookAhead(a llmapp.Ahead) { l.ahead.Store(&a) }

// candidates are pricers of which it is not known yet which will price a call. A call is
// taken for the dearest that it may be, and for one that has a price if any has one.
type candidates struct{ all []meter.Pricer }

// Price implements meter.Pricer.
func (ps *candidates) Price(p *meter.Priced) (usd money.USD, status meter.CostStatus) {
	status = meter.CostUnpriced
	for _, each := range ps.all {
		if m, s := each.Price(p); s != meter.CostUnpriced && (status == meter.CostUnpriced || m > usd) {
			usd, status = m, s
		}
	}
	return usd, status
}

// Expect implements meter.Pricer.
func (ps *candidates) Expect(p *meter.Priced, input, output int64) (usd money.USD, ok bool) {
	for _, each := range ps.all {
		if m, known := each.Expect(p, input, output); known {
			usd, ok = max(usd, m), true
		}
	}
	return usd, ok
}

// Worst implements meter.Pricer.
func (ps *candidates) Worst(p *meter.Priced, input, output int64) (most money.USD, ok bool) {
	for _, each := range ps.all {
		if m, known := each.Worst(p, input, output); known {
			most, ok = max(most, m), true
		}
	}
	return most, ok
}

// Denies implements meter.Pricer: a call is let pass if one of them would do so.
func (ps *candidates) Denies(budget bool) bool {
	return !slices.ContainsFunc(ps.all, func(each meter.Pricer) bool { return !each.Denies(budget) })
}

// Presume implements meter.Presumer.
func (ps *candidates) Presume(p *meter.Priced, input, output int64) (usd money.USD) {
	for _, each := range ps.all {
		if each, ok := each.(meter.Presumer); ok {
			usd = max(usd, each.Presume(p, input, output))
		}
	}
	return usd
}

// Interface guards
var (
	_ meter.Pricer   = (*candidates)(nil)
	_ meter.Presumer = (*candidates)(nil)
	_ meter.Presumer = towards{}
)
