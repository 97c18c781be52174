package redis

import (
	"encoding/binary"
	"math"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// This file has the short form of what is sent and answered most: one call alone. For
// the script, each argument and each digit costs more than the counting does.

const (
	// shortRules is how many counters the short form is for at most.
	shortRules = 64
	// shortAmount bounds amounts in it, so that the script's sums of them are exact.
	shortAmount = 1e15
	// shortWidth is of how many numbers a rule is given, of eight bytes each.
	shortWidth = 10
)

// single tells whether the batch is a call that the short form is for.
func (b *batch) single() bool {
	if b.doubt || len(b.ops) > 0 || len(b.calls) != 1 || b.calls[0].gone {
		return false
	}
	takes := b.calls[0].takes
	for i := range takes {
		t := &takes[i]
		if t.Rule.Window.Kind() == store.KindBucket || rangeOf(t) || max(t.Need, t.Charge, t.Hold) >= shortAmount {
			return false
		}
		for j := range i {
			if takes[j].Rule.ID == t.Rule.ID {
				return false
			}
		}
	}
	return len(takes) <= shortRules
}

// short makes the arguments of a batch that is a single call.
func (s *Store) short(b *batch, name store.Entity) []any {
	c := b.calls[0]
	n := len(c.takes)
	args := make([]any, 5+n)
	kinds := append(make([]byte, 0, 1+n), 'p')
	d := make(doubles, 0, 8*(2+shortWidth*n))
	lease := counter.CeilMilli(c.lease)
	d.add(lease, s.grid(lease))
	at := b.sent.UnixMilli() + s.skew.Load()
	for i := range c.takes {
		t := &c.takes[i]
		kinds = append(kinds, kindLetters[t.Rule.Window.Kind()]...)
		args[5+i] = s.fields.of(s.seeds[0], t.Rule.ID)
		high := t.Limit / 1e9
		if high*1e9 > t.Limit {
			high--
		}
		d.add(int64(flags(t)), high, t.Limit-high*1e9, max(1, t.Need), max(0, t.Charge), max(0, t.Hold))
		switch w := t.Rule.Window; w.Kind() {
		case store.KindCalendar:
			_, start, end, _ := w.Edges(at)
			d.add(start, end)
		default:
			d.add(w.Length().Milliseconds(), 0)
		}
	}
	for i := range c.takes {
		before, after := int64(0), int64(0)
		if w := c.takes[i].Rule.Window; w.Kind() == store.KindCalendar {
			before, _, _, after = w.Edges(at)
		}
		d.add(before, after)
	}
	args[0], args[1], args[2], args[3], args[4] = b.field(), b.number, kinds, []byte(d), unsaid(name)
	return args
}

// doubles are numbers as the script unpacks them.
type doubles []byte

func (d *doubles) add(numbers ...int64) {
	for _, n := range numbers {
		*d = binary.LittleEndian.AppendUint64(*d, math.Float64bits(float64(n)))
	}
}
