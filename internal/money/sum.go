package money

import (
	"math"
	"math/bits"
)

// Sum adds up units times rates, exactly. The zero value is nothing. Counts and
// rates below zero count as zero.
type Sum struct {
	hi, lo uint64 // femtodollars
	over   bool
}

// Add adds the price of n units.
func (s *Sum) Add(n int64, r Rate) {
	if n <= 0 || r <= 0 {
		return
	}
	hi, lo := bits.Mul64(uint64(n), uint64(r))
	s.add(hi, lo)
}

// AddSum adds another sum.
func (s *Sum) AddSum(o Sum) {
	s.add(o.hi, o.lo)
	s.over = s.over || o.over
}

func (s *Sum) add(hi, lo uint64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi, carry = bits.Add64(s.hi, hi, carry)
	s.over = s.over || carry != 0
}

// Times multiplies by a whole number.
func (s *Sum) Times(n uint64) {
	over, hi := bits.Mul64(s.hi, n)
	carry, lo := bits.Mul64(s.lo, n)
	var c uint64
	s.lo = lo
	s.hi, c = bits.Add64(hi, carry, 0)
	s.over = s.over || over != 0 || c != 0
}

// Over is the sum divided by a whole number that is not zero, in picodollars, rounded
// half away from zero. ok is false if it is more than a USD holds; the largest amount
// is then returned.
func (s *Sum) Over(n uint64) (m USD, ok bool) {
	const femto = 1000 // in a picodollar
	div, scale := bits.Mul64(n, femto)
	if s.over || div != 0 || s.hi >= scale {
		return math.MaxInt64, false
	}
	q, r := bits.Div64(s.hi, s.lo, scale)
	if r >= scale-r {
		q++
	}
	if q > math.MaxInt64 || q == 0 && (s.hi != 0 || s.lo >= scale) {
		return math.MaxInt64, false
	}
	return USD(q), true
}
