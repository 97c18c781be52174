package llmusage

import (
	"strconv"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Ways to round what is shown of dollars: nobody is to think that there is more left, or
// less used, than there is.
const (
	down = iota
	up
)

// Of a limit of a dollar or more, people are shown millionths. JSON tells all of it.
const (
	dollar    = int64(money.Dollar)
	millionth = dollar / 1_000_000
)

// amountOf is an amount under a rule as people read it: `1,234,567`, `90 s`, `$0.50`.
func amountOf(q *llmapp.Quota, n int64, rounded int) string {
	if rest := n % millionth; q.Unit == unitUSD && q.Limit >= dollar && rest != 0 {
		n -= rest
		switch {
		case rest > 0 && rounded == up:
			n += millionth
		case rest < 0 && rounded == down:
			n -= millionth
		}
	}
	text, err := q.Amount(n).MarshalJSON()
	if err != nil {
		return ""
	}
	return amountText(q.Unit, strings.Trim(string(text), `"`))
}

// amountText makes a decimal number readable. Dollars have two places at least.
func amountText(unit, number string) string {
	sign := ""
	if rest, ok := strings.CutPrefix(number, "-"); ok {
		sign, number = "-", rest
	}
	whole, fraction, _ := strings.Cut(number, ".")
	switch {
	case unit == unitUSD:
		for len(fraction) < 2 {
			fraction += "0"
		}
		return sign + "$" + grouped(whole) + "." + fraction
	case strings.HasSuffix(unit, "_seconds"):
		if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
			fraction = "." + fraction
		}
		return sign + grouped(whole) + fraction + " s"
	}
	return sign + grouped(whole)
}

// grouped sets off the thousands of a whole number.
func grouped(digits string) string {
	if len(digits) <= 3 {
		return digits
	}
	head := len(digits) % 3
	var b strings.Builder
	b.WriteString(digits[:head])
	for i := head; i < len(digits); i += 3 {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(digits[i : i+3])
	}
	return b.String()
}

// wait is a duration in one or two units, rounded up, so that who waits so long does not
// come too early.
func wait(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	up := func(unit time.Duration) int64 { u := int64(unit / time.Second); return (s + u - 1) / u }
	switch {
	case s <= 0:
		return "0 s"
	case s < 60:
		return strconv.FormatInt(s, 10) + " s"
	case up(time.Minute) < 60:
		return strconv.FormatInt(up(time.Minute), 10) + " min"
	case up(time.Minute) < 24*60:
		m := up(time.Minute)
		return pair(m/60, "h", m%60, "min")
	default:
		h := up(time.Hour)
		return pair(h/24, "d", h%24, "h")
	}
}

func pair(a int64, unitA string, b int64, unitB string) string {
	text := strconv.FormatInt(a, 10) + " " + unitA
	if b > 0 {
		text += " " + strconv.FormatInt(b, 10) + " " + unitB
	}
	return text
}
