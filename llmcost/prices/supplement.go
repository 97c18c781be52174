package prices

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// supplement is what is kept by hand of prices that the generated table lacks: facts
// that vendors publish for whole families of models, and models that it has not.
type supplement struct {
	Blocks []block `json:"blocks"`
}

// block is one fact, or a few of one kind. What it says holds for the rows of Providers
// whose keys, without the provider's prefix, one of the globs of Models matches, and
// for which no glob of Except does. Globs choose among the rows that there are; they
// never give a price to a name that has no row.
type block struct {
	// About says what it is, Source by whom it is said.
	About     string   `json:"about"`
	Source    string   `json:"source"`
	Providers []string `json:"providers"`
	Models    []string `json:"models"`
	Except    []string `json:"except"`
	// AtInput are models in place of Models, with the input price in USD per 1M tokens
	// that the fact was stated with: a row with another one has changed since.
	AtInput map[string]string `json:"at_input"`

	// Add are models of their own, with the fields of an operator's price.
	Add  map[string]map[string]string `json:"add"`
	Mode string                       `json:"mode"`
	// Alias are further names of rows: name → key.
	Alias map[string]string `json:"alias"`

	// Set are fields that win over the row's; Lacking are for rows without them.
	Set     map[string]string `json:"set"`
	Lacking map[string]string `json:"lacking"`
	// OfInput are rates of tokens as multiples of the input's, where a row has none.
	OfInput map[string]string `json:"of_input"`
	// Services are multiples of all standard rates of tokens, by the service's name,
	// where a row has no rates for the service.
	Services map[string]string `json:"services"`

	Fast       string `json:"fast"`
	GeoUS      string `json:"geo_us"`
	RegionalEU string `json:"regional_eu"`
	RegionalUS string `json:"regional_us"`

	SearchPerPrompt bool `json:"search_per_prompt"`
	// Weekdays confines the row's hours of other prices to Monday to Friday, UTC.
	Weekdays  bool  `json:"weekdays"`
	MaxOutput int64 `json:"max_output"`
}

// parseSupplement reads a supplement. Unknown members are errors, for a misspelt one
// would be a price that nobody pays.
func parseSupplement(data []byte) (*supplement, error) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	s := &supplement{}
	if err := d.Decode(s); err != nil {
		return nil, fmt.Errorf("reading the supplement: %w", err)
	}
	return s, nil
}

// apply gives rows what the supplement knows of them, and returns them with the rows
// that it adds. Rows are changed, but not their rates, which other rows may share.
func (s *supplement) apply(rows []*Row) ([]*Row, error) {
	known := familiesOf(rows)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		err := b.complete(known)
		if err == nil {
			err = b.overrule(known)
		}
		var more []*Row
		if err == nil {
			more, err = b.added(rows)
		}
		if err != nil {
			return nil, fmt.Errorf("supplement %q: %w", b.About, err)
		}
		rows = append(rows, more...)
		known.add(more)
	}
	return rows, nil
}

// complete gives the rows of another table what the supplement knows and they lack, and
// changes nothing that they say.
func (s *supplement) complete(rows []*Row) error {
	known := familiesOf(rows)
	for i := range s.Blocks {
		if err := s.Blocks[i].complete(known); err != nil {
			return err
		}
	}
	return nil
}

// families are rows by the provider that bills for them.
type families map[string][]namedRow

// namedRow is a row and its key, lowercase and without the provider's prefix.
type namedRow struct {
	row  *Row
	name string
}

func familiesOf(rows []*Row) families {
	f := make(families)
	f.add(rows)
	return f
}

func (f families) add(rows []*Row) {
	for _, r := range rows {
		id, _ := identOf(r)
		f[id.family] = append(f[id.family], namedRow{r, id.name})
	}
}

// chosen yields the rows that the block is about.
func (b *block) chosen(known families) iter.Seq[*Row] {
	models, except := globs(b.Models), globs(b.Except)
	return func(yield func(*Row) bool) {
		if len(models) == 0 && len(b.AtInput) == 0 {
			return
		}
		for _, provider := range b.Providers {
			for _, n := range known[family(provider)] {
				matches := func(g modelname.Glob) bool { return g.Match(n.name) }
				chosen := slices.ContainsFunc(models, matches) && !slices.ContainsFunc(except, matches)
				if !chosen && !b.atInput(n.row, n.name) {
					continue
				}
				if !yield(n.row) {
					return
				}
			}
		}
	}
}

func globs(patterns []string) []modelname.Glob {
	all := make([]modelname.Glob, len(patterns))
	for i, p := range patterns {
		all[i] = modelname.NewGlob(p)
	}
	return all
}

// atInput reports whether the row is one of AtInput, still at the price told there.
func (b *block) atInput(r *Row, name string) bool {
	text, ok := b.AtInput[name]
	if !ok {
		return false
	}
	at, err := money.ParseRatePerMillion(text)
	have, set := r.Rates.Base(Input)
	return err == nil && set && have == at
}

// added are the rows of the block's own, and those under further names.
func (b *block) added(rows []*Row) (added []*Row, err error) {
	for _, key := range slices.Sorted(maps.Keys(b.Add)) {
		r := &Row{Key: key, Provider: b.Providers[0], Mode: b.Mode, Source: b.Source}
		if err := setFields(&r.Rates, b.Add[key], nil); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		added = append(added, r)
	}
	for _, name := range slices.Sorted(maps.Keys(b.Alias)) {
		before := len(added)
		for _, r := range rows {
			if r.Provider == b.Providers[0] && r.Key == b.Alias[name] {
				c := *r
				c.Key = name
				added = append(added, &c)
			}
		}
		if len(added) == before {
			return nil, fmt.Errorf("%q is no row to name %q", b.Alias[name], name)
		}
	}
	return added, nil
}

// complete gives rows what they have not.
func (b *block) complete(known families) error {
	if b.About == "" || b.Source == "" || len(b.Providers) == 0 {
		return errors.New("no word of what it is about, by whom it is said, or of which provider")
	}
	for r := range b.chosen(known) {
		if !r.priced() {
			continue // its fees alone would make it cheap, not unknown
		}
		err := b.multipliers(r)
		if err == nil && len(b.Lacking)+len(b.OfInput)+len(b.Services) > 0 {
			err = b.rates(r)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", r.Key, err)
		}
		if r.MaxOutput == 0 {
			r.MaxOutput = b.MaxOutput
		}
	}
	return nil
}

// rates gives a row the rates that it has not.
func (b *block) rates(r *Row) error {
	rates := r.Rates.clone()
	err := setFields(&rates, b.Lacking, &r.Rates)
	if err == nil {
		err = b.ofInput(&rates, len(r.Tiers))
	}
	if err == nil {
		err = b.services(&rates)
	}
	r.Rates = rates
	return err
}

// overrule changes what rows say.
func (b *block) overrule(known families) error {
	for r := range b.chosen(known) {
		if len(b.Set) > 0 {
			r.Rates = r.Rates.clone()
			if err := setFields(&r.Rates, b.Set, nil); err != nil {
				return fmt.Errorf("%q: %w", r.Key, err)
			}
		}
		r.SearchPerPrompt = r.SearchPerPrompt || b.SearchPerPrompt
		if b.Mode != "" {
			r.Mode = b.Mode
		}
		if b.Weekdays {
			r.Timed = onWorkdays(r.Timed)
		}
	}
	return nil
}

// multipliers sets those of the block that the row has not.
func (b *block) multipliers(r *Row) error {
	for _, m := range [...]struct {
		text string
		to   *Ratio
	}{{b.Fast, &r.Fast}, {b.GeoUS, &r.GeoUS}, {b.RegionalEU, &r.RegionalEU}, {b.RegionalUS, &r.RegionalUS}} {
		if m.text == "" || *m.to != (Ratio{}) {
			continue
		}
		ratio, err := parseRatio(m.text)
		if err != nil {
			return err
		}
		*m.to = ratio
	}
	return nil
}

// onWorkdays confines hours to Monday to Friday.
func onWorkdays(timed []Timed) []Timed {
	timed = slices.Clone(timed)
	for i := range timed {
		timed[i].Windows = slices.Clone(timed[i].Windows)
		for j := range timed[i].Windows {
			timed[i].Windows[j].Days = workdays
		}
	}
	return timed
}

// workdays are Monday to Friday.
const workdays Days = 1<<time.Monday | 1<<time.Tuesday | 1<<time.Wednesday | 1<<time.Thursday | 1<<time.Friday
