package prices

import (
	"slices"
	"strings"
	"time"
)

// Providers are those that the table has rows of, and those known by the host of their
// upstream, in order, as LiteLLM names them but for several names of one.
func (t *Table) Providers() []string {
	seen := make(map[string]bool)
	for id := range t.models {
		seen[id.family] = true
	}
	for i := range hosts {
		seen[family(hosts[i].provider)] = true
	}
	all := make([]string, 0, len(seen))
	for f := range seen {
		all = append(all, f)
	}
	slices.Sort(all)
	return all
}

// HasProvider reports whether a name is one of the providers, and else which of them it
// is nearly written as; empty is none.
func (t *Table) HasProvider(name string) (ok bool, near string) {
	name = strings.ToLower(name)
	all := t.Providers()
	if _, found := slices.BinarySearch(all, family(name)); found {
		return true, ""
	}
	best := maxTypos + 1
	for _, p := range all {
		if d := typos(name, p); len(p) > 2*maxTypos && d < best {
			best, near = d, p
		}
	}
	return false, near
}

// maxTypos is how many letters are wrong at most in a name that is nearly another.
const maxTypos = 2

// typos is how many letters have to be changed, added or taken out to make one word of
// another.
func typos(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Prices reports whether a model has a price at a provider, or at any if that is empty.
func (b *Book) Prices(provider, model string, at time.Time) bool {
	providers := []string{provider}
	if provider == "" {
		providers = append(providers, b.table.Providers()...)
	}
	for _, p := range providers {
		if m := b.Resolve(p, "", model, at); m.Priced() {
			return true
		}
	}
	return false
}
