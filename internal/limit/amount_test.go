package limit

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseAmount(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want int64
	}{
		{"1", 1},
		{"1000", 1000},
		{"10_000", 10_000},
		{"1_0_0", 100},
		{"10k", 10_000},
		{"2.5M", 2_500_000},
		{"2.50M", 2_500_000},
		{"0.001k", 1},
		{"1.5k", 1500},
		{"3G", 3_000_000_000},
		{"3B", 3_000_000_000},
		{"1.000", 1},
		{"010", 10},
		{"9007199254740991", 1<<53 - 1},
		{"9007199.254740991G", 1<<53 - 1},
	} {
		t.Run(tc.in, func(t *testing.T) {
			got, err := ParseAmount(tc.in)
			if err != nil || got != tc.want {
				t.Errorf("got %d, %v; want %d", got, err, tc.want)
			}
		})
	}
}

func TestParseAmountRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", "not a number"},
		{"a suffix alone", "k", "not a number"},
		{"a fraction", "1.5", "not a whole number"},
		{"a fraction behind the suffix", "1.0005k", "not a whole number"},
		{"zero", "0", "greater than zero"},
		{"zero in full", "0.000k", "greater than zero"},
		{"a negative amount", "-5", "greater than zero"},
		{"a negative amount with a suffix", "-5k", "greater than zero"},
		{"dollars", "$0.10", "cost_limit"},
		{"one more than is exact", "9007199254740992", "larger than 9007199254740991"},
		{"far too much", "10000000000000000000000000000G", "larger than 9007199254740991"},
		{"an underscore in front", "_1", "not a number"},
		{"an underscore behind", "1_", "not a number"},
		{"an underscore before the suffix", "1_k", "not a number"},
		{"two underscores", "1__000", "not a number"},
		{"underscores alone", "_", "not a number"},
		{"an exponent", "1e3", "not a number"},
		{"hexadecimal", "0x10", "not a number"},
		{"a sign", "+5", "not a number"},
		{"a comma", "1,000", "not a number"},
		{"two points", "1.0.0k", "not a number"},
		{"a point in front", ".5k", "not a number"},
		{"a point behind", "5.k", "not a number"},
		{"an unknown suffix", "5T", "not a number"},
		{"a suffix in the wrong case", "5m", "not a number"},
		{"two suffixes", "5kk", "not a number"},
		{"digits of another script", "\u0661\u0662", "not a number"},
		{"full-width digits", "\uff11\uff10", "not a number"},
		{"a blank", "1 000", "not a number"},
		{"a word", "many", "not a number"},
		{"infinity", "Inf", "not a number"},
		{"a quotient", "10/2", "not a number"},
		{"a placeholder", "{env.LIMIT}", "not a number"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseAmount(tc.in)
			if err == nil {
				t.Fatalf("got %d, want an error", got)
			}
			for _, want := range []string{tc.want, strconv.Quote(tc.in)} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestParseAmountReadsEveryWholeNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Int64Range(1, maxAmount).Draw(t, "amount")
		digits := strconv.FormatInt(want, 10)
		if len(digits) > 1 {
			at := rapid.IntRange(1, len(digits)-1).Draw(t, "underscore")
			digits = digits[:at] + "_" + digits[at:]
		}
		if got, err := ParseAmount(digits); err != nil || got != want {
			t.Fatalf("%s: got %d, %v", digits, got, err)
		}
	})
}

// FuzzParseAmount holds what is read to its bounds, whatever is written.
func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"1", "10_000", "2.5M", "$1", "-1", "1e3", "0x1", "9007199254740992", "1__0", ".", "k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseAmount(s)
		if err == nil && (n < 1 || n > maxAmount) {
			t.Errorf("%q is read as %d", s, n)
		}
		if err != nil && n != 0 {
			t.Errorf("%q is read as %d beside the error %v", s, n, err)
		}
	})
}
