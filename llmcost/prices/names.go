package prices

import (
	"net/url"
	"strings"
)

// cutDate takes one date off the end of a model's name: -2024-08-06, -20250929,
// @20250929 or @default. Four digits, "-latest" and words stay: models that differ in
// them differ in price.
func cutDate(name string) (rest string, ok bool) {
	if rest, ok = strings.CutSuffix(name, "@default"); ok {
		return rest, rest != ""
	}
	if n := len(name) - len("-2006-01-02"); n > 0 && name[n] == '-' && isDate(name[n+1:n+5], name[n+6:n+8], name[n+9:]) &&
		name[n+5] == '-' && name[n+8] == '-' {
		return name[:n], true
	}
	if n := len(name) - len("-20060102"); n > 0 && (name[n] == '-' || name[n] == '@') && isDate(name[n+1:n+5], name[n+5:n+7], name[n+7:]) {
		return name[:n], true
	}
	return name, false
}

// isDate reports whether the digits are of a day in this century.
func isDate(year, month, day string) bool {
	for _, part := range [...]string{year, month, day} {
		for i := range len(part) {
			if part[i] < '0' || part[i] > '9' {
				return false
			}
		}
	}
	return year >= "2000" && year < "2100" && month >= "01" && month <= "12" && day >= "01" && day <= "31"
}

// normalize is a model's name as tables have it: in lower case, without white space
// around it, percent escapes, and the path that some APIs put before it. Of the ARN of a
// Bedrock resource the model's or profile's id is left; an application's own profile
// does not tell its model and stays as it is.
func normalize(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if strings.IndexByte(name, '%') >= 0 {
		if plain, err := url.PathUnescape(name); err == nil {
			name = strings.ToLower(plain)
		}
	}
	if strings.HasPrefix(name, "arn:") {
		for _, kind := range [...]string{":foundation-model/", ":inference-profile/"} {
			if _, id, ok := strings.Cut(name, kind); ok {
				return id
			}
		}
		return name
	}
	if i := strings.Index(name, "publishers/"); i == 0 || i > 0 && name[i-1] == '/' {
		if _, id, ok := strings.Cut(name[i:], "/models/"); ok {
			return id
		}
	}
	return strings.TrimPrefix(name, "models/")
}

// variants are the words that OpenRouter puts behind a model's name to say how it is to
// be served, at the model's own prices.
var variants = [...]string{":nitro", ":floor", ":online", ":exacto", ":thinking", ":beta", ":extended"}

// cutVariant takes such a word off.
func cutVariant(name string) (rest string, ok bool) {
	for _, v := range variants {
		if rest, ok = strings.CutSuffix(name, v); ok {
			return rest, true
		}
	}
	return name, false
}

// cutTuned splits the name of a fine-tuned model, ft:base:org:name:id, into the key
// that tables have its price under, ft:base, and the base.
func cutTuned(name string) (key, base string, ok bool) {
	rest, ok := strings.CutPrefix(name, "ft:")
	if !ok {
		return "", "", false
	}
	base, _, _ = strings.Cut(rest, ":")
	return name[:len("ft:")+len(base)], base, base != ""
}

// geographies are Bedrock's prefixes for where a model runs.
var geographies = [...]string{"us.", "eu.", "apac.", "jp.", "au.", "ca.", "us-gov.", "global."}

// cutGeography takes such a prefix off.
func cutGeography(name string) (rest string, global, ok bool) {
	for _, g := range geographies {
		if rest, ok = strings.CutPrefix(name, g); ok {
			return rest, g == "global.", true
		}
	}
	return name, false, false
}

// geoPriced reports whether Bedrock asks more for a model outside its global profile:
// Claude from version 4.5 on.
func geoPriced(name string) bool {
	rest, ok := strings.CutPrefix(name, "anthropic.claude-")
	if !ok {
		return false
	}
	_, version, _ := strings.Cut(rest, "-") // behind the word: opus, sonnet …
	major, n := number(version)
	if rest == "" || rest[0] >= '0' && rest[0] <= '9' || n == 0 {
		return false // claude-3-5-sonnet and older
	}
	minor, digits := 0, 0
	if m, found := strings.CutPrefix(version[n:], "-"); found {
		if minor, digits = number(m); digits > 2 {
			minor = 0 // a date
		}
	}
	return major > 4 || major == 4 && minor >= 5
}

// number reads the digits at the start of s, and tells how many there are.
func number(s string) (v, digits int) {
	for digits < len(s) && digits < 9 && s[digits] >= '0' && s[digits] <= '9' {
		v = v*10 + int(s[digits]-'0')
		digits++
	}
	return v, digits
}

// glob is a pattern in lower case, cut at its stars; "*" stands for any characters.
type glob []string

func newGlob(s string) glob { return strings.Split(strings.ToLower(s), "*") }

// literals is how many characters are no stars.
func (g glob) literals() int {
	n := 0
	for _, part := range g {
		n += len(part)
	}
	return n
}

// match reports whether s, in lower case, is of the pattern. Each inner part is taken
// where it first occurs, so that no input takes long.
func (g glob) match(s string) bool {
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
