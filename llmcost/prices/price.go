package prices

import (
	"math"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Reasons of a call's cost.
const (
	whyLacking      = "the row has no price for some of what was used"
	whyNothing      = "the row has no price for what was used"
	whyGiven        = "the row has no price for some of the tokens"
	whyInconsistent = "the reported usage contradicts itself"
	whyOther        = "a model used inside the call was priced as the call's own"
	whyUntold       = "the tokens of images were not told; the most that they take was charged"
	whyTool         = "the model of the image tool was not told; the dearest was charged"
	whyTooMuch      = "the cost is more than can be counted"
)

// Call is what is to be priced.
type Call struct {
	// Provider is LiteLLM's name of who is called; empty is told by Host and API.
	Provider string
	API      usage.API
	// Host is the upstream's name, with or without a port.
	Host string
	// Requested is the model that the request names, Served the one of the response.
	Requested, Served string

	Usage usage.Usage
	// Other is what other models used inside the call.
	Other []usage.ModelUsage
	Terms usage.Terms
	Hints usage.Hints
	// VideoMillis is how much video is made, in milliseconds.
	VideoMillis int64
	// Estimated is set if Usage is not what the provider reported.
	Estimated bool
	// TextOnly is set if the request holds no audio, images or video. It is a hint for
	// estimates.
	TextOnly bool
	// At is when the call ended, or is thought to end.
	At time.Time

	inner bool // a model inside the call: what is charged once is in the call's own price
}

// provider is the family of who is called.
func (c *Call) provider() string {
	if c.Provider != "" {
		return family(strings.ToLower(c.Provider))
	}
	return family(ProviderOf(c.API, c.Host))
}

// Price computes what a call cost. The provider's own word counts before the table
// where the vendor documents it, and the operator's price before both.
func (b *Book) Price(c *Call) Cost {
	found := b.find(c)
	m, provider := &found.match, found.provider
	if c.sized() {
		sized := *m
		b.size(&sized, provider, c)
		m = &sized
	}
	cost := c.price(m, provider, &c.Usage)
	for i := range c.Other {
		other := &c.Other[i]
		part := b.part(c, provider, other)
		if part.Status == Unpriced {
			// What an unknown helper used is better charged at a known rate than free.
			if part = c.part(m, provider, &other.Usage); part.Status != Unpriced {
				part.bound(whyOther)
			}
		}
		cost.add(&part)
	}
	cost.Calculated = cost.USD
	if usd, ok := c.reported(provider); ok && !m.Own {
		cost = Cost{USD: usd, Status: Reported, Key: cost.Key, Calculated: cost.USD}
	}
	return cost
}

// add adds the cost of a part of the call.
func (k *Cost) add(part *Cost) {
	if part.Status == Unpriced {
		k.bound(part.Why)
		return
	}
	switch {
	case k.Status == Unpriced:
		k.Status, k.Key = Estimated, part.Key
		k.Approx = true
	case part.Status == Estimated:
		k.Status = Estimated
	}
	if part.Approx {
		k.doubt(part.Why)
	}
	if k.USD > math.MaxInt64-part.USD {
		k.USD = math.MaxInt64
		return
	}
	k.USD += part.USD
}

// reported is what the provider says that the call cost, if it is one that documents
// to do so, in the field that it documents. Zero is believed only where it is meant, for
// a cost of zero is what proxies write that know none.
func (c *Call) reported(provider string) (usd money.USD, ok bool) {
	t := &c.Terms
	if !t.CostKnown || t.Cost < 0 || t.Cost == 0 && !t.CostFree {
		return 0, false
	}
	switch t.CostField {
	case "cost_in_usd_ticks":
		ok = provider == "xai"
	case "cost":
		ok = provider == "openrouter" || provider == "perplexity"
	case "cost.total_cost":
		ok = provider == "perplexity"
	case "estimated_cost":
		ok = provider == "deepinfra"
	}
	return t.Cost, ok
}

// price is the cost of the call's own model, by the row that was found.
func (c *Call) price(m *Match, provider string, u *usage.Usage) Cost {
	if !m.Priced() {
		why := m.Why
		if m.Row != nil {
			why = whyNoRates
		}
		return Cost{Key: m.Key, Why: why}
	}
	cost := Cost{Status: Calculated, Key: m.Key, Approx: m.Approx, Why: m.Why}
	if c.Estimated {
		cost.Status = Estimated
	}
	n, consistent := split(u)
	if !consistent {
		cost.doubt(whyInconsistent)
	}
	p := pick(m.Row, provider, n.prompt(), c.service(provider), c.At, &cost)
	var s sums
	lacking := s.addFees(c, u, &n, &p, provider)
	given := s.addTokens(&n, &p, s.charged)
	switch {
	case (lacking || given) && !s.charged:
		return Cost{Key: m.Key, Why: whyNothing}
	case given && !c.silent(m.Row):
		// A price of prompts alone is none of a call that writes.
		return Cost{Key: m.Key, Why: whyGiven}
	case lacking || given:
		cost.bound(whyLacking)
	}
	var ok bool
	if cost.USD, ok = s.total(c.factor(m.Row, m.scale, provider)); !ok {
		cost.doubt(whyTooMuch)
	}
	return cost
}

// silent reports whether calls put out no tokens, so that a row needs no price of them.
func (c *Call) silent(r *Row) bool { return !c.API.Generates() || r.silent() }

// imageTool is the dearest of the models that OpenAI's image tool runs.
const imageTool = "gpt-image-1"

// part is the cost of a model inside the call, by its own row.
func (b *Book) part(c *Call, provider string, other *usage.ModelUsage) Cost {
	name, u := other.Model, &other.Usage
	unnamed := name == "" && (u.Images > 0 || u.ImageOut > 0)
	if unnamed {
		name = imageTool
	}
	m := b.Resolve(provider, name, "", c.At)
	inner := c.inside()
	inner.Usage = *u
	b.size(&m, provider, &inner)
	part := inner.price(&m, provider, u)
	if unnamed && part.Status != Unpriced {
		part.bound(whyTool)
	}
	return part
}

// part is the cost of a model inside the call, by a row that was found.
func (c *Call) part(m *Match, provider string, u *usage.Usage) Cost {
	inner := c.inside()
	return inner.price(m, provider, u)
}

// inside is a call inside this one.
func (c *Call) inside() Call {
	return Call{
		inner: true, Host: c.Host, Terms: c.Terms, At: c.At, Estimated: c.Estimated,
		Hints: usage.Hints{
			ServiceTier: c.Hints.ServiceTier, Speed: c.Hints.Speed, SearchContext: c.Hints.SearchContext,
			ImageSize: c.Hints.ImageSize, ImageQuality: c.Hints.ImageQuality,
		},
	}
}

// service is how the call was served, as the response says. Where it says nothing, only
// a dearer service that was asked for is believed.
func (c *Call) service(provider string) Service {
	served := serviceOf(c.Terms.ServiceTier, provider)
	if c.Terms.ServiceTier == "" && serviceOf(c.Hints.ServiceTier, provider) == Priority {
		return Priority
	}
	return served
}

// serviceOf reads a provider's word. What a contract calls priority at Anthropic is
// capacity paid for in advance, at no other rates.
func serviceOf(word, provider string) Service {
	switch {
	case word == "":
		return Standard
	case strings.EqualFold(word, "flex"), strings.EqualFold(word, "on_demand_flex"):
		return Flex
	case strings.EqualFold(word, "batch"):
		return Batch
	case strings.EqualFold(word, "priority"), strings.EqualFold(word, "fast"), strings.EqualFold(word, "on_demand_priority"):
		if provider == "anthropic" {
			return Standard
		}
		return Priority
	default:
		return Standard
	}
}

// factor is what the rates of all tokens are multiplied by.
func (c *Call) factor(r *Row, scale Ratio, provider string) factor {
	f := one.times(scale)
	if strings.EqualFold(c.Terms.Speed, "fast") || c.Terms.Speed == "" && strings.EqualFold(c.Hints.Speed, "fast") {
		f = f.times(r.Fast)
	}
	if strings.EqualFold(c.Terms.Geo, "us") {
		f = f.times(r.GeoUS)
	}
	return f.times(regional(r, provider, c.Host))
}

// regional is the multiplier of the upstream's region.
func regional(r *Row, provider, host string) Ratio {
	host, _, _ = strings.Cut(host, ":")
	switch provider {
	case "openai":
		switch {
		case strings.EqualFold(host, "eu.api.openai.com"):
			return r.RegionalEU
		case strings.EqualFold(host, "us.api.openai.com"):
			return r.RegionalUS
		}
	case "vertex_ai":
		if host != "" && !strings.EqualFold(host, "aiplatform.googleapis.com") {
			return r.Regional
		}
	}
	return Ratio{}
}
