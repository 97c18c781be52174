package usage

import (
	"math"
	"strconv"
)

// number returns the count that the last value at the position is, if it is one; see
// countOf. It does not allocate.
func (v view) number(p int) optional {
	raw := v.raw(p)
	if raw == nil {
		return optional{}
	}
	n, ok := countOf(raw)
	return optional{n, ok}
}

// countOf reads a count from raw JSON: a number, a float without a fraction or a string of
// digits. A negative count is 0; anything else is none.
func countOf(raw []byte) (int64, bool) {
	switch kindOf(raw) {
	case typeString:
		return countOfDigits(unquote(raw))
	case typeNumber:
	default:
		return 0, false
	}
	if n, ok := countOfDigits(raw); ok { // as nearly all are
		return n, true
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return max(0, n), n <= maxCount
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f > maxCount || f < -maxCount || f != math.Trunc(f) {
		return 0, false
	}
	return max(0, int64(f)), true
}

// countOfDigits reads a count that is written in digits and nothing else.
func countOfDigits[T string | []byte](digits T) (n int64, ok bool) {
	if len(digits) == 0 {
		return 0, false
	}
	for i := range len(digits) {
		c := digits[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int64(c-'0'); n > maxCount {
			return 0, false
		}
	}
	return n, true
}

// sum adds up the counts that stand in array elements at the position; known is set if
// there is one.
func (v view) sum(p int) (total optional) {
	v.each(p, func(_ int32, _ byte, raw []byte) {
		if n, ok := countOf(raw); ok {
			total.n += n
			total.known = true
		}
	})
	return total
}

// or returns o, or p where o is not known.
func (o optional) or(p optional) optional {
	if o.known {
		return o
	}
	return p
}
