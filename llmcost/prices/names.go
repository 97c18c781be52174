package prices

import "strings"

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
