// Package prices knows what models cost: it keeps a table of prices, finds the row
// that a call is billed by and computes the call's cost, in integers. It imports
// nothing of the server around it.
package prices

import (
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Row is what one model costs at one provider during one span of time. Rows are built
// by loaders and never changed once a table has them.
//
// Which rates are set matters: a rate of zero is a price, a rate that is not set is
// none, and a row without any rate, but of tools, prices nothing.
//
// Images of models that are billed by size have rows of their own, whose keys put the
// quality and the size before the model, such as "hd/1024-x-1792/dall-e-3" and
// "1024-x-1024/dall-e-2". One of PixelIn and PixelOut is charged for them, the first
// that is not zero.
type Row struct {
	// Key is the model's name in the table it comes from, with the provider's prefix
	// if the table has it there: "gpt-5", "azure/gpt-4.1".
	Key string
	// Provider is LiteLLM's name of the provider, such as "openai" or
	// "vertex_ai-anthropic_models".
	Provider string
	// Mode is LiteLLM's word for what the model does: "chat", "embedding",
	// "image_generation", "rerank" …; empty if unknown.
	Mode string
	// Source tells where the prices come from, for people.
	Source string

	Rates Rates
	// Tiers are the prompt lengths from which other rates apply to the whole call,
	// ascending, at most [MaxTiers]. Rates for the tier Tiers[i] are set as tier i+1.
	Tiers []Tier
	// Timed are the hours with other rates; the first that matches applies.
	Timed []Timed

	// Multipliers of all token rates; the zero value is 1.
	Fast       Ratio // served in fast mode
	GeoUS      Ratio // served with inference kept in the US
	RegionalEU Ratio // asked of the host for the EU
	RegionalUS Ratio // asked of the host for the US
	Regional   Ratio // asked of any host that is not the global one

	// From and Until are when the row is in force: From ≤ t < Until. Zero is
	// unbounded.
	From, Until time.Time

	// SearchPerPrompt is set if searches of the web are charged once for a call, however
	// many there were.
	SearchPerPrompt bool
	// SearchAlways is set if every call searches the web, whether it says so or not.
	SearchAlways bool

	// ContextWindow, MaxInput and MaxOutput are in tokens; 0 is unknown.
	ContextWindow int64
	MaxInput      int64
	MaxOutput     int64
}

// MaxTiers is how many tiers a row may have.
const MaxTiers = 15

// Tier begins where the whole prompt, cached or not, is longer than Above tokens, or
// as long if Inclusive.
type Tier struct {
	Above     int64
	Inclusive bool
}

// applies reports whether a prompt of n tokens reaches the tier.
func (t Tier) applies(n int64) bool { return n > t.Above || t.Inclusive && n == t.Above }

// Timed are rates that replace a row's during some hours. A unit that has a rate here
// is priced by it alone, in every tier.
type Timed struct {
	Windows []Window
	// Zone is whose weekdays Window.Days are; nil is UTC.
	Zone  *time.Location
	Rates Rates
}

// Window is a span of a day in minutes since 00:00 UTC, from From up to but without
// Until. A span whose end is not after its start goes on over midnight; 0 to 0 is the
// whole day.
type Window struct {
	From, Until int16
	Days        Days
}

// Days is a set of weekdays, one bit each: 1<<time.Sunday … 1<<time.Saturday. The
// empty set is every day.
type Days uint8

// in reports whether the moment is inside one of the windows.
func (o *Timed) in(at time.Time) bool {
	at = at.UTC()
	minute := int16(at.Hour()*60 + at.Minute())
	day := at.Weekday()
	if o.Zone != nil {
		day = at.In(o.Zone).Weekday()
	}
	for _, w := range o.Windows {
		if w.Days != 0 && w.Days&(1<<day) == 0 {
			continue
		}
		if w.From < w.Until && minute >= w.From && minute < w.Until ||
			w.From >= w.Until && (minute >= w.From || minute < w.Until) {
			return true
		}
	}
	return false
}

// Ratio is a multiplier as a fraction, Num at most 60,000 and Den at most 1,000, so that
// a few of them can be multiplied. The zero value is 1.
type Ratio struct{ Num, Den uint32 }

// Rates are prices by unit, service and tier. The zero value has none. Only what is set
// takes memory: 12 bytes a rate.
type Rates struct {
	slots []slot // ascending
	rates []money.Rate
	units uint64 // which units have any, a bit each
}

// slot names a rate: its unit, tier and service. 0 is the base tier.
type slot uint16

func slotOf(u Unit, s Service, tier int) slot { return slot(u)<<8 | slot(tier)<<4 | slot(s) }

// Set sets a rate, or replaces it. tier is 0 for the base and i+1 for Row.Tiers[i].
func (r *Rates) Set(u Unit, s Service, tier int, rate money.Rate) {
	at := slotOf(u, s, tier)
	i, found := slices.BinarySearch(r.slots, at)
	if found {
		r.rates[i] = rate
		return
	}
	r.units |= 1 << u
	r.slots = slices.Insert(r.slots, i, at)
	r.rates = slices.Insert(r.rates, i, rate)
}

// Get returns a rate exactly as it was set.
func (r *Rates) Get(u Unit, s Service, tier int) (rate money.Rate, set bool) {
	if !r.has(u) {
		return 0, false
	}
	at := slotOf(u, s, tier)
	for i, have := range r.slots { // a few, so that a scan is the quickest
		if have >= at {
			if have == at {
				return r.rates[i], true
			}
			break
		}
	}
	return 0, false
}

// Base returns the rate of the base tier and the standard service.
func (r *Rates) Base(u Unit) (rate money.Rate, set bool) { return r.Get(u, Standard, 0) }

// Len is how many rates are set.
func (r *Rates) Len() int { return len(r.slots) }

// All calls yield for every rate, in a fixed order, until it returns false.
func (r *Rates) All(yield func(u Unit, s Service, tier int, rate money.Rate) bool) {
	for i, at := range r.slots {
		if !yield(Unit(at>>8), Service(at&15), int(at>>4&15), r.rates[i]) {
			return
		}
	}
}

// has reports whether any rate of the unit is set.
func (r *Rates) has(u Unit) bool { return r.units&(1<<u) != 0 }

// serves reports whether any token has a rate for the service.
func (r *Rates) serves(s Service) bool {
	for _, at := range r.slots {
		if Service(at&15) == s && Unit(at>>8).Token() {
			return true
		}
	}
	return false
}

// clone returns a copy that may be changed.
func (r *Rates) clone() Rates {
	return Rates{slots: slices.Clone(r.slots), rates: slices.Clone(r.rates), units: r.units}
}

// tools are the units that come on top of what a model costs.
const tools = 1<<SearchLow | 1<<SearchMedium | 1<<SearchHigh | 1<<FileSearch | 1<<CodeSession

// priced reports whether the row prices anything.
func (r *Row) priced() bool { return r.Rates.units != 0 }

// usable reports whether the row prices anything but tools.
func (r *Row) usable() bool { return r.Rates.units&^tools != 0 }

// Which units are of prompts and which of what models write, a bit each.
const (
	promptBits = 1<<Input | 1<<CacheRead | 1<<CacheWrite5m | 1<<CacheWrite1h | 1<<AudioIn | 1<<AudioCached | 1<<AudioWrite |
		1<<ImageIn | 1<<ImageCached | 1<<VideoIn
	outputBits = 1<<Output | 1<<Reasoning | 1<<AudioOut | 1<<ImageOut | 1<<VideoOut
)

// lopsided reports whether the row would give a prompt or an output away: all that it
// prices is tokens, of the other one.
func (r *Row) lopsided(prompt, output int64) bool {
	units := r.Rates.units &^ tools
	return output > 0 && units&^promptBits == 0 || prompt > 0 && units&^outputBits == 0
}

// silent reports whether the model writes nothing, as far as the table tells.
func (r *Row) silent() bool {
	switch r.Mode {
	case "embedding", "rerank", "moderation":
		return true
	case "":
		return strings.Contains(strings.ToLower(r.Key), "embed")
	default:
		return false
	}
}

// valid reports whether the row is in force.
func (r *Row) valid(at time.Time) bool {
	return !at.Before(r.From) && (r.Until.IsZero() || at.Before(r.Until))
}
