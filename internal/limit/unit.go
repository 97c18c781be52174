package limit

import (
	"strconv"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Unit is what a rule counts.
type Unit string

// The units of a rule.
const (
	Requests       Unit = "requests"
	Tokens         Unit = "tokens"
	InputTokens    Unit = "input_tokens"
	OutputTokens   Unit = "output_tokens"
	UncachedTokens Unit = "uncached_tokens" // all tokens but those read from a cache
	Concurrent     Unit = "concurrent"      // calls at one time; has no window
	USD            Unit = "usd"             // what calls cost, counted in picodollars
)

// Kind is what sets the limiters of one directive apart from those of another.
type Kind struct {
	directive string
	units     []Unit
	example   string // of a limit
}

// The kinds of limiters.
var (
	TokenLimit = &Kind{
		directive: "token_limit", example: "limit 10k tokens per hour",
		units: []Unit{Requests, Tokens, InputTokens, OutputTokens, UncachedTokens, Concurrent},
	}
	CostLimit = &Kind{directive: "cost_limit", example: "limit $10 per day", units: []Unit{USD}}
)

// dollars tells whether the amounts are prices, so that no rule says its unit.
func (k *Kind) dollars() bool { return k == CostLimit }

// Metered tells whether the amount of a call is known only from its response.
func (u Unit) Metered() bool { return u != Requests && u != Concurrent }

// Of is how much of a unit of tokens a usage is.
func (u Unit) Of(v *usage.Usage) int64 {
	switch u {
	case Tokens:
		return v.Total()
	case InputTokens:
		return v.Input
	case OutputTokens:
		return v.Output
	case UncachedTokens:
		return v.Uncached()
	default:
		return 0
	}
}

// parse reads an amount of the unit as a config has it.
func (u Unit) parse(s string) (int64, error) {
	if u == USD {
		return parseDollars(s)
	}
	return ParseAmount(s)
}

// number is an amount as programs read it: dollars as a decimal, all else whole.
func (u Unit) number(n int64) string {
	if u == USD {
		return money.USD(n).Short()
	}
	return strconv.FormatInt(n, 10)
}

// words is an amount as people read it.
func (u Unit) words(n int64) string {
	if u == USD {
		if n < 0 {
			return "-$" + money.USD(-n).Short()
		}
		return "$" + money.USD(n).Short()
	}
	return strconv.FormatInt(n, 10)
}
