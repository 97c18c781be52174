package prices

import (
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Reasons why a rate is not one that the row states.
const (
	whyDerived = "a rate of the tier or service was derived"
	whyService = "the row has no prices of the service"
	whyMost    = "the row has no prices of the service; the vendor's highest were taken"
)

// picker finds the rates of one row for one call.
type picker struct {
	row     *Row
	family  string // of who is called
	timed   *Rates // of the hour; nil if none
	tier    int
	service Service
	cost    *Cost // takes doubts; nil if nobody asks
}

// pick prepares for a call with a prompt of so many tokens at a time.
// provider is the family of who is called, for rows that name none.
func pick(r *Row, provider string, prompt int64, s Service, at time.Time, cost *Cost) picker {
	p := picker{row: r, family: provider, service: s, cost: cost}
	for i, t := range r.Tiers {
		if t.applies(prompt) {
			p.tier = i + 1
		}
	}
	for i := range r.Timed {
		if r.Timed[i].in(at) {
			p.timed = &r.Timed[i].Rates
			break
		}
	}
	return p
}

// vendor is whose service discounts apply.
func (p *picker) vendor() string {
	if p.row.Provider != "" {
		return family(strings.ToLower(p.row.Provider))
	}
	return p.family
}

func (p *picker) doubt(why string) {
	if p.cost != nil {
		p.cost.doubt(why)
	}
}

func (p *picker) bound(why string) {
	if p.cost != nil {
		p.cost.bound(why)
	}
}

// rate is what a unit of tokens costs, where nothing else is stated by the rate of a
// unit that it is a kind of. ok is false if there is none either.
func (p *picker) rate(u Unit) (rate money.Rate, ok bool) {
	if rate, ok = p.stated(u); ok {
		return rate, true
	}
	switch u {
	case CacheRead, CacheWrite5m, AudioIn, ImageIn, VideoIn:
		return p.rate(Input)
	case CacheWrite1h:
		if in, has := p.rate(Input); has && p.claude() {
			return mulDiv(in, 2, 1), true
		}
		return p.rate(CacheWrite5m)
	case AudioCached:
		return p.cached(AudioIn)
	case ImageCached:
		return p.cached(ImageIn)
	case Reasoning, AudioOut, ImageOut, VideoOut:
		return p.rate(Output)
	default:
		return 0, false
	}
}

// cached is the rate of what a cache had of a kind of input: as much cheaper than that
// kind as cached text is than text.
func (p *picker) cached(kind Unit) (rate money.Rate, ok bool) {
	read, ok := p.rate(CacheRead)
	of, has := p.stated(kind)
	in, _ := p.rate(Input)
	if !ok || !has || in <= 0 {
		return read, ok
	}
	p.doubt(whyDerived)
	return mulDiv(read, of, in), true
}

// claude reports whether writing to the cache for an hour costs twice the input.
func (p *picker) claude() bool {
	return p.vendor() == "anthropic" || strings.Contains(strings.ToLower(p.row.Key), "claude")
}

// stated is the row's rate of a unit: the tier's for the service, else the tier's, else
// that of the tier below, down to the base. One of another tier or service is brought
// into proportion by the input's rate, or of generated tokens by the output's.
func (p *picker) stated(u Unit) (rate money.Rate, ok bool) {
	rates, tier := p.set(u)
	return p.of(rates, tier, u)
}

func (p *picker) of(rates *Rates, tier int, u Unit) (rate money.Rate, ok bool) {
	rate, s, t, ok := p.nearest(rates, u, tier)
	if !ok || rate == 0 || s == p.service && t == tier {
		return rate, ok
	}
	if u == Input {
		return p.served(rates, rate, s), true
	}
	guide := Input
	if u.generated() {
		if _, has := rates.Get(Output, s, t); has {
			guide = Output
		}
	}
	if was, has := rates.Get(guide, s, t); has && was > 0 {
		if is, has := p.of(rates, tier, guide); has {
			p.doubt(whyDerived)
			return mulDiv(rate, is, was), true
		}
	}
	return p.served(rates, rate, s), true
}

// set is where a unit's rates stand: the row, or the hour's, which have no tiers.
func (p *picker) set(u Unit) (rates *Rates, tier int) {
	if p.timed != nil && p.timed.has(u) {
		return p.timed, 0
	}
	return &p.row.Rates, p.tier
}

// nearest is the rate that the row states for a unit and comes nearest to the tier and
// the service.
func (p *picker) nearest(rates *Rates, u Unit, tier int) (rate money.Rate, s Service, t int, ok bool) {
	for t = tier; t >= 0; t-- {
		if rate, ok = rates.Get(u, p.service, t); ok {
			return rate, p.service, t, true
		}
		if p.service == Standard {
			continue
		}
		if rate, ok = rates.Get(u, Standard, t); ok {
			return rate, Standard, t, true
		}
	}
	return 0, 0, 0, false
}

// served brings a rate of the service s into proportion to the call's: as the row's
// input has it, else as the vendor documents it.
func (p *picker) served(rates *Rates, rate money.Rate, s Service) money.Rate {
	if s == p.service {
		return rate
	}
	is, hasIs := rates.Get(Input, p.service, 0)
	was, hasWas := rates.Get(Input, Standard, 0)
	if hasIs && hasWas && was > 0 {
		p.doubt(whyDerived)
		return mulDiv(rate, is, was)
	}
	if p.service == Priority {
		p.bound(whyMost)
		return p.priorityMost().of(rate)
	}
	p.doubt(whyService)
	if p.halves() {
		return mulDiv(rate, 1, 2)
	}
	return rate
}

// priorityMost is the highest multiple of its standard prices that a vendor is known to
// ask for priority. It differs from model to model, so that a model of which it is not
// stated may cost less, and hardly more. Vendors of which nothing is known are taken to
// ask no more than for others.
func (p *picker) priorityMost() Ratio {
	switch p.vendor() {
	case "azure", "azure_ai":
		return Ratio{5, 2}
	case "openai":
		return Ratio{2, 1}
	case "gemini", "vertex_ai":
		return Ratio{9, 5}
	default:
		return Ratio{1, 1}
	}
}

// halves reports whether the vendor sells the service at half its prices.
func (p *picker) halves() bool {
	switch p.vendor() {
	case "openai", "azure", "gemini", "vertex_ai", "bedrock":
		return p.service == Batch || p.service == Flex
	case "anthropic", "mistral", "groq":
		return p.service == Batch
	default:
		return false
	}
}

// fee is what a unit that is no token costs.
func (p *picker) fee(u Unit) (rate money.Rate, ok bool) {
	if p.timed == nil && !p.row.Rates.has(u) {
		return 0, false
	}
	if p.timed != nil {
		if rate, ok = p.timed.Base(u); ok {
			return rate, true
		}
	}
	for t := p.tier; t >= 0; t-- {
		if rate, ok = p.row.Rates.Get(u, Standard, t); ok {
			return rate, true
		}
	}
	return 0, false
}

// firstFee is the first fee of several that is not zero; ok is set if any is stated.
func (p *picker) firstFee(units ...Unit) (rate money.Rate, ok bool) {
	for _, u := range units {
		r, has := p.fee(u)
		ok = ok || has
		if r > 0 {
			return r, true
		}
	}
	return 0, ok
}

// mulDiv is rate × num / den, rounded half away from zero: a derived rate is a rate. den
// is above zero, and no other below it.
func mulDiv(rate, num, den money.Rate) money.Rate {
	if num == den {
		return rate
	}
	hi, lo := bits.Mul64(uint64(rate), uint64(num))
	if hi >= uint64(den) {
		return math.MaxInt64
	}
	q, rest := bits.Div64(hi, lo, uint64(den))
	if rest >= uint64(den)-rest {
		q++
	}
	return money.Rate(min(q, math.MaxInt64))
}
