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
