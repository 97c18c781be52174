package meter

import (
	"math"
	"net/http"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Variables of a request that tell what it cost, once its response has ended; they are empty
// before, and where the call was refused. Their values are strings by String.
const (
	VarCost       = "x-llm-cost"        // in USD, with 12 decimals; empty where the call is unpriced
	VarCostStatus = "x-llm-cost-status" // a CostStatus
)

// CostStatus says where the cost of a call comes from.
type CostStatus string

// The statuses of a cost. The empty one is that of a call which nobody prices.
const (
	CostCalculated CostStatus = "calculated" // by a price table, from what was reported
	CostReported   CostStatus = "reported"   // by the provider
	CostEstimated  CostStatus = "estimated"  // by a price table, from an estimate
	CostUnpriced   CostStatus = "unpriced"   // there is no price; the cost is unknown, not zero
)

// Priced is a call as a price table sees it, before or after it was made.
type Priced struct {
	API usage.API
	// Host is the upstream's name; empty where it is not known. It is never what the
	// client says, which must not choose its price.
	Host string
	// Requested is the model that the client asked for, and Served the one that
	// answered; empty where they are not known.
	Requested, Served string
	// Usage is what the serving model used, and Other what other models did.
	Usage usage.Usage
	Other []usage.ModelUsage
	Terms usage.Terms
	Hints usage.Hints
	// TextOnly is set if the request holds no pictures, recordings or documents.
	TextOnly bool
	// At is when the response ended, or now.
	At time.Time

	// Basis is what the price rests on. [Pricer.Price] sets it.
	Basis Basis
}

// Basis is what the price of a call rests on.
type Basis struct {
	// Key is the row of the table, or the glob of the operator's price; empty if none did.
	Key string
	// Approx is set if a rate had to be derived or was not the model's very own.
	Approx bool
}

// Pricer says what calls cost. It is safe for concurrent use, and comparable.
type Pricer interface {
	// Price is what a call costs that uses what it says. The status is never empty, and
	// the amount is 0 where it is unpriced.
	Price(p *Priced) (money.USD, CostStatus)
	// Expect is what a call is thought to cost that uses so many tokens. ok is false where
	// it has no price.
	Expect(p *Priced, input, output int64) (usd money.USD, ok bool)
	// Worst is the most that a call can cost which uses no more tokens, whichever way
	// it is served; never less for more tokens. ok is false where it has no price.
	Worst(p *Priced, input, output int64) (most money.USD, ok bool)
	// Denies tells whether a call that has no price is to be refused. budget is set
	// where a limit in dollars asks.
	Denies(budget bool) bool
}

// Price has the call priced by p when it ends. Of several that say so, the last counts,
// which is the innermost handler: it stands nearest to what it prices.
func (c *Call) Price(p Pricer) { c.pricer = p }

// PriceByDefault has the call priced by p if no handler brings prices of its own, further
// out or further in.
func (c *Call) PriceByDefault(p Pricer) { c.byDefault = p }

// Budgeted tells whether a limit in dollars counts the call.
func (c *Call) Budgeted() bool { return c.byDefault != nil }

// Pricer is the one that prices the call as things are; nil if none does.
func (c *Call) Pricer() Pricer {
	if c.pricer != nil {
		return c.pricer
	}
	return c.byDefault
}

// mostImages is how many pictures a call makes at most whose number stands in a member
// that is not read; vendors refuse more than half of it.
const mostImages = 10

// Priced is the call as a price table sees it before it is made, without usage but for
// the pictures and seconds that it asks for. The request must have been inspected.
func (c *Call) Priced() Priced {
	var p Priced
	c.ask(&p)
	return p
}

// ask is Priced, into p.
func (c *Call) ask(p *Priced) {
	q := c.Request
	*p = Priced{API: c.Endpoint.API, Requested: c.asked(), Hints: q.Hints, TextOnly: q.Media == 0, At: c.m.now()}
	switch p.API {
	case usage.OpenAIImages:
		p.Usage.Images = q.Choices
	case usage.VertexPredict, usage.BedrockInvoke:
		p.Usage.Images = mostImages
	case usage.OpenAIAudio:
		p.Usage.AudioMillis = heard(q)
	}
}

// made is the call as a price table sees it after it was made, but for what it used.
func (c *Call) made() Priced {
	p := c.Priced()
	p.Host = c.upstream()
	return p
}

// upstream is the host that was called last; empty where it is not known.
func (c *Call) upstream() (host string) {
	if c.repl != nil {
		host, _ = c.repl.GetString("http.reverse_proxy.upstream.host")
	}
	return host
}

// price works out what a call cost, once, before anybody is charged. The turns of a
// session have been priced one by one.
func (c *Call) price(o *Outcome) {
	p := c.Pricer()
	switch {
	case p == nil || c.Request == nil || o.CostStatus != "":
		return
	case o.Source == SourceNone && c.unseen(o):
		o.CostStatus = CostUnpriced
		return
	case o.Source == SourceNone:
		o.CostStatus = CostCalculated // nothing was used
		return
	}
	q := c.Asked(c.upstream())
	c.foreseen.priced = false // from here on it is the call as it was made
	q.At = c.m.now()
	asked := q.Usage
	q.Served, q.Usage, q.Other, q.Terms = o.ServedModel, o.Usage, o.Other, o.Terms
	if o.Source == SourceEstimated {
		q.estimate(&asked)
	}
	o.Cost, o.CostStatus = priceOf(p, q, o.told, o.Source)
	o.Basis = q.Basis
	if o.CostStatus == CostCalculated || o.CostStatus == CostReported {
		all := o.All()
		c.taught().addCost(o.Cost, &all)
	}
}

// estimate fills in what the request asked for, where the answer did not say it.
func (q *Priced) estimate(asked *usage.Usage) {
	if q.Usage.AudioMillis == 0 {
		q.Usage.AudioMillis = asked.AudioMillis
	}
	if q.Usage.Images == 0 {
		q.Usage.Images = asked.Images
	}
}

// priceTurn adds what a turn of a session cost, of which u is the usage.
func (c *Call) priceTurn(o *Outcome, t *usage.Turn, u *usage.Usage, source Source) {
	p := c.Pricer()
	if p == nil {
		return
	}
	q := c.made()
	q.Served, q.Usage, q.Other, q.Terms = o.ServedModel, *u, t.Other, t.Terms
	cost, status := priceOf(p, &q, told{u.Input, u.Output}, source)
	o.Basis = Basis{Key: q.Basis.Key, Approx: o.Basis.Approx || q.Basis.Approx}
	o.Cost = min(o.Cost, math.MaxInt64-cost) + cost
	switch {
	case o.CostStatus == CostUnpriced || status == CostUnpriced:
		o.CostStatus = CostUnpriced
	case o.CostStatus == CostEstimated:
	default:
		o.CostStatus = status
	}
}

// priceOf is what p says that a use costs, and by what. said is what of it the answer
// said.
func priceOf(p Pricer, q *Priced, said told, source Source) (money.USD, CostStatus) {
	if source == SourceEstimated && q.Usage.Images > 0 && said.output == 0 {
		// Size and quality say what pictures cost that are billed by the piece, and tokens
		// that are a guess must not hide it.
		pieces := *q
		pieces.Usage.Input, pieces.Usage.Output = said.input, 0
		cost, _ := p.Price(&pieces)
		q.Basis, pieces.Usage.Images = pieces.Basis, 0
		if rest, _ := p.Price(&pieces); cost > rest {
			return cost, CostEstimated
		}
	}
	cost, status := p.Price(q)
	switch {
	case source != SourceEstimated && status != CostUnpriced:
		return cost, status
	case source != SourceEstimated:
		return 0, status
	case status == CostUnpriced:
		// Tokens are a guess, and what is billed may be what the request shows: characters
		// to be spoken, the length of a recording.
		q.Usage.Input, q.Usage.Output = 0, 0
		if cost, status = p.Price(q); status == CostUnpriced || cost == 0 {
			return 0, CostUnpriced
		}
	case status == CostReported:
		// the answer was cut: what it said by then may not have been all
		q.Terms.CostKnown = false
		if other, s := p.Price(q); s != CostUnpriced {
			cost = max(cost, other)
		}
	}
	return cost, CostEstimated
}

// unseen tells whether a call may have spent what its answer does not say, by the
// operator's word.
func (c *Call) unseen(o *Outcome) bool {
	switch c.Endpoint.Class {
	case usage.Unmetered, usage.Upgrade:
		return o.Status/100 == 2 || o.Status == http.StatusSwitchingProtocols
	default:
		return c.Request.Background && o.Status/100 == 2
	}
}

// announce puts the variables that will tell the cost where they are looked for, if the call
// is priced as things are. It is called before the handlers behind run: when they have
// returned, what they left at work may be reading variables, and nobody writes there.
func (c *Call) announce(vars Vars) {
	if !c.announced && vars != nil && c.Pricer() != nil {
		c.announced = true
		c.carried.publish(vars)
	}
}

// tellCost says what the call cost in the variables for it.
func (c *Call) tellCost(vars Vars) {
	o := &c.result
	if o.CostStatus == "" {
		return
	}
	c.carried.status, c.carried.cost = text(o.CostStatus), ""
	if o.CostStatus != CostUnpriced {
		c.carried.cost = text(o.Cost.String())
	}
	if vars != nil {
		c.carried.publish(vars) // where only an attempt knew that there is a price
	}
}

// TypicalCost is what calls of the model cost, what 95 of 100 stay under; ok is false
// while too few are known.
func (c *Call) TypicalCost() (usd money.USD, ok bool) {
	return c.known().typicalCost()
}
