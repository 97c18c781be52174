// Package money holds dollars as integers: amounts in picodollars, rates in
// femtodollars per unit. Nothing passes through floating point, and a price is
// rounded once, half away from zero.
package money

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// USD is an amount of money in picodollars (10⁻¹² USD). An int64 of them holds
// $9.2M.
type USD int64

// Amounts to count in.
const (
	Picodollar USD = 1
	Dollar     USD = 1_000_000_000_000
)

// Rate is a price per unit (a token, a picture, a second) in femtodollars (10⁻¹⁵
// USD). An int64 of them holds $9,223.
type Rate int64

// decimals of the two types.
const (
	usdPlaces  = 12
	ratePlaces = 15
)

var (
	errSyntax = errors.New("not a decimal number")
	errRange  = errors.New("out of range")
	errFine   = errors.New("finer than a picodollar")
)

// ParseUSD reads a decimal amount of dollars, such as "12.50", "-0.000000000001" or
// "1_000". It refuses what is finer than a picodollar, exponents, and amounts that
// an int64 of picodollars does not hold.
func ParseUSD(s string) (USD, error) {
	d, err := parseDecimal(s)
	if err == nil && d.exp != 0 {
		err = errSyntax
	}
	if err != nil {
		return 0, fmt.Errorf("amount %q: %w", s, err)
	}
	n, exact, err := d.scaled(usdPlaces, math.MaxInt)
	if err == nil && !exact {
		err = errFine
	}
	if err != nil {
		return 0, fmt.Errorf("amount %q: %w", s, err)
	}
	return USD(n), nil
}

// RoundUSD reads a decimal amount of dollars as JSON writes numbers, with an exponent
// too, and rounds it to a picodollar, half away from zero.
func RoundUSD(s string) (USD, error) {
	d, err := parseDecimal(s)
	if err != nil {
		return 0, fmt.Errorf("amount %q: %w", s, err)
	}
	n, _, err := d.scaled(usdPlaces, math.MaxInt)
	if err != nil {
		return 0, fmt.Errorf("amount %q: %w", s, err)
	}
	return USD(n), nil
}

// significant is how many digits of a rate are believed: price tables are written by
// programs that computed them in binary floating point, such as
// 2.9999900000000002e-06.
const significant = 12

// ParseRate reads a price per unit in dollars as JSON writes numbers, such as
// "2.5e-06". It is rounded to 12 significant digits, which takes out the noise of
// binary floating point, and to a femtodollar. A rate is never negative.
func ParseRate(s string) (Rate, error) { return parseRate(s, ratePlaces) }

// ParseRatePerMillion reads a price in dollars per million units.
func ParseRatePerMillion(s string) (Rate, error) { return parseRate(s, ratePlaces-6) }

// ParseRatePerThousand reads a price in dollars per thousand units.
func ParseRatePerThousand(s string) (Rate, error) { return parseRate(s, ratePlaces-3) }

func parseRate(s string, places int) (Rate, error) {
	d, err := parseDecimal(s)
	if err != nil {
		return 0, fmt.Errorf("price %q: %w", s, err)
	}
	if d.negative {
		return 0, fmt.Errorf("price %q: less than nothing", s)
	}
	n, _, err := d.scaled(places, significant)
	if err != nil {
		return 0, fmt.Errorf("price %q: %w", s, err)
	}
	return Rate(n), nil
}

// decimal is a number as it is written: its digits, without leading zeros, stand for
// 0.digits × 10^point.
type decimal struct {
	negative bool
	digits   string
	point    int
	exp      int // as written; part of point already
}

func parseDecimal(s string) (d decimal, err error) {
	rest := s
	if rest != "" && (rest[0] == '-' || rest[0] == '+') {
		d.negative = rest[0] == '-'
		rest = rest[1:]
	}
	mantissa := rest
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		mantissa = rest[:i]
		if d.exp, err = strconv.Atoi(rest[i+1:]); err != nil || d.exp < -1000 || d.exp > 1000 {
			return decimal{}, errSyntax
		}
	}
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	if whole == "" && fraction == "" || dotted && fraction == "" || strings.ContainsRune(fraction, '_') {
		return decimal{}, errSyntax
	}
	if strings.HasPrefix(whole, "_") || strings.HasSuffix(whole, "_") || strings.Contains(whole, "__") {
		return decimal{}, errSyntax
	}
	whole = strings.ReplaceAll(whole, "_", "")
	for _, part := range []string{whole, fraction} {
		for i := range len(part) {
			if part[i] < '0' || part[i] > '9' {
				return decimal{}, errSyntax
			}
		}
	}
	all := whole + fraction
	digits := strings.TrimLeft(all, "0")
	d.point = len(whole) - (len(all) - len(digits)) + d.exp
	d.digits = strings.TrimRight(digits, "0")
	return d, nil
}

// scaled is the number times 10^places, rounded half away from zero, first to a
// number of digits. exact is false if rounding took something away.
func (d decimal) scaled(places, keep int) (n int64, exact bool, err error) {
	exact = true
	digits, point := d.digits, d.point
	if len(digits) > keep {
		exact = false
		digits, point = round(digits, keep, point)
	}
	want := point + places // how many digits stand before the point
	switch {
	case digits == "" || want < 0:
		return 0, exact && digits == "", nil
	case want > 19:
		return 0, false, errRange
	case want < len(digits):
		exact = false
		digits, point = round(digits, want, point)
		want = point + places
	}
	for len(digits) < want {
		digits += "0"
	}
	if digits == "" {
		return 0, exact, nil
	}
	u, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || u > math.MaxInt64 {
		return 0, false, errRange
	}
	n = int64(u)
	if d.negative {
		n = -n
	}
	return n, exact, nil
}

// round keeps n digits, half away from zero.
func round(digits string, n, point int) (rounded string, newPoint int) {
	up := digits[n] >= '5'
	b := []byte(digits[:n])
	if !up {
		return string(b), point
	}
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < '9' {
			b[i]++
			return string(b), point
		}
		b[i] = '0'
	}
	return "1" + string(b), point + 1
}

// String is the amount in dollars with all 12 decimals, such as "0.007500000000".
func (m USD) String() string { return string(m.AppendTo(make([]byte, 0, 24))) }

// AppendTo appends what String returns.
func (m USD) AppendTo(b []byte) []byte {
	u := uint64(m)
	if m < 0 {
		b = append(b, '-')
		u = -u
	}
	b = strconv.AppendUint(b, u/uint64(Dollar), 10)
	b = append(b, ".000000000000"...)
	fraction := u % uint64(Dollar)
	for i := len(b) - 1; fraction > 0; i-- {
		b[i] += byte(fraction % 10)
		fraction /= 10
	}
	return b
}

// Short is the amount in dollars without zeros that say nothing, such as "0.0075" and
// "12", but with two decimals where there are any: "0.10".
func (m USD) Short() string { return string(m.AppendShort(make([]byte, 0, 24))) }

// AppendShort appends what Short returns.
func (m USD) AppendShort(b []byte) []byte {
	start := len(b)
	b = m.AppendTo(b)
	b = b[:start+len(bytes.TrimRight(b[start:], "0"))]
	switch i := bytes.LastIndexByte(b, '.'); len(b) - i - 1 {
	case 0:
		return b[:i]
	case 1:
		return append(b, '0')
	default:
		return b
	}
}

// MarshalText implements encoding.TextMarshaler: in JSON an amount is a string.
func (m USD) MarshalText() ([]byte, error) { return m.AppendTo(nil), nil }

// UnmarshalText implements encoding.TextUnmarshaler. A JSON number is refused, for
// readers on the way pass numbers through floating point.
func (m *USD) UnmarshalText(b []byte) error {
	n, err := ParseUSD(string(b))
	if err != nil {
		return err
	}
	*m = n
	return nil
}
