package prices

import "strings"

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
	minor, digits := number(strings.TrimPrefix(version[n:], "-"))
	dated := digits > 2
	return major > 4 || major == 4 && minor >= 5 && !dated
}

// number reads the digits at the start of s, and tells how many there are.
func number(s string) (v, digits int) {
	for digits < len(s) && digits < 9 && s[digits] >= '0' && s[digits] <= '9' {
		v = v*10 + int(s[digits]-'0')
		digits++
	}
	return v, digits
}
