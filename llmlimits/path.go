package llmlimits

import (
	"cmp"
	"fmt"
	stdpath "path"
	"strings"
)

// path is a pattern of Caddy's path matcher, in lower case: `/v1/chat/completions`,
// `/v1/*`, `*/embeddings`, `/v1/*/jobs`. It is empty for the top level.
type path string

// parsePath checks a pattern.
func parsePath(s string) (path, error) {
	switch {
	case s == "*" || s == "/*":
		return "", fmt.Errorf("resource %s is every path: its limits belong at the top level of the block", s)
	case !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "*"):
		return "", fmt.Errorf("resource %s is no path: it must begin with / or *", s)
	case strings.ContainsAny(s, "{}"):
		return "", fmt.Errorf("resource %s: a path with placeholders cannot be compared with others; use a matcher and a block of its own", s)
	}
	// Caddy's matcher takes a pattern that it cannot read for one that never matches.
	if _, err := stdpath.Match(s, ""); err != nil {
		return "", fmt.Errorf("resource %s: %w", s, err)
	}
	return path(strings.ToLower(s)), nil
}

// compare sorts the more specific path first: one without wildcards, else the one with
// more characters beside them. That is the longer of two prefixes.
func (p path) compare(o path) int {
	if p.exact() != o.exact() {
		if p.exact() {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(o.fixed(), p.fixed()), cmp.Compare(p, o))
}

// conflict tells why a path cannot stand beside another: neither is more specific, and
// some calls have both.
func (p path) conflict(o path) error {
	switch {
	case p == o:
		return fmt.Errorf("resource %s already specified", p)
	case p.exact() || o.exact() || p.fixed() != o.fixed() || !overlap(string(p), string(o)):
		return nil
	}
	return fmt.Errorf("resources %s and %s are equally specific and have paths in common: which limits hold for those?", o, p)
}

func (p path) exact() bool { return !strings.ContainsAny(string(p), `*?[\`) }

// fixed is how many characters are not wildcards.
func (p path) fixed() (n int) {
	for rest := string(p); rest != ""; {
		var c int
		if c, rest = next(rest); c >= 0 {
			n++
		}
	}
	return n
}

// Wildcards, as next returns them. Everything else is a byte.
const (
	anyOne  = -1 // one character
	anyMany = -2 // any number of characters
)

// next takes the first character off a pattern. A class counts as any one character.
func next(s string) (c int, rest string) {
	switch s[0] {
	case '*':
		return anyMany, s[1:]
	case '?':
		return anyOne, s[1:]
	case '\\':
		if len(s) > 1 {
			return int(s[1]), s[2:]
		}
	case '[':
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case ']':
				return anyOne, s[i+1:]
			}
		}
	}
	return int(s[0]), s[1:]
}

// overlap tells whether two patterns may match the same path. A `*` is taken to stand for
// slashes too, which it does at the ends of a pattern.
func overlap(a, b string) bool {
	type pair struct{ a, b string }
	seen := make(map[pair]bool) // the patterns are short, and so are their ends
	var match func(a, b string) bool
	match = func(a, b string) bool {
		if seen[pair{a, b}] {
			return false // tried before, or being tried
		}
		seen[pair{a, b}] = true
		if a == "" && b == "" {
			return true
		}
		if a == "" {
			a, b = b, a
		}
		c, rest := next(a)
		if c == anyMany {
			if match(rest, b) {
				return true
			}
			if b == "" {
				return false
			}
			_, restB := next(b)
			return match(a, restB)
		}
		if b == "" {
			return false
		}
		d, restB := next(b)
		if d == anyMany {
			return match(a, restB) || match(rest, b)
		}
		return (c == d || c == anyOne || d == anyOne) && match(rest, restB)
	}
	return match(a, b)
}
