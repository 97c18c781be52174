package prices

import (
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
)

// Reasons why a row is not the model's very own.
const (
	whyUnknown  = "the table has no such model"
	whyNoRates  = "the table has the model without prices"
	whyMaker    = "the provider is unknown; priced as by the model's maker"
	whyTuned    = "fine-tuned model priced as its base"
	whyGeo      = "priced by the row of another geography"
	whyVariant  = "priced as the model without its variant"
	whyUnnamed  = "no model was named"
	whyFallback = "priced as any unknown model"
)

// Match is the row that prices a model.
type Match struct {
	// Row is nil if the model is unknown. A row without rates prices nothing.
	Row *Row
	// Key is the row's, or the operator's glob where there is no row.
	Key string
	// Own is set if the operator set a price of it.
	Own bool
	// Free is set if the name says that the model costs nothing.
	Free bool
	// Approx is set if the row is not the model's very own, for the reason Why. Why is
	// also set where Row is nil.
	Approx bool
	Why    string

	scale Ratio // of token rates
}

// Priced reports whether there is a price; one of zero is a price.
func (m *Match) Priced() bool { return m.Row != nil && m.Row.usable() }

// Resolve finds the row that prices a model: that of the served name, or of the
// requested one if nothing is known of the served. provider is LiteLLM's name; empty is
// unknown. Names are matched exactly, then after documented rewrites, then without one
// date at their end; never by parts of a name. Of unknown models, and without
// Options.Unknown, Row is nil.
func (b *Book) Resolve(provider, served, requested string, at time.Time) Match {
	f := family(strings.ToLower(provider))
	m := Match{Why: whyUnnamed}
	if served != "" {
		if m = b.resolve(f, served, at); m.Row != nil {
			return m
		}
	}
	if requested != "" && requested != served {
		if m = b.resolve(f, requested, at); m.Row != nil {
			return m
		}
	}
	if b.unknown != nil {
		return Match{Row: b.unknown.over(nil), Key: b.unknown.Glob, Own: true, Approx: true, Why: whyFallback}
	}
	return m
}

// resolve finds the row of one name.
func (b *Book) resolve(f, name string, at time.Time) Match {
	plain := modelname.Plain(name)
	target, aliased := b.aliases[plain]
	if !aliased {
		target = plain
	}
	m := b.look(f, target, at)
	if aliased && m.Row == nil {
		if r := b.table.Find(target, at); r != nil {
			m = Match{Row: r, Key: r.Key}
		}
	}
	own := b.ownOf(f, strings.ToLower(name), plain)
	if own == nil && aliased {
		own = b.ownOf(f, target, target)
	}
	if own == nil {
		return m
	}
	base := m.Row
	m.Row, m.Own, m.Free = own.over(base), true, false
	if base == nil {
		m.Key, m.Why = own.Glob, ""
	}
	return m
}

// ownOf is the operator's price whose glob matches a name as sent, or as tables have
// it: without the provider's prefix and one date.
func (b *Book) ownOf(f, sent, plain string) *Own {
	if len(b.own) == 0 {
		return nil
	}
	bare := plain
	if prefix, rest, ok := strings.Cut(plain, "/"); ok && f != "" && family(prefix) == f {
		bare = rest
	}
	undated, _ := modelname.CutDate(bare)
	for _, o := range b.own {
		if o.glob.Match(sent) || o.glob.Match(plain) || o.glob.Match(bare) || o.glob.Match(undated) {
			return o
		}
	}
	return nil
}

// look finds the table's row of a normal name.
func (b *Book) look(f, name string, at time.Time) Match {
	if name == "" {
		return Match{Why: whyUnnamed}
	}
	if r := b.exact(f, name, at); r != nil {
		return b.found(f, r)
	}
	if m := b.rewritten(f, name, at); m.Row != nil {
		return m
	}
	if undated, ok := modelname.CutDate(name); ok {
		if r := b.exact(f, undated, at); r != nil {
			return b.found(f, r)
		}
	}
	return Match{Why: whyUnknown}
}

// found is a match by a row under the model's own name.
func (b *Book) found(f string, r *Row) Match {
	m := Match{Row: r, Key: r.Key}
	if f == "" {
		m.Approx, m.Why = true, whyMaker
	}
	return m
}

// exact finds the row of a name of a provider, with or without the provider's prefix.
func (b *Book) exact(f, name string, at time.Time) *Row {
	if f == "" {
		return b.table.Find(name, at)
	}
	if r := b.table.find(f, name, at); r != nil {
		return r
	}
	sibling := siblings(f)
	if prefix, rest, ok := strings.Cut(name, "/"); ok {
		if p := family(prefix); p == f || p == sibling {
			name = rest
			if r := b.table.find(f, name, at); r != nil {
				return r
			}
		}
	}
	if sibling == "" {
		return nil
	}
	return b.table.find(sibling, name, at)
}

// free is the row of models whose name says that they cost nothing.
var free = func() *Row {
	r := &Row{Key: ":free"}
	r.Rates.Set(Input, Standard, 0, 0)
	r.Rates.Set(Output, Standard, 0, 0)
	return r
}()

// rewritten finds the row of a name that vendors document to be another's.
func (b *Book) rewritten(f, name string, at time.Time) Match {
	switch f {
	case "openrouter":
		if strings.HasSuffix(name, ":free") {
			return Match{Row: free, Key: free.Key, Free: true}
		}
		if plain, ok := modelname.CutVariant(name); ok {
			if r := b.dated(f, plain, at); r != nil {
				return Match{Row: r, Key: r.Key, Approx: true, Why: whyVariant}
			}
		}
	case "bedrock":
		plain, global, ok := modelname.CutGeography(name)
		if !ok {
			break
		}
		if r := b.exact(f, plain, at); r != nil {
			m := Match{Row: r, Key: r.Key}
			if !global {
				m.Approx, m.Why = true, whyGeo
				if geoPriced(plain) {
					m.scale = Ratio{11, 10}
				}
			}
			return m
		}
	case "openai", "azure", "":
		key, base, ok := cutTuned(name)
		if !ok {
			break
		}
		if r := b.dated(f, key, at); r != nil {
			return b.found(f, r)
		}
		if r := b.dated(f, base, at); r != nil {
			return Match{Row: r, Key: r.Key, Approx: true, Why: whyTuned}
		}
	}
	return Match{}
}

// dated finds the row of a name, or of the name without its date.
func (b *Book) dated(f, name string, at time.Time) *Row {
	if r := b.exact(f, name, at); r != nil {
		return r
	}
	if undated, ok := modelname.CutDate(name); ok {
		return b.exact(f, undated, at)
	}
	return nil
}
