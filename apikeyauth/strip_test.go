package apikeyauth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTakeFindsKeysInTheirPlaces(t *testing.T) {
	own := []HeaderPlace{{Name: "x-team-key"}, {Name: "Authorization", Prefix: "Token"}, {Name: "X-Signed", Prefix: "key="}}
	for _, tc := range []struct {
		name    string
		headers []HeaderPlace
		query   []string
		target  string
		sent    []string // name, value, …
		want    string
		err     error
	}{
		{name: "bearer", sent: []string{"Authorization", "Bearer k"}, want: "k"},
		{name: "bearer in another case", sent: []string{"Authorization", "bEARER   k "}, want: "k"},
		{name: "bearer and a tab", sent: []string{"Authorization", "Bearer\tk"}, want: "k"},
		{name: "Anthropic", sent: []string{"X-Api-Key", "k"}, want: "k"},
		{name: "Azure", sent: []string{"Api-Key", "k"}, want: "k"},
		{name: "Gemini", sent: []string{"X-Goog-Api-Key", "k"}, want: "k"},
		{name: "the same key in two places", sent: []string{"Authorization", "Bearer k", "X-Api-Key", "k"}, want: "k"},
		{name: "nothing", err: errNoKey},
		{name: "basic", sent: []string{"Authorization", "Basic a2V5"}, err: errNoKey},
		{name: "a scheme that begins alike", sent: []string{"Authorization", "Bearerk"}, err: errNoKey},
		{name: "a scheme without a key", sent: []string{"Authorization", "Bearer "}, err: errNoKey},
		{name: "no scheme", sent: []string{"Authorization", "k"}, err: errNoKey},
		{name: "an empty header", sent: []string{"X-Api-Key", ""}, err: errNoKey},
		{name: "an empty header beside a key", sent: []string{"X-Api-Key", "", "Api-Key", "k"}, want: "k"},
		{name: "a query nobody configured", target: "/?key=k", err: errNoKey},
		{name: "two keys", sent: []string{"Authorization", "Bearer k", "X-Api-Key", "l"}, err: errTwoKeys},
		{name: "two keys in one place", sent: []string{"X-Api-Key", "k", "X-Api-Key", "l"}, err: errTwoKeys},
		{name: "many keys", sent: []string{"X-Api-Key", "a", "X-Api-Key", "b", "X-Api-Key", "c", "X-Api-Key", "d", "X-Api-Key", "e"}, err: errTwoKeys},
		{name: "two keys in one value", sent: []string{"Authorization", "Bearer k, Bearer l"}, want: "k, Bearer l"},

		{name: "own header", headers: own, sent: []string{"X-Team-Key", "k"}, want: "k"},
		{name: "own prefix", headers: own, sent: []string{"Authorization", "token k"}, want: "k"},
		{name: "own prefix that is no word", headers: own, sent: []string{"X-Signed", "KEY=k"}, want: "k"},
		{name: "default prefix where another is configured", headers: own, sent: []string{"Authorization", "Bearer k"}, err: errNoKey},
		{name: "default place where others are configured", headers: own, sent: []string{"X-Api-Key", "k"}, err: errNoKey},
		{name: "a key in a default place is not one of two", headers: own, sent: []string{"X-Api-Key", "l", "X-Team-Key", "k"}, want: "k"},

		{name: "query", query: []string{"key"}, target: "/?a=1&key=k&b=2", want: "k"},
		{name: "query, encoded", query: []string{"key"}, target: "/?k%65y=%6B%2b", want: "k+"},
		{name: "query, plus sign not encoded", query: []string{"key"}, target: "/?key=a+b", want: "a+b"},
		{name: "query, broken encoding", query: []string{"key"}, target: "/?key=%zz", want: "%zz"},
		{name: "query twice", query: []string{"key"}, target: "/?key=k&key=l", err: errTwoKeys},
		{name: "query behind a semicolon", query: []string{"key"}, target: "/?a=1;key=k", want: "k"},
		{name: "query in another case", query: []string{"key"}, target: "/?KEY=k", err: errNoKey},
		{name: "query, empty", query: []string{"key"}, target: "/?key=&key", err: errNoKey},
		{name: "query and header", query: []string{"key"}, headers: own, target: "/?key=k", sent: []string{"X-Team-Key", "l"}, err: errTwoKeys},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := newPlaces(tc.headers, tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if tc.target == "" {
				tc.target = "/"
			}
			r := httptest.NewRequest(http.MethodPost, tc.target, nil)
			for i := 0; i < len(tc.sent); i += 2 {
				r.Header.Add(tc.sent[i], tc.sent[i+1])
			}
			r.Header.Set("Cookie", "session=1")
			got, err := p.take(r)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("got %q, %v; want %q, %v", got, err, tc.want, tc.err)
			}
			if len(r.Header) != 1 || r.Header.Get("Cookie") != "session=1" {
				t.Errorf("headers left: %v", r.Header)
			}
			for _, name := range tc.query {
				if r.URL.Query().Has(name) || strings.Contains(r.RequestURI, name+"=") {
					t.Errorf("left in the URL: %s, %s", r.URL, r.RequestURI)
				}
			}
		})
	}
}

func TestScrubQueryKeepsTheRest(t *testing.T) {
	for _, tc := range []struct{ raw, want string }{
		{"", ""},
		{"a=1&b=2", "a=1&b=2"},
		{"key=s", ""},
		{"key", ""},
		{"key=s&a=1", "a=1"},
		{"a=1&key=s", "a=1"},
		{"a=1&key=s&b=2", "a=1&b=2"},
		{"a=%2F+%zz&&key=s&b=;c&=d", "a=%2F+%zz&&b=;c&=d"},
		{"%6bey=s&a=1", "a=1"},
		{"a=1;key=s;b=2", "a=1;b=2"},
		{"a=secret&b=secrets", "b=secrets"},
		{"a=%73ecret&secret=b", "secret=b"},
		{"keys=1&xkey=2", "keys=1&xkey=2"},
	} {
		s := scrubber{query: []string{"key"}}
		if got := s.scrub(tc.raw, []string{"secret"}); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.raw, got, tc.want)
		}
	}
}

// Without a place in the query only the presented key is looked for.
func TestScrubQueryWithoutAPlaceInIt(t *testing.T) {
	for _, tc := range []struct{ raw, want string }{
		{"key=other&a=1", "key=other&a=1"},
		{"key=secret&a=1", "a=1"},
		{"key=%73ecret&a=1", "a=1"},
		{"a=%2F", "a=%2F"},
		{"a=secret-not", "a=secret-not"},
	} {
		s := scrubber{}
		if got := s.scrub(tc.raw, []string{"secret"}); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.raw, got, tc.want)
		}
	}
}

func TestScrubQueryProperties(t *testing.T) {
	param := rapid.SampledFrom([]string{"a=1", "key=x", "key=", "k%65y=y", "k+y=z", "b", "", "=", "c=s%65cret", "d=secret", "e=%zz", "f=a=b"})
	rapid.Check(t, func(t *rapid.T) {
		params := rapid.SliceOfN(param, 0, 10).Draw(t, "params")
		kept := slices.DeleteFunc(slices.Clone(params), func(s string) bool {
			name, value := decodeParameter(s)
			return name == "key" || name == "k y" || value == "secret"
		})
		s := scrubber{query: []string{"key", "k y"}}
		got := s.scrub(strings.Join(params, "&"), []string{"secret"})
		if want := strings.Join(kept, "&"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func FuzzScrubQuery(f *testing.F) {
	f.Add("a=1&key=s&b=2")
	f.Add("%6bey=%73ecret;;key&=")
	f.Fuzz(func(t *testing.T, raw string) {
		s := scrubber{query: []string{"key"}}
		got := s.scrub(raw, []string{"secret"})
		if again := s.scrub(got, []string{"secret"}); again != got {
			t.Errorf("%q became %q, then %q", raw, got, again)
		}
		// as another reader of the query sees it
		values, _ := url.ParseQuery(got)
		if values.Has("key") {
			t.Errorf("%q became %q, which has a key", raw, got)
		}
		for name, v := range values {
			if slices.Contains(v, "secret") {
				t.Errorf("%q became %q, which has the secret in %q", raw, got, name)
			}
		}
	})
}
