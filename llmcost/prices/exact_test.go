package prices

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// calls are how many calls are compared with exact arithmetic.
const calls = 100_000

// caller makes calls of the models of a table, always the same ones.
type caller struct {
	*rand.Rand
	rows []*Row
}

func newCaller(t *Table) *caller {
	c := &caller{Rand: rand.New(rand.NewPCG(1, 2))}
	t.All(func(r *Row) bool {
		if r.usable() {
			c.rows = append(c.rows, r)
		}
		return true
	})
	slices.SortFunc(c.rows, func(a, b *Row) int {
		switch {
		case a.Key != b.Key:
			if a.Key < b.Key {
				return -1
			}
			return 1
		case a.Provider < b.Provider:
			return -1
		default:
			return a.From.Compare(b.From)
		}
	})
	return c
}

// count is a number of any magnitude up to a limit.
func (c *caller) count(limit int64) int64 {
	if c.IntN(3) == 0 {
		return 0
	}
	return min(limit, int64(math.Exp2(c.Float64()*21)))
}

// next is a call and the row that prices it.
func (c *caller) next() (*Call, *Match) {
	r := c.rows[c.IntN(len(c.rows))]
	in, out := c.count(1<<21), c.count(1<<20)
	u := usage.Usage{
		Input: in, CacheRead: c.count(in), Output: out, Reasoning: c.count(out),
		WebSearches: c.count(9), Pages: c.count(50), SearchUnits: c.count(9), AudioMillis: c.count(1 << 20),
	}
	u.CacheWrite5m = c.count(in - u.CacheRead)
	u.CacheWrite1h = c.count(in - u.CacheRead - u.CacheWrite5m)
	u.AudioOut = c.count(out - u.Reasoning)
	call := &Call{
		Provider: r.Provider, Usage: u, At: noon,
		Terms: usage.Terms{
			ServiceTier: [...]string{"", "default", "flex", "priority", "batch"}[c.IntN(5)],
			Speed:       [...]string{"", "fast"}[c.IntN(2)], Geo: [...]string{"", "us"}[c.IntN(2)],
		},
	}
	m := &Match{Row: r, Key: r.Key}
	if c.IntN(4) == 0 {
		m.scale = Ratio{11, 10}
	}
	return call, m
}

// exactly is the call's cost by rationals, at the rates that the row gives: every token
// of the call named once, and all of it rounded at the end.
func exactly(c *Call, m *Match) money.USD {
	provider := family(c.Provider)
	u := &c.Usage
	p := pick(m.Row, "", u.Input, c.service(provider), c.At, nil)
	sum, fees := new(big.Rat), new(big.Rat)
	add := func(to *big.Rat, n int64, rate money.Rate) {
		to.Add(to, new(big.Rat).Mul(new(big.Rat).SetInt64(n), big.NewRat(int64(rate), 1000)))
	}
	token := func(unit Unit, n int64) {
		rate, ok := p.rate(unit)
		if !ok && unit == Output {
			rate, _ = p.dearest()
		}
		add(sum, n, rate)
	}
	token(Input, u.Input-u.CacheRead-u.CacheWrite5m-u.CacheWrite1h)
	token(CacheRead, u.CacheRead)
	token(CacheWrite5m, u.CacheWrite5m)
	token(CacheWrite1h, u.CacheWrite1h)
	token(Output, u.Output-u.Reasoning-u.AudioOut)
	token(Reasoning, u.Reasoning)
	token(AudioOut, u.AudioOut)

	fee := func(unit Unit, n int64) {
		rate, _ := p.fee(unit)
		add(fees, n, rate)
	}
	fee(Request, 1)
	fee(Page, u.Pages)
	fee(Query, u.SearchUnits)
	if n := p.searches(u, provider, false); n > 0 {
		rate, _ := p.searchFee("", provider)
		add(fees, n, rate)
	}
	second, _ := p.firstFee(SecondIn, AudioSecondIn, SecondOut)
	add(fees, 1, 0)
	fees.Add(fees, new(big.Rat).Mul(big.NewRat(u.AudioMillis, 1000), big.NewRat(int64(second), 1000)))

	if c.Terms.Speed == "fast" {
		times(sum, m.Row.Fast)
	}
	if c.Terms.Geo == "us" {
		times(sum, m.Row.GeoUS)
	}
	times(sum, m.scale)
	sum.Add(sum, fees)
	return halfUp(sum)
}

func times(x *big.Rat, r Ratio) {
	if r.Den != 0 {
		x.Mul(x, big.NewRat(int64(r.Num), int64(r.Den)))
	}
}

// halfUp rounds what is not negative.
func halfUp(x *big.Rat) money.USD {
	twice := new(big.Int).Mul(x.Num(), big.NewInt(2))
	twice.Add(twice, x.Denom())
	return money.USD(twice.Quo(twice, new(big.Int).Mul(x.Denom(), big.NewInt(2))).Int64())
}

func TestIntegersAreExact(t *testing.T) {
	c := newCaller(largeTable(t))
	priced := 0
	for range calls {
		call, m := c.next()
		got := call.price(m, family(call.Provider), &call.Usage)
		if got.Status == Unpriced {
			continue
		}
		priced++
		if want := exactly(call, m); got.USD != want {
			t.Fatalf("%s of %s: got %s, want %s: %+v", m.Key, call.Provider, got.USD, want, call)
		}
	}
	if priced < calls/2 {
		t.Errorf("only %d calls had a price", priced)
	}
}

// TestEstimatesAreNeverBelowTheCost lets a call turn out as dear as it may.
func TestEstimatesAreNeverBelowTheCost(t *testing.T) {
	table := largeTable(t)
	c, b := newCaller(table), mustBook(t, table, Options{})
	hints := [...]string{"", "auto", "default", "flex", "priority"}
	compared := 0
	for range calls / 4 {
		call, m := c.next()
		call.Provider, call.Requested = m.Row.Provider, m.Row.Key
		call.At = noon.Add(time.Duration(c.IntN(400)) * time.Hour)
		call.Hints = usage.Hints{ServiceTier: hints[c.IntN(len(hints))], Speed: call.Terms.Speed}
		if call.standardAsked() && call.Terms.ServiceTier == "priority" {
			call.Terms.ServiceTier = "default"
		}
		call.TextOnly = true
		later := *call
		later.At = call.At.Add(time.Duration(c.IntN(24)) * time.Hour)
		actual := b.Price(&later)
		bound := b.Estimate(call, call.Usage.Input+c.count(1000), call.Usage.Output+c.count(1000))
		if actual.Status == Unpriced || bound.Status == Unpriced {
			continue
		}
		compared++
		if bound.USD < actual.USD {
			t.Fatalf("%s of %s: estimated %s, cost %s: %+v", m.Key, call.Provider, bound.USD, actual.USD, call)
		}
	}
	if compared < calls/8 {
		t.Errorf("only %d calls were compared", compared)
	}
}

// TestMoreTokensAreNeverCheaper adds tokens of any kind within a tier.
func TestMoreTokensAreNeverCheaper(t *testing.T) {
	c := newCaller(largeTable(t))
	rapid.Check(t, func(t *rapid.T) {
		c.Rand = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		call, m := c.next()
		provider := family(call.Provider)
		before := call.price(m, provider, &call.Usage)
		u := call.Usage
		n := rapid.Int64Range(1, 1000).Draw(t, "more")
		switch rapid.SampledFrom([]string{"input", "cache read", "cache write", "output", "reasoning", "audio"}).Draw(t, "kind") {
		case "input":
			u.Input += n
		case "cache read":
			u.Input += n
			u.CacheRead += n
		case "cache write":
			u.Input += n
			u.CacheWrite5m += n
		case "output":
			u.Output += n
		case "reasoning":
			u.Output += n
			u.Reasoning += n
		case "audio":
			u.Output += n
			u.AudioOut += n
		}
		if tier := func(in int64) int { p := pick(m.Row, "", in, Standard, noon, nil); return p.tier }; tier(u.Input) != tier(call.Usage.Input) {
			return
		}
		after := call.price(m, provider, &u)
		if before.Status != Unpriced && after.Status != Unpriced && after.USD < before.USD {
			t.Errorf("%s: %s, then %s for %+v", m.Key, before.USD, after.USD, u)
		}
	})
}

func TestExpectationsAreOfTextAsAskedFor(t *testing.T) {
	b := mustBook(t, NewTable(time.Time{}, []*Row{row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":1e-6,
		"input_cost_per_token_priority":2e-6,"input_cost_per_token_above_200k_tokens":3e-6,"output_cost_per_token":1e-6,
		"cache_creation_input_token_cost":9e-6,"input_cost_per_audio_token":5e-5,"output_cost_per_image":0.5}`)}), Options{})
	tests := []struct {
		name           string
		call           Call
		prompt, output int64
		expect, worst  string
	}{
		{"text", Call{TextOnly: true}, 1000, 1000, "0.002", "0.02"},
		{"a long prompt", Call{TextOnly: true}, 300_000, 0, "0.90", "16.20"},
		{"priority", Call{TextOnly: true, Hints: usage.Hints{ServiceTier: "priority"}}, 1000, 0, "0.002", "0.018"},
		{"no priority", Call{TextOnly: true, Hints: usage.Hints{ServiceTier: "default"}}, 1000, 0, "0.001", "0.009"},
		{"audio may come", Call{}, 1000, 0, "0.001", "0.10"},
		{"images are known", Call{TextOnly: true, Usage: usage.Usage{Images: 2, Input: 99}}, 0, 0, "1", "1"},
		{"less than nothing", Call{TextOnly: true}, -5, -5, "0", "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.call.Provider, tt.call.Requested, tt.call.At = "openai", "m", noon
			if got := b.Expect(&tt.call, tt.prompt, tt.output); got.USD.Short() != tt.expect || got.Status != Estimated {
				t.Errorf("expected %+v, want %s", got, tt.expect)
			}
			if got := b.Estimate(&tt.call, tt.prompt, tt.output); got.USD.Short() != tt.worst || got.Status != Estimated {
				t.Errorf("at worst %+v, want %s", got, tt.worst)
			}
		})
	}
	if got := b.Estimate(&Call{Provider: "openai", Requested: "x", At: noon}, 1, 1); got.Status != Unpriced || got.Why != whyUnknown {
		t.Errorf("an unknown model: %+v", got)
	}
}

func TestEstimatesKnowPricesOfTheNextDay(t *testing.T) {
	cheap := row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":1e-6}`)
	dear := row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":2e-6,"effective_from":"2026-10-28"}`)
	cheaper := row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":5e-7,"effective_from":"2026-10-28T12:00:00Z"}`)
	b := mustBook(t, NewTable(time.Time{}, []*Row{cheaper, dear, cheap}), Options{})
	for _, tt := range []struct {
		at          time.Time
		price, most string
	}{
		{noon.Add(-13 * time.Hour), "1", "1"},
		{noon, "1", "2"},
		{noon.Add(12*time.Hour - time.Nanosecond), "1", "2"},
		{noon.Add(12 * time.Hour), "2", "2"},
		{noon.Add(24 * time.Hour), "0.50", "0.50"},
	} {
		c := Call{Provider: "openai", Requested: "m", Usage: tokens(1_000_000, 0), At: tt.at, Hints: usage.Hints{ServiceTier: "default"}}
		if got := b.Price(&c).USD.Short(); got != tt.price {
			t.Errorf("%s: got %s, want %s", tt.at, got, tt.price)
		}
		if got := b.Estimate(&c, 1_000_000, 0).USD.Short(); got != tt.most {
			t.Errorf("%s: at most %s, want %s", tt.at, got, tt.most)
		}
	}
}

func TestCostsBeyondCountingAreTheLargest(t *testing.T) {
	b := mustBook(t, NewTable(time.Time{}, []*Row{row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":9000,
		"output_cost_per_token":9000,"provider_specific_entry":{"fast":60}}`)}), Options{})
	for _, speed := range []string{"", "fast"} {
		c := Call{Provider: "openai", Requested: "m", Usage: tokens(math.MaxInt64, math.MaxInt64), At: noon, Terms: usage.Terms{Speed: speed}}
		c.Other = []usage.ModelUsage{{Model: "m", Usage: tokens(math.MaxInt64, 0)}}
		if got := b.Price(&c); got.USD != math.MaxInt64 || !got.Approx {
			t.Errorf("got %+v", got)
		}
	}
}
