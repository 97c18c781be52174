package usage

import (
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// maxCost is the largest cost of a call that is believed.
const maxCost = 1_000_000 * money.Dollar

// tick is xAI's: there are 10¹⁰ of them in a dollar.
const tick = money.Dollar / 1e10

// reportedCost is what a usage object says that the call cost, in the words of those who
// say so. Who is to be believed is not decided here.
type reportedCost struct {
	ticks     optional // cost_in_usd_ticks: xAI
	cost      dollars  // cost: OpenRouter, Perplexity
	total     dollars  // cost.total_cost: Perplexity
	estimated dollars  // estimated_cost: DeepInfra
	upstream  dollars  // cost_details.upstream_inference_cost: OpenRouter
	ownKey    bool     // is_byok: OpenRouter; the upstream is paid apart
}

// dollars is an amount that may not have been said.
type dollars struct {
	usd   money.USD
	known bool
}

// set takes an amount if raw JSON is a number that can be one. It never passes through floating
// point.
func (d *dollars) set(v []byte) {
	if kindOf(v) != typeNumber {
		return
	}
	if usd, err := money.RoundUSD(string(v)); err == nil && usd >= 0 && usd <= maxCost {
		*d = dollars{usd, true}
	}
}

// take takes a member of a usage object, if it is about the cost.
func (c *reportedCost) take(name, v []byte) {
	switch string(name) {
	case "cost_in_usd_ticks":
		c.ticks.set(v)
	case "cost":
		c.cost.set(v)
		c.total.set(memberOf(v, "total_cost"))
	case "estimated_cost":
		c.estimated.set(v)
	case "is_byok":
		c.ownKey = kindOf(v) == typeTrue
	case "cost_details":
		c.upstream.set(memberOf(v, "upstream_inference_cost"))
	}
}

// sum is what the call cost in all, and the field that says so.
func (c *reportedCost) sum() (usd money.USD, field string, ok bool) {
	switch {
	case c.ticks.known:
		return money.USD(c.ticks.n) * tick, "cost_in_usd_ticks", true
	case c.cost.known && c.ownKey:
		// The fee of the go-between, and what the owner of the key pays upstream: the fee
		// alone is not what the call cost.
		return c.cost.usd + c.upstream.usd, "cost", c.upstream.known
	case c.cost.known:
		return c.cost.usd, "cost", true
	case c.total.known:
		return c.total.usd, "cost.total_cost", true
	case c.estimated.known:
		return c.estimated.usd, "estimated_cost", true
	}
	return 0, "", false
}

// takeCost takes the cost that a document reports. Each is of the whole call so far: the
// last one counts, but zeros never erase a cost.
func (t *Terms) takeCost(c *reportedCost) {
	t.CostFree = t.CostFree || c.ownKey && c.upstream.known
	if usd, field, ok := c.sum(); ok && (usd > 0 || !t.CostKnown) {
		t.Cost, t.CostKnown, t.CostField = usd, true, field
	}
}

// freeSuffix marks the models of OpenRouter that cost nothing.
const freeSuffix = ":free"

// settle decides what depends on the model: the one that served, empty if the response
// names none, and the one that was asked for. Some name what served without the mark.
func (t *Terms) settle(served, asked string) {
	base, free := strings.CutSuffix(asked, freeSuffix)
	t.CostFree = t.CostFree || strings.HasSuffix(served, freeSuffix) || free && (served == "" || served == base)
}

// maxTerm is the longest word that is kept of what a response says, in bytes.
const maxTerm = 64

// say sets a word of a response: the last one counts, and an empty one or one that is too
// long erases nothing. The same again does not allocate.
func say[T string | []byte](field *string, word T) {
	if n := len(word); n > 0 && n <= maxTerm && *field != string(word) {
		*field = string([]byte(word))
	}
}

// takeTerms takes what another part of the response says.
func (t *Terms) takeTerms(from *Terms) {
	say(&t.ServiceTier, from.ServiceTier)
	say(&t.Speed, from.Speed)
	say(&t.Geo, from.Geo)
	say(&t.SearchContext, from.SearchContext)
	t.CostFree = t.CostFree || from.CostFree
	if from.CostKnown && (from.Cost > 0 || !t.CostKnown) {
		t.Cost, t.CostKnown, t.CostField = from.Cost, true, from.CostField
	}
}
