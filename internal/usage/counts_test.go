package usage

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

// parsedCount is countOf by a parser of JSON and those of the standard library.
func parsedCount(v gjson.Result) (int64, bool) {
	s := v.Raw
	switch v.Type {
	case gjson.Number:
	case gjson.String:
		if s = v.Str; strings.Trim(s, "0123456789") != "" {
			return 0, false
		}
	default:
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > maxCount {
			return 0, false
		}
		n = int64(f)
	}
	return max(0, n), n <= maxCount
}

func TestCountsAreReadAlikeWithAndWithoutParser(t *testing.T) {
	for _, raw := range []string{
		"0", "7", "-7", "-0", "28.0", "4.6e1", "1.5", `"34"`, `"-3"`, `"3.0"`, `""`, `"x"`, `"\u0033"`, `"000000000000000000007"`, "null", "true", "1e300", "1e20",
		"9007199254740992", "9007199254740993", `"9007199254740993"`, "999999999999999", "99999999999999999999999", "-1e300",
	} {
		n, ok := countOf([]byte(raw))
		want, wantOK := parsedCount(gjson.Parse(raw))
		if ok != wantOK || ok && n != want {
			t.Errorf("%s: got %d, %t, want %d, %t", raw, n, ok, want, wantOK)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
		n, ok := countOf([]byte(raw))
		want, wantOK := parsedCount(gjson.Parse(raw))
		if ok != wantOK || ok && n != want {
			t.Fatalf("%s: got %d, %t, want %d, %t", raw, n, ok, want, wantOK)
		}
	})
}

func TestAbsentCountIsNone(t *testing.T) {
	if n, ok := countOf(nil); ok {
		t.Errorf("got %d", n)
	}
}
