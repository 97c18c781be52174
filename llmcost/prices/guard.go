package prices

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// Public tables have errors that would cost a budget in one call, or never charge it:
// prices per thousand tokens where those per token belong, digits that slipped. The
// guard looks for what no vendor asks.

// maxTokenRate is above the dearest token there is, of o1-pro for $0.0006.
const maxTokenRate money.Rate = 1_000_000_000_000 // $0.001

// maxOutputRatio is how many times the price of input a chat model asks for output at
// most.
const maxOutputRatio = 20

// Guard takes the rows with prices that cannot be right out of a layer, and adds them
// to its faults.
func Guard(l *Layer) {
	l.Rows = slices.DeleteFunc(l.Rows, func(r *Row) bool {
		why := implausible(r)
		if why == "" {
			return false
		}
		l.Faults = append(l.Faults, Fault{Provider: r.Provider, Key: r.Key, Reason: why})
		return true
	})
}

// implausible tells what cannot be right about a row, or nothing.
func implausible(r *Row) string {
	if why := implausibleRates(r, &r.Rates); why != "" {
		return why
	}
	for i := range r.Timed {
		if why := implausibleRates(r, &r.Timed[i].Rates); why != "" {
			return "at some hours, " + why
		}
	}
	return ""
}

func implausibleRates(r *Row, rates *Rates) (why string) {
	rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
		if rate < 0 {
			why = fmt.Sprintf("%s costs less than nothing", u)
		} else if u.Token() {
			why = implausibleToken(r, rates, u, s, tier, rate)
		}
		return why == ""
	})
	return why
}

// implausibleToken compares a rate with the others of its row.
func implausibleToken(r *Row, rates *Rates, u Unit, s Service, tier int, rate money.Rate) string {
	if rate > maxTokenRate {
		return fmt.Sprintf("%s costs more than $0.001 a token", u)
	}
	if base, set := rates.Get(u, s, 0); set && tier > 0 && rate < base {
		return fmt.Sprintf("%s is cheaper for long prompts", u)
	}
	if standard, set := rates.Get(u, Standard, tier); set {
		switch {
		case (s == Flex || s == Batch) && rate > standard:
			return fmt.Sprintf("%s of %s is dearer than of standard", u, s)
		case s == Priority && rate < standard:
			return fmt.Sprintf("%s of %s is cheaper than of standard", u, s)
		}
	}
	input, set := rates.Get(Input, s, tier)
	if !set {
		return ""
	}
	switch u {
	case CacheRead:
		if rate > input {
			return "reading from the cache is dearer than input"
		}
	case CacheWrite5m:
		if rate/2 > input {
			return "writing to the cache costs more than twice the input"
		}
	case CacheWrite1h:
		if isClaude(r) && !near(rate, 2*input) {
			return "writing to Claude's cache for an hour is not twice the input"
		}
	case Output:
		if (r.Mode == "chat" || r.Mode == "") && input > 0 && rate/maxOutputRatio > input {
			return fmt.Sprintf("output costs more than %d times the input", maxOutputRatio)
		}
	}
	return ""
}

func isClaude(r *Row) bool { return strings.Contains(strings.ToLower(r.Key), "claude") }

// near allows for rates that were rounded when they were computed.
func near(a, b money.Rate) bool { return a-b <= b/1000 && b-a <= b/1000 }

// What a newer copy of a table may change.
const (
	// maxMove is how many times dearer or cheaper a price may have become.
	maxMove = 10
	// minKept is what part of the rows there must be, in percent, if more than fewRows
	// are gone: tables that are written by hand are short.
	minKept = 70
	fewRows = 5
	// maxHeld is how many of the models that both copies have may have moved further,
	// in percent. More of them are no news of models, but another unit or a broken file.
	maxHeld = 10
)

// guardRefresh compares a newer copy of a source with the last one. A copy that has
// lost many of its rows, or in which many prices moved far, is refused by an error. A
// model of which one price did keeps the rows of the last copy, which are put into the
// newer one; they are returned as faults, and are the first of the layer's.
func guardRefresh(last, next *Layer) ([]Fault, error) {
	if len(last.Rows)-len(next.Rows) > fewRows && len(next.Rows)*100 < len(last.Rows)*minKept {
		return nil, fmt.Errorf("only %d of %d rows are left", len(next.Rows), len(last.Rows))
	}
	before := byModel(last.Rows)
	moved := make(map[ident]string)
	common := 0
	for id, rows := range byModel(next.Rows) {
		old, had := before[id]
		if !had {
			continue
		}
		common++
		if why := movedFar(old, rows); why != "" {
			moved[id] = why
		}
	}
	if len(moved) == 0 {
		return nil, nil
	}
	if len(moved) > 1 && len(moved)*100 > common*maxHeld {
		return nil, fmt.Errorf("prices of %d of %d models moved more than %d times", len(moved), common, maxMove)
	}
	next.Rows = slices.DeleteFunc(next.Rows, func(r *Row) bool {
		id, _ := identOf(r)
		return moved[id] != ""
	})
	var held []Fault
	told := make(map[ident]bool)
	for _, r := range last.Rows { // in the order of the layer, so that reports are the same
		id, _ := identOf(r)
		if moved[id] == "" {
			continue
		}
		next.Rows = append(next.Rows, r)
		if !told[id] {
			told[id] = true
			held = append(held, Fault{Provider: r.Provider, Key: r.Key, Reason: moved[id] + ": keeping the last price"})
		}
	}
	next.Faults = append(slices.Clone(held), next.Faults...)
	return held, nil
}

func byModel(rows []*Row) map[ident][]*Row {
	m := make(map[ident][]*Row, len(rows))
	for _, r := range rows {
		id, _ := identOf(r)
		m[id] = append(m[id], r)
	}
	return m
}

// movedFar compares the rows of a model that begin at the same time. A price that was
// nothing may become any; one that becomes nothing is a move without bounds.
func movedFar(old, next []*Row) (why string) {
	for _, n := range next {
		i := slices.IndexFunc(old, func(o *Row) bool { return o.From.Equal(n.From) })
		if i < 0 {
			continue
		}
		n.Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
			was, set := old[i].Rates.Get(u, s, tier)
			if set && was > 0 && (rate/maxMove > was || rate < was/maxMove) {
				why = fmt.Sprintf("%s moved more than %d times", u, maxMove)
			}
			return why == ""
		})
		if why == "" {
			why = lost(old[i], n)
		}
		if why != "" {
			return why
		}
	}
	return ""
}

// lost tells what the old row has a price of, by the token, that the next one gives away.
func lost(old, next *Row) (why string) {
	p := pick(next, "", 0, Standard, next.From, nil)
	p.timed = nil
	old.Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
		if s != Standard || tier > 0 || rate == 0 || !u.Token() || u == Citation || u == AudioWrite {
			return true
		}
		if _, ok := p.rate(u); !ok && next.Rates.units&^tools&^promptBits&^outputBits == 0 && next.priced() {
			why = fmt.Sprintf("%s lost its price", u)
		}
		return why == ""
	})
	return why
}

// Activated returns the rows of a layer that the table uses at a time and that were not
// yet in force when the layer's prices were collected: announced prices, which vendors
// have been known to take back. None of a layer that does not tell when that was.
func (t *Table) Activated(l *Layer, now time.Time) []*Row {
	if l.AsOf.IsZero() {
		return nil
	}
	var rows []*Row
	for _, r := range l.Rows {
		if !r.From.After(l.AsOf) || !r.valid(now) {
			continue
		}
		used := t.Lookup(r.Provider, r.Key, now)
		if used != nil && used.From.Equal(r.From) && used.Source == r.Source {
			rows = append(rows, r)
		}
	}
	return rows
}
