package pricing

import (
	"math"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

// What a token is taken to cost of which neither a table nor the provider has said it,
// in picodollars: $15 per million that are read and $75 that are generated, as the dearest
// models cost that are in common use. It is too much for nearly all, and nearly never
// counts: a provider that tells costs has only to be heard out a few times.
const (
	presumedInput  = 15_000_000
	presumedOutput = 75_000_000
)

// Presume implements meter.Presumer. Where models without a price pass since their
// provider tells what calls cost, one that is cut before it is told is not free: a client
// could hang up on each.
func (p *Pricer) Presume(q *meter.Priced, input, output int64) money.USD {
	if p.o.Unknown != Unpriced && p.o.Unknown != "" || !tellsCosts(p.o.Provider, q) {
		return 0
	}
	in, out := mul(input, presumedInput), mul(output, presumedOutput)
	return money.USD(min(in, math.MaxInt64-out) + out)
}

// tellsCosts tells whether a call is of a provider that reports what calls cost.
func tellsCosts(provider string, q *meter.Priced) bool {
	if provider == "" {
		provider = prices.ProviderOf(q.API, q.Host)
	}
	switch strings.ToLower(provider) {
	case "openrouter", "perplexity", "deepinfra", "xai", "x-ai", "x.ai", "grok":
		return true
	default:
		return false
	}
}

// mul multiplies numbers that are not negative, and stays at the largest.
func mul(a, b int64) int64 {
	if a > math.MaxInt64/b {
		return math.MaxInt64
	}
	return max(a, 0) * b
}

// Interface guard
var _ meter.Presumer = (*Pricer)(nil)
