package llmapp

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Units whose amounts are not counted as they are written.
const (
	unitUSD    = "usd"      // counted in picodollars
	unitSecond = "_seconds" // at the end: counted in milliseconds
)

// amount is how much of a unit: in JSON a number, and of dollars a decimal string, since
// readers pass numbers through floating point. Seconds may have three decimals.
type amount struct {
	n       int64
	dollars bool
	seconds bool
}

func (r *RuleInfo) amount(n int64) amount {
	return amount{n, r.Unit == unitUSD, strings.HasSuffix(r.Unit, unitSecond)}
}

// mostAmount bounds what operators set, as the config bounds its amounts: of dollars a
// million, and of all else what a script counts exactly. Seconds are milliseconds.
const (
	mostAmount  = 1<<53 - 1
	mostDollars = 1_000_000 * money.Dollar
)

// parse reads an amount of the rule's unit as an operator sends it: of dollars a decimal
// string, of all else a number, or a string of one. The error says what was expected.
func (r *RuleInfo) parse(raw json.RawMessage) (int64, error) {
	text := strings.Trim(string(raw), " \t\r\n")
	var s string
	quoted := json.Unmarshal(raw, &s) == nil && text != "null"
	if quoted {
		text = s
	}
	switch {
	case r.Unit == unitUSD:
		usd, err := money.ParseUSD(text)
		if !quoted || err != nil || usd > mostDollars || usd < -mostDollars {
			return 0, fmt.Errorf(`expected dollars as a decimal string such as "12.50", at most 1000000, not %s`, shown(raw))
		}
		return int64(usd), nil
	case strings.HasSuffix(r.Unit, unitSecond):
		n, err := parseMilli(text)
		if err != nil || n > mostAmount || n < -mostAmount {
			return 0, fmt.Errorf("expected seconds with at most three decimals, at most %d, not %s", mostAmount/1000, shown(raw))
		}
		return n, nil
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n > mostAmount || n < -mostAmount {
			return 0, fmt.Errorf("expected a whole number of %s, at most %d, not %s", r.Unit, int64(mostAmount), shown(raw))
		}
		return n, nil
	}
}

// parseMilli reads a decimal number as thousandths.
func parseMilli(s string) (int64, error) {
	whole, fraction, dotted := strings.Cut(s, ".")
	if dotted && (fraction == "" || len(fraction) > 3) || whole == "" || strings.Trim(fraction, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(whole+fraction+"000"[len(fraction):], 10, 64)
}

// MarshalJSON implements json.Marshaler.
func (a amount) MarshalJSON() ([]byte, error) {
	switch {
	case a.dollars:
		return strconv.AppendQuote(nil, money.USD(a.n).Short()), nil
	case a.seconds && a.n%1000 != 0:
		return strconv.AppendFloat(nil, float64(a.n)/1000, 'f', 3, 64), nil
	case a.seconds:
		return strconv.AppendInt(nil, a.n/1000, 10), nil
	}
	return strconv.AppendInt(nil, a.n, 10), nil
}

// UnmarshalJSON implements json.Unmarshaler: a string is dollars, and a number with a
// fraction is seconds.
func (a *amount) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		usd, err := money.ParseUSD(text)
		*a = amount{n: int64(usd), dollars: true}
		return err
	}
	if n, err := strconv.ParseInt(string(b), 10, 64); err == nil {
		*a = amount{n: n}
		return nil
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.Abs(f) > math.MaxInt64/1e6 {
		return fmt.Errorf("amount %q is neither a number nor a decimal string", b)
	}
	*a = amount{n: int64(math.Round(f * 1000)), seconds: true}
	return nil
}

// String is the amount as JSON has it, without quotes.
func (a amount) String() string {
	b, err := a.MarshalJSON()
	if err != nil {
		return ""
	}
	return strings.Trim(string(b), `"`)
}
