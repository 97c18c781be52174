package prices

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Own is a price that an operator sets for the models a glob matches. Its fields
// replace those of the table's row one by one. What depends on a replaced field and is
// not set itself keeps its proportion to it: tiers and services of the field, cache
// rates to the input's, reasoning to the output's. Without a row of the table, cache
// rates are the input's.
type Own struct {
	// Glob is what the operator wrote; "*" stands for any characters.
	Glob string

	glob  modelname.Glob
	rates Rates
	alone *Row
	rows  sync.Map // *Row → *Row, at most one for each row of the table
	once  sync.Once
}

// NewOwn returns a price without fields.
func NewOwn(pattern string) (*Own, error) {
	pattern = strings.TrimSpace(pattern)
	if pattern == "" {
		return nil, errors.New("price of no model: name one, or a glob")
	}
	return &Own{Glob: pattern, glob: modelname.NewGlob(pattern)}, nil
}

// per is how many units a price is for.
type per uint8

const (
	perUnit per = iota
	perMillion
)

// ownFields are the fields that operators may set, in the order that errors list them.
var ownFields = [...]struct {
	name  string
	units []Unit
	per   per
}{
	{"input", []Unit{Input}, perMillion},
	{"output", []Unit{Output}, perMillion},
	{"cache_read", []Unit{CacheRead}, perMillion},
	{"cache_write", []Unit{CacheWrite5m}, perMillion},
	{"cache_write_1h", []Unit{CacheWrite1h}, perMillion},
	{"reasoning", []Unit{Reasoning}, perMillion},
	{"audio_input", []Unit{AudioIn}, perMillion},
	{"audio_cache_read", []Unit{AudioCached}, perMillion},
	{"audio_output", []Unit{AudioOut}, perMillion},
	{"image_input", []Unit{ImageIn}, perMillion},
	{"image_cache_read", []Unit{ImageCached}, perMillion},
	{"image_output", []Unit{ImageOut}, perMillion},
	{"video_input", []Unit{VideoIn}, perMillion},
	{"video_output", []Unit{VideoOut}, perMillion},
	{"citation", []Unit{Citation}, perMillion},
	{"character", []Unit{CharacterIn}, perMillion},
	{"image", []Unit{ImageMade}, perUnit},
	{"request", []Unit{Request}, perUnit},
	{"second", []Unit{SecondIn}, perUnit},
	{"video_second", []Unit{VideoSecondOut}, perUnit},
	{"page", []Unit{Page}, perUnit},
	{"annotated_page", []Unit{AnnotatedPage}, perUnit},
	{"query", []Unit{Query}, perUnit},
	{"web_search", []Unit{SearchLow, SearchMedium, SearchHigh}, perUnit},
	{"file_search", []Unit{FileSearch}, perUnit},
	{"code_session", []Unit{CodeSession}, perUnit},
}

// leastPerMillion is below every price of a million tokens that there is; who writes
// less has written the price of one.
const leastPerMillion = money.Rate(100_000) // $0.0001 per 1M

// Set sets a field before the price is used: value is a decimal amount of dollars per
// 1M tokens or characters, or per image, request, second, page, query, search or
// session. Errors name the fields there are.
func (o *Own) Set(field, value string) error {
	for i := range ownFields {
		f := &ownFields[i]
		if f.name != field {
			continue
		}
		parse := money.ParseRate
		if f.per == perMillion {
			parse = money.ParseRatePerMillion
		}
		rate, err := parse(strings.TrimPrefix(value, "$"))
		if err != nil {
			return fmt.Errorf("price %q: %s: %w", o.Glob, field, err)
		}
		if f.per == perMillion && rate < leastPerMillion && strings.Trim(value, "$0._") != "" {
			return fmt.Errorf("price %q: %s %s is per token: write dollars per 1M", o.Glob, field, value)
		}
		if _, twice := o.rates.Base(f.units[0]); twice {
			return fmt.Errorf("price %q: %s is given twice", o.Glob, field)
		}
		for _, u := range f.units {
			o.rates.Set(u, Standard, 0, rate)
		}
		return nil
	}
	names := make([]string, len(ownFields))
	for i := range ownFields {
		names[i] = ownFields[i].name
	}
	return fmt.Errorf("price %q: unknown field %q: there are %s", o.Glob, field, strings.Join(names, ", "))
}

// over is the row that the price makes of the table's, which may be nil.
func (o *Own) over(base *Row) *Row {
	if base == nil {
		o.once.Do(func() { o.alone = &Row{Key: o.Glob, Source: "operator", Rates: o.rates} })
		return o.alone
	}
	if r, ok := o.rows.Load(base); ok {
		return r.(*Row)
	}
	r := *base
	r.Rates = o.replace(&base.Rates, &base.Rates)
	r.Timed = nil
	for _, t := range base.Timed {
		t.Rates = o.replace(&t.Rates, &base.Rates)
		r.Timed = append(r.Timed, t)
	}
	o.rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
		r.Rates.Set(u, s, tier, rate)
		return true
	})
	kept, _ := o.rows.LoadOrStore(base, &r)
	return kept.(*Row)
}

// replace returns rates in proportion to the operator's where they depend on one.
func (o *Own) replace(rates, base *Rates) Rates {
	var out Rates
	rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
		on, depends := o.leader(u)
		if !depends {
			out.Set(u, s, tier, rate)
			return true
		}
		own, _ := o.rates.Base(on)
		// Where there is nothing to be in proportion to, the text's rate will do.
		if was, ok := base.Base(on); ok && was > 0 {
			out.Set(u, s, tier, mulDiv(rate, own, was))
		}
		return true
	})
	return out
}

// leader is the field of the operator's that the rates of a unit depend on.
func (o *Own) leader(u Unit) (on Unit, depends bool) {
	if _, set := o.rates.Base(u); set {
		return u, true
	}
	switch u {
	case CacheRead, CacheWrite5m, CacheWrite1h:
		on = Input
	case Reasoning:
		on = Output
	default:
		return 0, false
	}
	_, depends = o.rates.Base(on)
	return on, depends
}
