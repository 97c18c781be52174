// Package modelname decides which names mean the same model: APIs put paths and regions
// before it, and dates behind it. Prices and limits ask here, so that a call is limited
// and priced as the same model.
package modelname

import (
	"net/url"
	"slices"
	"strings"
)

// Plain is a model's name as tables have it: in lower case, without white space
// around it, percent escapes, and the path that some APIs put before it. Of the ARN of a
// Bedrock resource the model's or profile's id is left; an application's own profile
// does not tell its model and stays as it is.
func Plain(name string) string {
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

// Normal is the one name that stands for all ways to write a model's: Plain, without the
// providers before it, Bedrock's geography, vendor and version, OpenRouter's variants and
// preset, Ollama's tag for the latest and one date. It is not empty unless name is blank.
func Normal(name string) string {
	forms := Forms(name)
	return forms[len(forms)-1]
}

// Forms are the names by which a model may be meant: as it was sent, in lower case, then
// each part of what may stand before it taken off, with and without what may stand behind
// it, so that a name with a provider before it is found whatever is put behind. The last is
// Normal.
func Forms(name string) []string {
	forms := append(make([]string, 0, 8), strings.ToLower(name))
	add := func(form string) {
		if form != "" && !slices.Contains(forms, form) {
			forms = append(forms, form)
		}
	}
	form := Plain(name)
	add(form)
	add(cutLatest(form))
	form = cutPreset(form)
	add(form)
	heads := append(make([]string, 0, 4), form) // what stands before is cut in steps
	if !strings.HasPrefix(form, "arn:") {       // of which the end alone says nothing
		if i := strings.LastIndexByte(form, '/'); i >= 0 && i+1 < len(form) {
			form = form[i+1:]
			add(form)
			heads = append(heads, form)
		}
	}
	if rest, _, ok := CutGeography(form); ok && rest != "" {
		form = rest
		add(form)
		heads = append(heads, form)
	}
	form = cutWords(form)
	add(form)
	bare, vendor := cutVendor(form)
	add(bare)
	form = bare
	if vendor {
		form = cutVersion(form)
		add(form)
	}
	if rest, ok := CutDate(form); ok {
		form = rest
	}
	for _, head := range heads {
		head = cutWords(head)
		add(head)
		if vendor {
			head = cutVersion(head)
			add(head)
		}
		if rest, ok := CutDate(head); ok {
			add(rest)
		}
	}
	// even where it came before, it is the last
	if i := slices.Index(forms, form); i >= 0 {
		forms = slices.Delete(forms, i, i+1)
	}
	return append(forms, form)
}

// CutDate takes one date off the end of a model's name: -2024-08-06, -20250929,
// @20250929 or @default. Four digits, "-latest" and words stay: models that differ in
// them differ in price.
func CutDate(name string) (rest string, ok bool) {
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

// variants are the words that OpenRouter puts behind a model's name to say how it is to
// be served, at the model's own prices.
var variants = [...]string{":nitro", ":floor", ":online", ":exacto", ":thinking", ":beta", ":extended"}

// CutVariant takes such a word off.
func CutVariant(name string) (rest string, ok bool) {
	for _, v := range variants {
		if rest, ok = strings.CutSuffix(name, v); ok {
			return rest, true
		}
	}
	return name, false
}

// geographies are Bedrock's prefixes for where a model runs.
var geographies = [...]string{"us.", "eu.", "apac.", "jp.", "au.", "ca.", "us-gov.", "global."}

// CutGeography takes such a prefix off. global is set if it was that of all places.
func CutGeography(name string) (rest string, global, ok bool) {
	for _, g := range geographies {
		if rest, ok = strings.CutPrefix(name, g); ok {
			return rest, g == "global.", true
		}
	}
	return name, false, false
}
