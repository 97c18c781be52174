package limit

import "github.com/llmlimits/caddy-llm-limits/internal/usage"

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
)

// units are those that token_limit counts.
var units = []Unit{Requests, Tokens, InputTokens, OutputTokens, UncachedTokens, Concurrent}

// Metered tells whether the amount of a call is known only from its response.
func (u Unit) Metered() bool { return u != Requests && u != Concurrent }

// Of is how much of the unit a usage is.
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
