package llmapp

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// unitUSD is the unit whose amounts are picodollars.
const unitUSD = "usd"

// amount is how much of a unit: in JSON a number, and of dollars a decimal string, since
// readers pass numbers through floating point.
type amount struct {
	n       int64
	dollars bool
}

func (r *RuleInfo) amount(n int64) amount { return amount{n, r.Unit == unitUSD} }

// MarshalJSON implements json.Marshaler.
func (a amount) MarshalJSON() ([]byte, error) {
	if a.dollars {
		return strconv.AppendQuote(nil, money.USD(a.n).Short()), nil
	}
	return strconv.AppendInt(nil, a.n, 10), nil
}

// UnmarshalJSON implements json.Unmarshaler: a string is dollars.
func (a *amount) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err == nil {
		usd, err := money.ParseUSD(text)
		*a = amount{int64(usd), true}
		return err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("amount %q is neither a whole number nor a decimal string", b)
	}
	*a = amount{n: n}
	return nil
}
