package modelname

import (
	"slices"
	"strings"
)

// Glob is a pattern in lower case, cut at its stars; "*" stands for any characters, "/"
// too.
type Glob []string

// NewGlob reads a pattern.
func NewGlob(s string) Glob { return strings.Split(strings.ToLower(s), "*") }

// ForModels reads a pattern of models' names as their calls write them: a name without a
// star is Spelled.
func ForModels(s string) Glob {
	if strings.Contains(s, "*") {
		return NewGlob(s)
	}
	return Glob{Spelled(s)}
}

// Exact reports whether the pattern is a name: it has no star.
func (g Glob) Exact() bool { return len(g) == 1 }

// String is the pattern, in lower case.
func (g Glob) String() string { return strings.Join(g, "*") }

// Literals is how many characters are no stars.
func (g Glob) Literals() int {
	n := 0
	for _, part := range g {
		n += len(part)
	}
	return n
}

// All reports whether any name is of the pattern, the empty one too.
func (g Glob) All() bool { return !g.Exact() && g.Literals() == 0 }

// Samples are names such that a pattern which takes one of them takes each model that is of
// this one.
func (g Glob) Samples() []string {
	if g.Exact() {
		return Forms(g[0])
	}
	// A character that stands in no pattern is taken by stars alone, which take whatever
	// may stand in its place as well.
	return []string{strings.Join(g, "\x00")}
}

// Match reports whether s, in lower case, is of the pattern. Each inner part is taken
// where it first occurs, so that no input takes long.
func (g Glob) Match(s string) bool {
	if len(g) == 1 {
		return s == g[0]
	}
	first, last := g[0], g[len(g)-1]
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range g[1 : len(g)-1] {
		_, rest, found := strings.Cut(s, part)
		if !found {
			return false
		}
		s = rest
	}
	return true
}

// MatchAny reports whether one of the forms of a name is of the pattern.
func (g Glob) MatchAny(forms []string) bool { return slices.ContainsFunc(forms, g.Match) }
