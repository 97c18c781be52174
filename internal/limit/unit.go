package limit

import (
	"fmt"
	"strconv"
	"strings"

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
	Images         Unit = "images"          // sent and generated
	AudioSeconds   Unit = "audio_seconds"   // of recordings that are sent, counted in milliseconds
	VideoSeconds   Unit = "video_seconds"   // of videos that are sent, counted in milliseconds
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
		units: []Unit{Requests, Tokens, InputTokens, OutputTokens, UncachedTokens, Images, AudioSeconds, VideoSeconds, Concurrent},
	}
	CostLimit = &Kind{directive: "cost_limit", example: "limit $10 per day", units: []Unit{USD}}
)

// dollars tells whether the amounts are prices, so that no rule says its unit.
func (k *Kind) dollars() bool { return k == CostLimit }

// Metered tells whether the amount of a call is known only from its response.
func (u Unit) Metered() bool { return u != Requests && u != Concurrent && !u.Media() }

// Media tells whether it counts pictures, recordings or videos, which the request shows.
func (u Unit) Media() bool { return u == Images || u.Seconds() }

// Seconds tells whether amounts are milliseconds inside, and seconds wherever people or
// programs read them.
func (u Unit) Seconds() bool { return u == AudioSeconds || u == VideoSeconds }

// milli is how many of what is counted are one of the unit.
const milli = 1000

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
	n, err := ParseAmount(s)
	if err != nil || !u.Seconds() {
		return n, err
	}
	if n > maxAmount/milli {
		return 0, fmt.Errorf("amount %q is larger than %d", s, int64(maxAmount/milli))
	}
	return n * milli, nil
}

// number is an amount as programs read it: dollars as a decimal, all else whole. Seconds
// are rounded down.
func (u Unit) number(n int64) string { return string(u.appendNumber(nil, n)) }

// appendNumber appends what number returns.
func (u Unit) appendNumber(b []byte, n int64) []byte {
	switch {
	case u == USD:
		return money.USD(n).AppendShort(b)
	case u.Seconds():
		n /= milli
	}
	return strconv.AppendInt(b, n, 10)
}

// words is an amount as people read it.
func (u Unit) words(n int64) string {
	if u == USD {
		if n < 0 {
			return "-$" + money.USD(-n).Short()
		}
		return "$" + money.USD(n).Short()
	}
	if u.Seconds() {
		return decimalSeconds(n)
	}
	return strconv.FormatInt(n, 10)
}

// decimalSeconds is milliseconds as seconds: `90`, `1.5`.
func decimalSeconds(n int64) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	whole := sign + strconv.FormatInt(n/milli, 10)
	if n%milli == 0 {
		return whole
	}
	return whole + strings.TrimRight(fmt.Sprintf(".%03d", n%milli), "0")
}
