package counter

import (
	"math"
	"math/bits"
)

// Add returns a+b, or the end of int64 that it would pass. Amounts are up to
// 10¹⁸ each, so that a few of them can.
func Add(a, b int64) int64 {
	c := a + b
	switch {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	}
	return c
}

// Sub returns a-b, or the end of int64 that it would pass.
func Sub(a, b int64) int64 {
	if b == math.MinInt64 {
		return Add(Add(a, math.MaxInt64), 1)
	}
	return Add(a, -b)
}

// abs returns the amount of n without its sign, math.MaxInt64 for the least.
func abs(n int64) int64 {
	if n < 0 {
		return Sub(0, n)
	}
	return n
}

// mulAdd returns (a·b+c)/d and the remainder. None may be negative, d not zero
// and c less than d. A quotient above math.MaxInt64 is given as that.
func mulAdd(a, b, c, d int64) (quo, rem int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c), 0)
	hi += carry
	if hi >= uint64(d) {
		return math.MaxInt64, 0
	}
	q, r := bits.Div64(hi, lo, uint64(d))
	if q > math.MaxInt64 {
		return math.MaxInt64, 0
	}
	return int64(q), int64(r)
}

// share returns the largest integer not above n·part/whole, where part is from
// 0 to whole.
func share(n, part, whole int64) int64 {
	if n >= 0 {
		q, _ := mulAdd(n, part, 0, whole)
		return q
	}
	q, r := mulAdd(abs(n), part, 0, whole)
	if r > 0 {
		q = Add(q, 1)
	}
	return -q
}
