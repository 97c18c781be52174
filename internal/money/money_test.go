package money

import (
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseUSD(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want USD
		err  string
	}{
		{in: "0", want: 0},
		{in: "10", want: 10 * Dollar},
		{in: "0.10", want: Dollar / 10},
		{in: ".5", want: Dollar / 2},
		{in: "-0.000000000001", want: -1},
		{in: "1_000_000", want: 1_000_000 * Dollar},
		{in: "0.000000000001000", want: 1},
		{in: "9223372.036854775807", want: math.MaxInt64},
		{in: "9223372.036854775808", err: "out of range"},
		{in: "1" + strings.Repeat("0", 400), err: "out of range"},
		{in: "0.0000000000001", err: "finer than a picodollar"},
		{in: "1e3", err: "not a decimal number"},
		{in: "", err: "not a decimal number"},
		{in: ".", err: "not a decimal number"},
		{in: "1.", err: "not a decimal number"},
		{in: "-", err: "not a decimal number"},
		{in: "1.2.3", err: "not a decimal number"},
		{in: "_1", err: "not a decimal number"},
		{in: "1__0", err: "not a decimal number"},
		{in: "1_", err: "not a decimal number"},
		{in: "0.1_0", err: "not a decimal number"},
		{in: "$1", err: "not a decimal number"},
		{in: "NaN", err: "not a decimal number"},
		{in: "Inf", err: "not a decimal number"},
		{in: "٣", err: "not a decimal number"},
	} {
		got, err := ParseUSD(tc.in)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("ParseUSD(%q) = %d, %v; want the error %q", tc.in, got, err, tc.err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("ParseUSD(%q) = %d, %v; want %d", tc.in, got, err, tc.want)
		}
	}
}

func TestRates(t *testing.T) {
	for _, tc := range []struct {
		parse func(string) (Rate, error)
		in    string
		want  Rate
	}{
		{ParseRate, "0.0000025", 2_500_000_000},
		{ParseRate, "2.5e-06", 2_500_000_000},
		{ParseRate, "2.5E-6", 2_500_000_000},
		{ParseRate, "2.9999900000000002e-06", 2_999_990_000},
		{ParseRate, "1.0000000000000002e-06", 1_000_000_000},
		{ParseRate, "9.999999999999999e-07", 1_000_000_000},
		{ParseRate, "0.017", 17_000_000_000_000},
		{ParseRate, "1.3e-10", 130_000},
		{ParseRate, "4e-16", 0},
		{ParseRate, "5e-16", 1},
		{ParseRate, "0", 0},
		{ParseRate, "0e999", 0},
		{ParseRatePerMillion, "2.5", 2_500_000_000},
		{ParseRatePerMillion, "0.000001", 1_000},
		{ParseRatePerThousand, "10", 10_000_000_000_000},
	} {
		if got, err := tc.parse(tc.in); err != nil || got != tc.want {
			t.Errorf("rate %q = %d, %v; want %d", tc.in, got, err, tc.want)
		}
	}
	for _, in := range []string{"-1", "1e5", "1e999", "1e99999", "abc", "1e", "0x10"} {
		if got, err := ParseRate(in); err == nil {
			t.Errorf("ParseRate(%q) = %d, want an error", in, got)
		}
	}
}

func TestRoundUSDRoundsHalfAwayFromZero(t *testing.T) {
	for in, want := range map[string]USD{
		"8.775e-06": 8_775_000, "0.0000000000005": 1, "-0.0000000000005": -1, "0.0000000000004999999": 0,
		"0.9999999999999": Dollar, "1e-400": 0,
	} {
		if got, err := RoundUSD(in); err != nil || got != want {
			t.Errorf("RoundUSD(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

func TestUSDIsWrittenAsDecimal(t *testing.T) {
	for m, want := range map[USD][2]string{
		0: {"0.000000000000", "0"}, 1: {"0.000000000001", "0.000000000001"},
		-Dollar / 10: {"-0.100000000000", "-0.10"}, 12 * Dollar: {"12.000000000000", "12"},
		7_500_000_000: {"0.007500000000", "0.0075"}, math.MaxInt64: {"9223372.036854775807", "9223372.036854775807"},
		math.MinInt64: {"-9223372.036854775808", "-9223372.036854775808"},
	} {
		if m.String() != want[0] || m.Short() != want[1] {
			t.Errorf("%d is written %s and %s, want %s and %s", int64(m), m, m.Short(), want[0], want[1])
		}
	}
}

func TestUSDInJSONIsAString(t *testing.T) {
	b, err := json.Marshal(map[string]USD{"amount": Dollar / 10})
	if err != nil || string(b) != `{"amount":"0.100000000000"}` {
		t.Errorf("marshalled as %s, %v", b, err)
	}
	var m USD
	if err := json.Unmarshal([]byte(`"0.10"`), &m); err != nil || m != Dollar/10 {
		t.Errorf("string read as %d, %v", m, err)
	}
	if err := json.Unmarshal([]byte(`0.10`), &m); err == nil {
		t.Error("a JSON number was taken")
	}
}

func TestUSDReadsWhatItWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := USD(rapid.Int64().Draw(t, "m"))
		for _, s := range []string{m.String(), m.Short()} {
			if got, err := ParseUSD(s); m != math.MinInt64 && (err != nil || got != m) {
				t.Fatalf("%s read as %d, %v; want %d", s, got, err, m)
			}
		}
	})
}

// TestSumIsExact compares with rationals.
func TestSumIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Sum
		exact := new(big.Rat)
		for range rapid.IntRange(0, 8).Draw(t, "terms") {
			n := rapid.Int64Range(-2, 1<<40).Draw(t, "n")
			r := rapid.Int64Range(-2, 1<<40).Draw(t, "rate")
			s.Add(n, Rate(r))
			if n > 0 && r > 0 {
				exact.Add(exact, new(big.Rat).SetInt(new(big.Int).Mul(big.NewInt(n), big.NewInt(r))))
			}
		}
		times := rapid.Uint64Range(0, 100).Draw(t, "times")
		over := rapid.Uint64Range(1, 100).Draw(t, "over")
		s.Times(times)
		exact.Mul(exact, new(big.Rat).SetFrac64(int64(times), int64(over)*1000))

		got, ok := s.Over(over)
		want, fits := roundAway(exact)
		if ok != fits || got != want {
			t.Fatalf("got %d (%t), want %d (%t)", got, ok, want, fits)
		}
	})
}

func roundAway(r *big.Rat) (USD, bool) {
	twice := new(big.Int).Mul(r.Num(), big.NewInt(2))
	twice.Add(twice, r.Denom())
	twice.Quo(twice, new(big.Int).Mul(r.Denom(), big.NewInt(2)))
	if !twice.IsInt64() {
		return math.MaxInt64, false
	}
	return USD(twice.Int64()), true
}

func TestSumStopsAtTheLargestAmount(t *testing.T) {
	var s Sum
	s.Add(math.MaxInt64, math.MaxInt64)
	if got, ok := s.Over(1); ok || got != math.MaxInt64 {
		t.Errorf("got %d, %t", got, ok)
	}
	s.Times(math.MaxUint64)
	s.Times(math.MaxUint64)
	if got, ok := s.Over(math.MaxUint64); ok || got != math.MaxInt64 {
		t.Errorf("after an overflow %d, %t", got, ok)
	}
}

func FuzzParseUSD(f *testing.F) {
	for _, s := range []string{"0.10", "1_000.5", "-3", "1e5", "9223372.036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := ParseUSD(s)
		if err != nil {
			return
		}
		r, ok := new(big.Rat).SetString(strings.ReplaceAll(s, "_", ""))
		if !ok {
			t.Fatalf("%q taken as %s", s, m)
		}
		if r.Cmp(big.NewRat(int64(m), int64(Dollar))) != 0 {
			t.Fatalf("%q taken as %s", s, m)
		}
	})
}

func BenchmarkSum(b *testing.B) {
	for b.Loop() {
		var s Sum
		s.Add(1200, 2_500_000_000)
		s.Add(300, 10_000_000_000)
		s.Times(11)
		if m, ok := s.Over(10); !ok || m == 0 {
			b.Fatal(m)
		}
	}
}
