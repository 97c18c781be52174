package meter

import "github.com/llmlimits/caddy-llm-limits/internal/money"

// addCost remembers what a call of a model cost.
func (l *learned) addCost(model string, usd money.USD) {
	u := l.entry(model)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.cost.add(int64(usd))
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

// Unlearned is what a call is expected to use, in tokens, while nothing is known of its
// model.
const Unlearned = unlearned
