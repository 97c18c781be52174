package meter

import (
	"math"
	"math/bits"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// outputWeight is how many tokens of a prompt cost as much as one that is generated, at
// most vendors about.
const outputWeight = 5

// addCost remembers what a call cost that used so much.
func (u *modelUse) addCost(usd money.USD, used *usage.Usage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cost.add(int64(usd))
	if n := weighted(used.Input, used.Output); n > 0 {
		u.rate.add(int64(usd) / n)
	}
}

// weighted adds up tokens by what they cost.
func weighted(input, output int64) int64 {
	if output > math.MaxInt64/outputWeight {
		return math.MaxInt64
	}
	output *= outputWeight
	if input > math.MaxInt64-output {
		return math.MaxInt64
	}
	return input + output
}

// typicalCost is what 95 of 100 calls stay under; ok is false while too few are known.
func (u *modelUse) typicalCost() (usd money.USD, ok bool) {
	if u == nil {
		return 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.cost.weight < learnEnough {
		return 0, false
	}
	return money.USD(u.cost.p95()), true
}

// costOf is what so many tokens cost at the rate that 95 of 100 calls stay under; ok is
// false while too few are known.
func (u *modelUse) costOf(input, output int64) (usd money.USD, ok bool) {
	if u == nil {
		return 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rate.weight < learnEnough {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(u.rate.p95()), uint64(weighted(input, output)))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64, true
	}
	return money.USD(lo), true
}

// Presumer is a pricer that has a guess where it has no price.
type Presumer interface {
	// Presume is what a call that has no price is taken to cost, which uses so many
	// tokens; 0 if the operator lets such calls pass uncharged.
	Presume(p *Priced, input, output int64) money.USD
}

// Presumed is what a call is taken to cost that has no price and uses so many tokens: as
// much for each as calls of its model have cost by their provider's own word, or while
// too few have, what p presumes; 0 if it presumes nothing.
func (c *Call) Presumed(p Pricer, q *Priced, input, output int64) money.USD {
	if usd, ok := c.known().costOf(input, output); ok {
		return usd
	}
	if p, ok := p.(Presumer); ok {
		return p.Presume(q, input, output)
	}
	return 0
}

// Unlearned is what a call is expected to use, in tokens, while nothing is known of its
// model.
const Unlearned = unlearned
