package usage

import (
	"math"
	"strconv"
)

// maxDigits is how many digits every count has room for.
const maxDigits = 15

// number returns the count that the last value at the position is, if it is one; see
// readCount. It does not allocate.
func (v view) number(p int) optional {
	raw := v.raw(p)
	if raw == nil {
		return optional{}
	}
	n, ok := countOf(raw)
	return optional{n, ok}
}

// countOf reads a count from raw JSON, as readCount does.
func countOf(raw []byte) (int64, bool) {
	if len(raw) > 2 && raw[0] == typeString {
		raw = raw[1 : len(raw)-1]
		for _, c := range raw {
			if c < '0' || c > '9' {
				return 0, false
			}
		}
	}
	if len(raw) == 0 {
		return 0, false
	}
	// Nearly all are a few digits.
	if len(raw) <= maxDigits {
		var n int64
		plain := true
		for _, c := range raw {
			if c < '0' || c > '9' {
				plain = false
				break
			}
			n = n*10 + int64(c-'0')
		}
		if plain {
			return n, true
		}
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
