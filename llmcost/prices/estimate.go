package prices

import (
	"math"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Expect is what a call is thought to cost: so many tokens of uncached text in and out,
// served as asked for. c.Usage holds what else is known beforehand: images, seconds,
// pages; its tokens are ignored. Nothing is kept of the call's result.
func (b *Book) Expect(c *Call, prompt, output int64) Cost {
	asked := *c
	asked.Usage = known(&c.Usage)
	asked.Usage.Input, asked.Usage.Output = max(prompt, 0), max(output, 0)
	asked.Other, asked.Served, asked.Estimated = nil, "", true
	asked.Terms = usage.Terms{ServiceTier: c.Hints.ServiceTier, Speed: c.Hints.Speed}
	return b.Price(&asked)
}

// known is a call's usage without its tokens.
func known(u *usage.Usage) usage.Usage {
	return usage.Usage{
		Images: u.Images, WebSearches: u.WebSearches, Grounded: u.Grounded, AudioMillis: u.AudioMillis, Pages: u.Pages,
		SearchUnits: u.SearchUnits, FileSearches: u.FileSearches, CodeSessions: u.CodeSessions, Annotated: u.Annotated,
	}
}

// horizon is how long a call may last, during which its price may change.
const horizon = 24 * time.Hour

// Estimate is the most that a call of the requested model can cost that uses at most so
// many tokens: all of them of the dearest kind, in the dearest tier that the prompt can
// reach, service, hour and region, at prices in force within a day. c.Usage holds what
// else is used, as in [Book.Expect]. The bound is of the book's prices: neither of what
// a provider may report that tells its costs itself, nor of another model that may
// serve, nor of citations and tools that are not in c.Usage.
func (b *Book) Estimate(c *Call, prompt, output int64) Cost {
	worst := Cost{Why: whyUnnamed}
	asked := *c
	asked.Usage, asked.Served = known(&c.Usage), ""
	for end := c.At.Add(horizon); !asked.At.After(end); {
		found := b.find(&asked)
		m, provider := found.match, found.provider
		b.size(&m, provider, &asked)
		if !m.Priced() {
			if worst.Status == Unpriced {
				worst.Key, worst.Why = m.Key, m.Why
				if m.Row != nil {
					worst.Why = whyNoRates
				}
			}
			break
		}
		if m.Row.lopsided(prompt, output) && !c.silent(m.Row) {
			return Cost{Key: m.Key, Why: whyGiven}
		}
		usd := asked.worst(&m, provider, max(prompt, 0), max(output, 0))
		if worst.Status == Unpriced || usd > worst.USD {
			worst = Cost{USD: usd, Status: Estimated, Key: m.Key, Approx: m.Approx, Why: m.Why, Calculated: usd}
		}
		if m.Row.Until.IsZero() {
			break
		}
		asked.At = m.Row.Until
	}
	return worst
}

// worst is the most that a call can cost by one row.
func (c *Call) worst(m *Match, provider string, prompt, output int64) money.USD {
	p := pick(m.Row, provider, prompt, Standard, c.At, nil)
	f := c.worstFactor(m, provider)
	var most money.USD
	for hour := -1; hour < len(m.Row.Timed); hour++ {
		p.timed = nil
		if hour >= 0 {
			p.timed = &m.Row.Timed[hour].Rates
		}
		for tier := range len(m.Row.Tiers) + 1 {
			if tier > 0 && !m.Row.Tiers[tier-1].applies(prompt) {
				break
			}
			p.tier = tier
			for s := Standard; s < numServices; s++ {
				if s == Priority && c.standardAsked() {
					continue
				}
				p.service = s
				most = max(most, c.dearest(&p, f, provider, prompt, output))
			}
		}
	}
	return most
}

// standardAsked reports whether the request rules priority out.
func (c *Call) standardAsked() bool {
	switch strings.ToLower(c.Hints.ServiceTier) {
	case "default", "standard", "standard_only", "flex", "batch":
		return true
	default:
		return false
	}
}

// dearest is the price of a call all of whose tokens are of the dearest kind.
func (c *Call) dearest(p *picker, f factor, provider string, prompt, output int64) money.USD {
	var s sums
	var n buckets
	s.addFees(c, &c.Usage, &n, p, provider)
	output = max(output, n[ImageOut]) // of images that no fee pays for
	in := p.most(promptUnits[:], c.TextOnly)
	s.tokens.Add(prompt, in)
	out := p.most(outputUnits[:], false)
	if _, ok := p.rate(Output); !ok {
		if r, has := p.dearest(); has {
			out = max(out, r)
		}
	}
	s.tokens.Add(output, out)
	usd, ok := s.total(f)
	if !ok {
		return math.MaxInt64
	}
	return usd
}

// most is the highest rate of some kinds of tokens, of which the first is text.
func (p *picker) most(units []Unit, text bool) money.Rate {
	var most money.Rate
	for i, u := range units {
		switch u {
		case AudioIn, AudioCached, ImageIn, ImageCached, VideoIn:
			if text {
				continue
			}
		}
		if i > 0 && !p.mayDiffer(u) {
			continue
		}
		rate, _ := p.rate(u)
		most = max(most, rate)
	}
	return most
}

// mayDiffer tells whether a kind of tokens may cost another thing than all those do that
// the row says nothing of; see [picker.rate].
func (p *picker) mayDiffer(u Unit) bool {
	switch u {
	case CacheWrite1h:
		return true
	case AudioCached:
		return p.mentions(AudioCached) || p.mentions(AudioIn)
	case ImageCached:
		return p.mentions(ImageCached) || p.mentions(ImageIn)
	default:
		return p.mentions(u)
	}
}

// mentions tells whether any rate of a unit is stated.
func (p *picker) mentions(u Unit) bool {
	return p.row.Rates.has(u) || p.timed != nil && p.timed.has(u)
}

// worstFactor is the highest multiplier of tokens that can apply: what must be asked
// for only if it is, what an account may be set to in any case.
func (c *Call) worstFactor(m *Match, provider string) factor {
	f := one.times(m.scale)
	r := m.Row
	if strings.EqualFold(c.Hints.Speed, "fast") && r.Fast.above() {
		f = f.times(r.Fast)
	}
	if r.GeoUS.above() {
		f = f.times(r.GeoUS)
	}
	if c.Host != "" {
		return f.times(regional(r, provider, c.Host))
	}
	dearest := Ratio{}
	for _, region := range [...]Ratio{r.RegionalEU, r.RegionalUS, r.Regional} {
		if region.above() && (dearest.Den == 0 || uint64(region.Num)*uint64(dearest.Den) > uint64(dearest.Num)*uint64(region.Den)) {
			dearest = region
		}
	}
	return f.times(dearest)
}
