package prices

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// errNotLiteLLM is returned for a document that is no price table of LiteLLM.
var errNotLiteLLM = errors.New("not a price table of LiteLLM")

// ParseLiteLLM reads a table in the form of LiteLLM's
// model_prices_and_context_window.json: an object of models, whose prices are in USD per
// unit. Beyond LiteLLM's own fields it knows "effective_from", a day or a time, and
// "threshold_inclusive". Numbers may be written as strings.
//
// A model any of whose prices cannot be read is left out and stands in [Layer.Faults].
// The error is for a document that is none.
func ParseLiteLLM(data []byte) (*Layer, error) {
	if !gjson.ValidBytes(data) {
		return nil, fmt.Errorf("%w: no JSON", errNotLiteLLM)
	}
	doc := gjson.ParseBytes(data)
	if !doc.IsObject() {
		return nil, fmt.Errorf("%w: no object of models", errNotLiteLLM)
	}
	l := &Layer{}
	words := make(map[string]string)
	doc.ForEach(func(key, model gjson.Result) bool {
		switch key.Str {
		case "sample_spec", "fallback_generalizations", "last_updated", "":
			return true
		}
		if !model.IsObject() {
			return true
		}
		r := &liteLLMRow{words: words, row: Row{Key: strings.Clone(key.Str), Source: "LiteLLM"}}
		if err := r.read(model); err != nil {
			l.Faults = append(l.Faults, Fault{Provider: r.row.Provider, Key: r.row.Key, Reason: err.Error()})
			return true
		}
		row := r.row
		l.Rows = append(l.Rows, &row)
		return true
	})
	if len(l.Rows) == 0 {
		return nil, fmt.Errorf("%w: no models", errNotLiteLLM)
	}
	return l, nil
}

// liteLLMRow is a row while it is read.
type liteLLMRow struct {
	row    Row
	words  map[string]string // that many rows share
	prices []liteLLMPrice
	search bool // a unit of web_search_billing_unit was named
}

// liteLLMPrice is a price before the tiers are known.
type liteLLMPrice struct {
	field
	rate   money.Rate
	second bool
}

// word returns a string that does not hold the document in memory.
func (r *liteLLMRow) word(s string) string {
	if w, ok := r.words[s]; ok {
		return w
	}
	w := strings.Clone(s)
	r.words[w] = w
	return w
}

// read reads all of a model.
func (r *liteLLMRow) read(model gjson.Result) (err error) {
	var window int64
	fail := func(name string, e error) {
		if err == nil && e != nil {
			err = fmt.Errorf("%s: %w", name, e)
		}
	}
	model.ForEach(func(key, v gjson.Result) bool {
		switch name := key.Str; name {
		case "litellm_provider":
			r.row.Provider = r.word(v.String())
		case "mode":
			r.row.Mode = r.word(v.String())
		case "max_input_tokens":
			r.row.MaxInput = tokensOf(v)
		case "max_output_tokens":
			r.row.MaxOutput = tokensOf(v)
		case "max_tokens":
			window = tokensOf(v)
		case "threshold_inclusive", "tiered_pricing", "off_peak_pricing": // when the rest is known
		case "web_search_billing_unit":
			r.search = true
			r.row.SearchPerPrompt = v.String() == "per_prompt"
		case "search_context_cost_per_query":
			fail(name, r.searches(v))
		case "provider_specific_entry":
			fail(name, r.multipliers(v))
		case "regional_processing_uplift_multiplier_eu":
			fail(name, ratioOf(v, &r.row.RegionalEU))
		case "regional_processing_uplift_multiplier_us":
			fail(name, ratioOf(v, &r.row.RegionalUS))
		case "regional_endpoint_uplift_multiplier":
			fail(name, ratioOf(v, &r.row.Regional))
		case "effective_from":
			fail(name, timeOf(v, &r.row.From))
		default:
			fail(name, r.price(name, v, 0))
		}
		return true
	})
	if err != nil {
		return err
	}
	if r.row.Provider == "" {
		return errors.New("no litellm_provider")
	}
	if r.row.MaxInput == 0 {
		r.row.MaxInput = window
	}
	r.row.ContextWindow = r.row.MaxInput
	r.habits()
	if err := r.tiered(model.Get("tiered_pricing")); err != nil {
		return fmt.Errorf("tiered_pricing: %w", err)
	}
	inclusive := family(r.row.Provider) == "xai"
	if v := model.Get("threshold_inclusive"); v.Exists() {
		inclusive = v.Bool()
	}
	if err := r.settle(inclusive); err != nil {
		return err
	}
	if err := r.offPeak(model.Get("off_peak_pricing")); err != nil {
		return fmt.Errorf("off_peak_pricing: %w", err)
	}
	return nil
}

// habits are what LiteLLM knows of providers in code.
func (r *liteLLMRow) habits() {
	searches := slices.ContainsFunc(r.prices, func(p liteLLMPrice) bool { return p.unit == SearchMedium })
	if !searches {
		return
	}
	switch family(r.row.Provider) {
	case "gemini", "vertex_ai":
		if !r.search && strings.Contains(r.row.Key, "gemini") {
			r.row.SearchPerPrompt = true
		}
	case "perplexity":
		r.row.SearchAlways = true
	case "openai", "azure":
		r.row.SearchAlways = strings.Contains(r.row.Key, "-search-preview")
	}
}

// price reads a field that may be a price; others are passed over. above is the tier
// that it stands in.
func (r *liteLLMRow) price(name string, v gjson.Result, above int64) error {
	f, ok := cutField(name)
	if !ok || v.Type == gjson.Null {
		return nil
	}
	if above > 0 {
		f.above = above
	}
	parse := money.ParseRate
	if f.unit == FileSearch {
		parse = money.ParseRatePerThousand
	}
	rate, err := parse(numeral(v))
	if err != nil {
		return err
	}
	r.prices = append(r.prices, liteLLMPrice{f, rate, secondName(name)})
	return nil
}

// searches reads the price of a search of the web by how much it reads.
func (r *liteLLMRow) searches(v gjson.Result) error {
	for _, size := range [...]struct {
		name string
		unit Unit
	}{
		{"search_context_size_low", SearchLow},
		{"search_context_size_medium", SearchMedium},
		{"search_context_size_high", SearchHigh},
	} {
		p := v.Get(size.name)
		if !p.Exists() {
			continue
		}
		rate, err := money.ParseRate(numeral(p))
		if err != nil {
			return err
		}
		r.prices = append(r.prices, liteLLMPrice{field: field{unit: size.unit}, rate: rate})
	}
	return nil
}

// multipliers reads what a provider multiplies its prices by. What is no number is of
// something else.
func (r *liteLLMRow) multipliers(v gjson.Result) error {
	for name, to := range map[string]*Ratio{"fast": &r.row.Fast, "us": &r.row.GeoUS} {
		if m := v.Get(name); m.Type == gjson.Number || m.Type == gjson.String {
			if err := ratioOf(m, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle sets the rates, when it is known which tiers there are.
func (r *liteLLMRow) settle(inclusive bool) error {
	var steps []int64
	for _, p := range r.prices {
		if p.above > 0 && !slices.Contains(steps, p.above) {
			steps = append(steps, p.above)
		}
	}
	if len(steps) > MaxTiers {
		return fmt.Errorf("more than %d tiers", MaxTiers)
	}
	slices.Sort(steps)
	for _, above := range steps {
		r.row.Tiers = append(r.row.Tiers, Tier{above, inclusive})
	}
	var rates Rates
	for _, p := range r.prices {
		tier := 0
		if p.above > 0 {
			tier = slices.Index(steps, p.above) + 1
		}
		if _, set := rates.Get(p.unit, p.service, tier); set && p.second {
			continue
		}
		rates.Set(p.unit, p.service, tier, p.rate)
	}
	r.row.Rates = rates.clone() // to its size
	return nil
}

// numeral is a number as it is written, in JSON's way or as a string.
func numeral(v gjson.Result) string {
	if v.Type == gjson.String {
		return strings.TrimSpace(v.Str)
	}
	return v.Raw
}

// tokensOf is a number of tokens, or 0 if v is none: a limit is no price.
func tokensOf(v gjson.Result) int64 {
	n, err := parseTokens(numeral(v))
	if err != nil {
		return 0
	}
	return n
}

func ratioOf(v gjson.Result, to *Ratio) error {
	ratio, err := decimalRatio(numeral(v))
	*to = ratio
	return err
}

// timeOf reads a day, which begins at 00:00 UTC, or a time.
func timeOf(v gjson.Result, to *time.Time) error {
	for _, layout := range [...]string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, v.String()); err == nil {
			*to = t
			return nil
		}
	}
	return fmt.Errorf("%q is neither a day nor a time", v.String())
}
