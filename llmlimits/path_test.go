package llmlimits

import (
	stdpath "path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestTheMostSpecificPathComesFirst(t *testing.T) {
	want := []path{"/v1/*", "/v1/chat/completions", "/v1/chat/*", "/v1/ch*", "/v1/embeddings", "*/embeddings", "/v1/*/job", "/V2"}
	for i, p := range want {
		parsed, err := parsePath(string(p))
		if err != nil {
			t.Fatal(err)
		}
		want[i] = parsed
	}
	got := slices.Clone(want)
	slices.SortFunc(got, path.compare)
	want = []path{"/v1/chat/completions", "/v1/embeddings", "/v2", "*/embeddings", "/v1/chat/*", "/v1/*/job", "/v1/ch*", "/v1/*"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPathsThatNeitherExcludeNorOutdoEachOtherConflict(t *testing.T) {
	for _, tc := range []struct {
		a, b     path
		conflict bool
	}{
		{"/v1/a", "/v1/a", true},
		{"/v1/*", "/v1/*", true},
		{"/v1/a", "/v1/b", false},
		{"/v1/a", "/v1/*", false},
		{"/v1/a/*", "/v1/b/*", false},
		{"/v1/a/*", "/v1/a*", false},
		{"/v1/*/a", "/v1/*/b", false},
		{"/a/*/c", "/a/b/*", true},
		{"/a/?/c", "/a/[bc]/c", true},
		{"/a/*.json", "/a/*.yaml", false},
		{"*/ab", "/ab*", true},
		{`/a/\*`, `/a/*b`, false},
		{`/\*?`, `/?*b`, true},
	} {
		for _, pair := range [][2]path{{tc.a, tc.b}, {tc.b, tc.a}} {
			if err := pair[0].conflict(pair[1]); (err != nil) != tc.conflict {
				t.Errorf("%s beside %s: got %v", pair[0], pair[1], err)
			}
		}
	}
}

// Where a path is found that two patterns match, they are known to overlap.
func TestPatternsThatMatchTheSamePathOverlap(t *testing.T) {
	patterns := rapid.StringMatching(`/([ab/*?]|\[ab\]|\\a){0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := patterns.Draw(t, "a"), patterns.Draw(t, "b")
		p := rapid.StringMatching(`/[ab/]{0,5}`).Draw(t, "path")
		inA, errA := stdpath.Match(a, p)
		inB, errB := stdpath.Match(b, p)
		if errA != nil || errB != nil {
			t.Skip()
		}
		if inA && inB && !overlap(a, b) {
			t.Errorf("%s and %s both match %s", a, b, p)
		}
		if overlap(a, b) != overlap(b, a) {
			t.Errorf("%s and %s overlap one way only", a, b)
		}
	})
}

func TestEveryPathNamesInstancesOfItsOwn(t *testing.T) {
	paths := rapid.StringMatching(`(/[ab*]{1,2}(\.[ab]){0,2}){1,3}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := path(paths.Draw(t, "a")), path(paths.Draw(t, "b"))
		x, y := instanceName("x", a, consumer, tokens), instanceName("x", b, consumer, tokens)
		if (a == b) != (x == y) {
			t.Errorf("%s and %s are named %s and %s", a, b, x, y)
		}
	})
	if got := instanceName("x", "/v1/a.b", consumer, tokens); got != "x.v1.a..b.consumer.tokens" {
		t.Errorf("got %s", got)
	}
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"/v1/*", "*", "/a[b", `/a\`, "/{x}", "/Ä*?"} {
		f.Add(s, "/v1/chat")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a)+len(b) > 100 {
			t.Skip()
		}
		p, err := parsePath(a)
		if err != nil {
			return
		}
		q, err := parsePath(b)
		if err != nil {
			return
		}
		if (p.conflict(q) == nil) != (q.conflict(p) == nil) || p.compare(q) != -q.compare(p) {
			t.Errorf("%q and %q are compared one way only", p, q)
		}
		if p.conflict(p) == nil || !overlap(string(p), string(p)) {
			t.Errorf("%q does not conflict with itself", p)
		}
		if name := instanceName("x", p, consumer, tokens); strings.Contains(name, "/") {
			t.Errorf("%q has a slash", name)
		}
	})
}
