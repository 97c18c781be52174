package counter

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// saturated returns n as an int64, or the end that it passes.
func saturated(n *big.Int) int64 {
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}

// anyInt64 draws the ends of int64 and what is near them more often than others.
func anyInt64() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64(),
		rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}),
	)
}

func TestSumsStopAtTheEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyInt64().Draw(t, "a"), anyInt64().Draw(t, "b")
		x, y := big.NewInt(a), big.NewInt(b)
		if got, want := Add(a, b), saturated(new(big.Int).Add(x, y)); got != want {
			t.Errorf("%d + %d is %d, want %d", a, b, got, want)
		}
		if got, want := Sub(a, b), saturated(new(big.Int).Sub(x, y)); got != want {
			t.Errorf("%d - %d is %d, want %d", a, b, got, want)
		}
		if got, want := abs(a), saturated(new(big.Int).Abs(x)); got != want {
			t.Errorf("|%d| is %d, want %d", a, got, want)
		}
	})
}

func TestProductsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(0).Draw(t, "b")
		d := rapid.Int64Min(1).Draw(t, "d")
		c := rapid.Int64Range(0, d-1).Draw(t, "c")
		n := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		n.Add(n, big.NewInt(c))
		quo, rem := n.QuoRem(n, big.NewInt(d), new(big.Int))
		gotQuo, gotRem := mulAdd(a, b, c, d)
		if want := saturated(quo); gotQuo != want {
			t.Errorf("(%d·%d+%d)/%d is %d, want %d", a, b, c, d, gotQuo, want)
		}
		if quo.IsInt64() && quo.Int64() != math.MaxInt64 && gotRem != rem.Int64() {
			t.Errorf("(%d·%d+%d)/%d leaves %d, want %d", a, b, c, d, gotRem, rem)
		}
	})
}

func TestSharesAreRoundedDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := anyInt64().Draw(t, "n")
		whole := rapid.Int64Min(1).Draw(t, "whole")
		part := rapid.Int64Range(0, whole).Draw(t, "part")
		want := new(big.Int).Mul(big.NewInt(n), big.NewInt(part))
		want.Div(want, big.NewInt(whole)) // Euclidean: down, for a positive divisor
		got := share(n, part, whole)
		if n == math.MinInt64 { // its amount is cut by one
			want.SetInt64(max(want.Int64(), got))
		}
		if got != want.Int64() {
			t.Errorf("%d·%d/%d is %d, want %d", n, part, whole, got, want)
		}
	})
}
