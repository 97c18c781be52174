package llmusage

import (
	"math"
	"strings"
	"testing"
)

func TestAccept(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []string
		html bool
	}{
		{"nothing", nil, false},
		{"anything", []string{"*/*"}, false},
		{"JSON", []string{"application/json"}, false},
		{"a browser", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"}, true},
		{"a page", []string{"text/html"}, true},
		{"any text", []string{"text/*"}, true},
		{"both", []string{"text/html, application/json"}, false},
		{"rather a page", []string{"application/json;q=0.5, text/html;q=0.6"}, true},
		{"rather JSON", []string{"application/json, text/html;q=0.9"}, false},
		{"in two fields", []string{"application/json;q=0.1", "text/html"}, true},
		{"no page", []string{"text/html;q=0, */*"}, false},
		{"the more specific counts", []string{"text/*;q=1, text/html;q=0.1, application/json;q=0.2"}, false},
		{"another case", []string{"TEXT/HTML"}, true},
		{"a weight that is none", []string{"text/html;q=x"}, false},
		{"a weight too large", []string{"text/html;q=2"}, false},
		{"no number", []string{"text/html;q=NaN"}, false},
		{"far behind", []string{strings.Repeat("a/b,", rangesMost) + "text/html"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := wantsHTML(tc.in); got != tc.html {
				t.Errorf("got %t", got)
			}
		})
	}
}

func FuzzAccept(f *testing.F) {
	f.Add("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html")
	f.Add("*/*;q=1e-3", "a/b;c=\",\"")
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, subtype := range []string{"html", "plain"} {
			if q := quality(one+","+two, "text", subtype); math.IsNaN(q) || q < 0 || q > 1 {
				t.Errorf("%q, %q: quality %v", one, two, q)
			}
		}
		if wantsHTML([]string{one, two}) != wantsHTML([]string{one + "," + two}) {
			t.Errorf("%q, %q: two fields are not one list", one, two)
		}
	})
}
