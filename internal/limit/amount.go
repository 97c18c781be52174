package limit

import (
	"fmt"
	"math/big"
	"strings"
)

// maxAmount is the largest amount of a rule without money: beyond it a Redis
// script would no longer count exactly.
const maxAmount = 1<<53 - 1

// ParseAmount reads a whole number of requests, tokens or seconds, at least 1:
// `10_000`, `10k` or `2.5M`. What it returns is exact. The error quotes s.
func ParseAmount(s string) (int64, error) {
	digits, scale := s, int64(1)
	for suffix, by := range map[string]int64{"k": 1e3, "M": 1e6, "G": 1e9, "B": 1e9} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, scale = rest, by
			break
		}
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, badAmount(s)
	}
	digits = strings.ReplaceAll(digits, "_", "")
	if digits == "" || strings.Trim(digits, "0123456789.") != "" || strings.Count(digits, ".") > 1 ||
		strings.HasPrefix(digits, ".") || strings.HasSuffix(digits, ".") {
		return 0, badAmount(s)
	}
	r, ok := new(big.Rat).SetString(digits)
	if !ok {
		return 0, badAmount(s)
	}
	r.Mul(r, new(big.Rat).SetInt64(scale))
	switch {
	case !r.IsInt():
		return 0, fmt.Errorf("amount %q is not a whole number", s)
	case r.Sign() <= 0:
		return 0, fmt.Errorf("amount %q must be greater than zero", s)
	case r.Num().Cmp(big.NewInt(maxAmount)) > 0:
		return 0, fmt.Errorf("amount %q is larger than %d", s, int64(maxAmount))
	}
	return r.Num().Int64(), nil
}

func badAmount(s string) error {
	if strings.HasPrefix(s, "-") {
		return fmt.Errorf("amount %q must be greater than zero", s)
	}
	if strings.HasPrefix(s, "$") {
		return fmt.Errorf("amount %q is in dollars, which belong to cost_limit", s)
	}
	return fmt.Errorf("amount %q is not a number such as 1000, 10_000, 10k or 2.5M", s)
}
