package usage

import (
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

func TestCountsAreReadAlikeWithAndWithoutParser(t *testing.T) {
	for _, raw := range []string{
		"0", "7", "-7", "-0", "28.0", "4.6e1", "1.5", `"34"`, `"-3"`, `"3.0"`, `""`, `"x"`, "null", "true", "1e300", "1e20",
		"9007199254740992", "9007199254740993", `"9007199254740993"`, "999999999999999", "99999999999999999999999", "-1e300",
	} {
		n, ok := countOf([]byte(raw))
		want, wantOK := readCount(gjson.Parse(raw))
		if ok != wantOK || ok && n != want {
			t.Errorf("%s: got %d, %t, want %d, %t", raw, n, ok, want, wantOK)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?`).Draw(t, "number")
		n, ok := countOf([]byte(raw))
		want, wantOK := readCount(gjson.Parse(raw))
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
