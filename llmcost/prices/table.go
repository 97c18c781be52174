package prices

import (
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Table is what models cost: immutable once built, and safe for concurrent use.
//
// A row is found by its provider and its key, in any case, with or without the
// provider's prefix: "azure/gpt-4.1" of the provider azure is also its "gpt-4.1".
type Table struct {
	asOf   time.Time
	models map[ident][]*Row // those of one model ascend by From
	rows   int
	// changes are when rows come into force or end, ascending.
	changes []time.Time
}

// ident is a model: the family of its provider and its name, lowercase, without the
// family's prefix.
type ident struct{ family, name string }

// identOf is the model a row prices.
func identOf(r *Row) (id ident, prefixed bool) {
	f := family(strings.ToLower(r.Provider))
	name := strings.ToLower(r.Key)
	if rest, ok := strings.CutPrefix(name, f+"/"); ok {
		return ident{f, rest}, true
	}
	return ident{f, name}, false
}

// NewTable builds a table from layers, of which later ones win: a model's rows are
// replaced all together by those of a later layer; only a row with prices of prompts
// alone, or of output alone, keeps the others of the layer below, and rows that begin
// later leave those below in force until then. So do rows of a dated name, such as
// gpt-4o-2024-08-06, that cost below what the name without the date did there: that
// name's rows of a later layer price both. Within a layer a key with its
// provider's prefix wins over the same key without, and a later row over an earlier
// one of the same From. asOf is the day that the prices were collected. The rows become
// the table's: they must not be changed any more.
func NewTable(asOf time.Time, layers ...[]*Row) *Table {
	t := &Table{asOf: asOf, models: make(map[ident][]*Row)}
	for _, layer := range layers {
		t.add(layer)
	}
	for _, rows := range t.models {
		slices.SortStableFunc(rows, func(a, b *Row) int { return a.From.Compare(b.From) })
		t.rows += len(rows)
		for i, r := range rows[:len(rows)-1] {
			if next := rows[i+1].From; r.Until.IsZero() || r.Until.After(next) {
				ended := *r
				ended.Until = next
				rows[i] = &ended
			}
		}
	}
	t.inherit()
	for r := range t.All {
		for _, at := range [...]time.Time{r.From, r.Until} {
			if !at.IsZero() {
				t.changes = append(t.changes, at)
			}
		}
	}
	slices.SortFunc(t.changes, time.Time.Compare)
	t.changes = slices.CompactFunc(t.changes, time.Time.Equal)
	return t
}

// unchanged is the span around a moment in which the same rows are in force: from ≤ at <
// until, which is zero if it does not end.
func (t *Table) unchanged(at time.Time) (from, until time.Time) {
	for _, change := range t.changes {
		if change.After(at) {
			return from, change
		}
		from = change
	}
	return from, time.Time{}
}

// add puts a layer over what is there.
func (t *Table) add(layer []*Row) {
	type kept struct {
		rows     []*Row
		prefixed bool
	}
	fresh := make(map[ident]kept, len(layer))
	for _, r := range layer {
		id, prefixed := identOf(r)
		k := fresh[id]
		switch {
		case prefixed && !k.prefixed:
			k = kept{prefixed: true}
		case k.prefixed && !prefixed:
			continue
		}
		same := slices.IndexFunc(k.rows, func(have *Row) bool { return have.From.Equal(r.From) })
		if same >= 0 {
			k.rows[same] = r
		} else {
			k.rows = append(k.rows, r)
		}
		fresh[id] = k
	}
	starts := make(map[ident]time.Time, len(fresh))
	var dated []ident // names whose price was that of a name without the date
	for id, rows := range t.models {
		undated, ok := modelname.CutDate(id.name)
		k, replaced := fresh[ident{id.family, undated}]
		if _, too := fresh[id]; !ok || !replaced || too || !k.rows[0].priced() {
			continue
		}
		was := inForce(t.models[ident{id.family, undated}], t.asOf)
		if r := inForce(rows, t.asOf); r != nil && was != nil && sameBase(r, was) {
			dated = append(dated, id)
		}
	}
	for id, k := range fresh {
		below := t.models[id]
		first := k.rows[0].From
		for i, r := range k.rows {
			k.rows[i] = r.completed(inForce(below, later(r.From, t.asOf)))
			if r.From.Before(first) {
				first = r.From
			}
		}
		starts[id] = first
		t.models[id] = append(until(below, first), k.rows...)
	}
	for _, id := range dated {
		undated, _ := modelname.CutDate(id.name)
		rows := until(t.models[id], starts[ident{id.family, undated}])
		if len(rows) == 0 {
			delete(t.models, id)
			continue
		}
		t.models[id] = rows
	}
}

// until are the rows that are in force before a moment, and end at it.
func until(rows []*Row, end time.Time) (before []*Row) {
	for _, r := range rows {
		if !r.From.Before(end) {
			continue
		}
		if r.Until.IsZero() || r.Until.After(end) {
			ended := *r
			ended.Until = end
			r = &ended
		}
		before = append(before, r)
	}
	return before
}

// AsOf is the day that the prices were collected.
func (t *Table) AsOf() time.Time { return t.asOf }

// Len is how many rows there are; of models whose price changed there are several.
func (t *Table) Len() int { return t.rows }

// Models is how many models there are, counted once for each provider.
func (t *Table) Models() int { return len(t.models) }

// All calls yield for every row, in no order, until it returns false.
func (t *Table) All(yield func(*Row) bool) {
	for _, rows := range t.models {
		for _, r := range rows {
			if !yield(r) {
				return
			}
		}
	}
}

// Lookup returns the row that prices a model of a provider at a time, or nil. key is
// taken as it is but for its case and the provider's own prefix.
func (t *Table) Lookup(provider, key string, at time.Time) *Row {
	f := family(strings.ToLower(provider))
	key = strings.ToLower(key)
	if rest, ok := strings.CutPrefix(key, f); ok && strings.HasPrefix(rest, "/") {
		if r := t.find(f, rest[1:], at); r != nil {
			return r
		}
	}
	return t.find(f, key, at)
}

// firstParty are the vendors whose own models' names are known without a prefix.
var firstParty = [...]string{
	"openai", "anthropic", "gemini", "vertex_ai", "bedrock", "mistral", "xai", "deepseek", "cohere", "voyage",
}

// Find returns the row of a key whatever its provider, or nil: with a provider's
// prefix that provider's row, else the row of the vendor that makes the model.
func (t *Table) Find(key string, at time.Time) *Row {
	key = strings.ToLower(key)
	for _, f := range firstParty {
		if r := t.find(f, key, at); r != nil {
			return r
		}
	}
	if prefix, rest, ok := strings.Cut(key, "/"); ok {
		return t.find(family(prefix), rest, at)
	}
	return nil
}

// find returns the row in force of those of one model. A model whose rows are all of
// the future, or past, has none.
func (t *Table) find(f, name string, at time.Time) *Row {
	rows := t.models[ident{f, name}]
	for i := len(rows) - 1; i >= 0; i-- {
		if rows[i].valid(at) {
			return rows[i]
		}
	}
	return nil
}

// inherit gives the rows of dated models, such as gpt-4o-2024-08-06, the services that
// only the model without a date has prices for, if their base prices are equal.
func (t *Table) inherit() {
	for id, rows := range t.models {
		undated, ok := modelname.CutDate(id.name)
		if !ok {
			continue
		}
		for i, r := range rows {
			base := t.find(id.family, undated, later(r.From, t.asOf))
			if base == nil || !sameBase(r, base) {
				continue
			}
			if more := withServices(r, base); more != r {
				rows[i] = more
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// sameBase reports whether two rows have the same base prices and tiers.
func sameBase(a, b *Row) bool {
	for _, u := range [...]Unit{Input, Output, CacheRead} {
		x, okX := a.Rates.Base(u)
		y, okY := b.Rates.Base(u)
		if x != y || okX != okY {
			return false
		}
	}
	return slices.Equal(a.Tiers, b.Tiers)
}

// inForce is the row of one model's that is in force at a time, or nil.
func inForce(rows []*Row, at time.Time) *Row {
	var found *Row
	for _, r := range rows {
		if r.valid(at) && (found == nil || !r.From.Before(found.From)) {
			found = r
		}
	}
	return found
}

// completed returns r, or a copy of it with the prices of base for output if r has
// those of prompts alone, or the other way round.
func (r *Row) completed(base *Row) *Row {
	units := r.Rates.units &^ tools
	var missing uint64
	switch {
	case base == nil || units == 0:
		return r
	case units&^promptBits == 0 && !r.silent():
		missing = outputBits
	case units&^outputBits == 0:
		missing = promptBits
	}
	if base.Rates.units&missing == 0 {
		return r
	}
	c := *r
	c.Rates = r.Rates.clone()
	tiers := slices.Equal(r.Tiers, base.Tiers)
	base.Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
		if missing&(1<<u) != 0 && (tier == 0 || tiers) {
			c.Rates.Set(u, s, tier, rate)
		}
		return true
	})
	return &c
}

// withServices returns r, or a copy of it with the rates of the services that only
// base has.
func withServices(r, base *Row) *Row {
	merged := r
	for s := Flex; s < numServices; s++ {
		if r.Rates.serves(s) || !base.Rates.serves(s) {
			continue
		}
		if merged == r {
			c := *r
			c.Rates = r.Rates.clone()
			merged = &c
		}
		base.Rates.All(func(u Unit, of Service, tier int, rate money.Rate) bool {
			if of == s && u.Token() {
				merged.Rates.Set(u, s, tier, rate)
			}
			return true
		})
	}
	return merged
}
