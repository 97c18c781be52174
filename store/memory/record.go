package memory

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"unique"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// A record is the whole state of one entity, so that the last one holds and
// reading one twice does no harm:
//
//	text instance, text consumer, then for each counter
//	byte kind
//	text unit, text zone        for a window of the calendar
//	uvarint milliseconds        for others
//	varint refill, text rule id
//	varint start, used, prev
//
// A text is its length as a uvarint and its bytes. The window is there to tell when
// a counter is over that no config uses. Holds are not there: they belong to calls
// that end with the process. An entity without counters is over.

const (
	// recordVersion is that of the form above, of the records of limits, see
	// appendRecord of overrides, and of marks. Version 1 had no limits: it would take
	// them for records that it cannot read and leave them out when it writes the file
	// anew. So it must not open a file that may have some. Nor must version 2, which had
	// no marks: what it wrote would be taken for what the last mark's process has.
	recordVersion = 3
	// oldestVersion is the first whose records are read.
	oldestVersion = 1
)

// maxInstant bounds the instants that are read, in Unix milliseconds: beyond it
// windows could not be reckoned.
const maxInstant = 1 << 48

var errRecord = errors.New("not the record of a counter")

// appendRecord appends the entity's record, without counters that say nothing at
// now, and returns how many it has.
func (e *entity) appendRecord(b []byte, now int64) (record []byte, n int) {
	b = appendText(b, e.instance.Value())
	b = appendText(b, e.consumer)
	for i := range e.counters {
		c := &e.counters[i]
		r := c.rule.Value()
		c.Roll(&r, now)
		if c.Idle(&r, now) <= now {
			continue
		}
		b = appendRule(b, &r)
		b = binary.AppendVarint(b, c.Start)
		b = binary.AppendVarint(b, c.Used)
		b = binary.AppendVarint(b, c.Prev)
		n++
	}
	return b, n
}

func appendRule(b []byte, r *store.Rule) []byte {
	kind := r.Window.Kind()
	b = append(b, byte(kind))
	if kind == store.KindCalendar {
		b = appendText(b, r.Window.String())
		b = appendText(b, r.Window.Location().String())
	} else {
		b = binary.AppendUvarint(b, uint64(r.Window.Length().Milliseconds()))
	}
	b = binary.AppendVarint(b, r.Refill)
	return appendText(b, r.ID)
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decoder reads records. It remembers rules and instances, of which there are few.
type decoder struct {
	rest      []byte
	bad       bool
	rules     map[string]unique.Handle[store.Rule]
	instances map[string]string
	counters  []ruleCounter
}

func newDecoder() *decoder {
	return &decoder{rules: make(map[string]unique.Handle[store.Rule]), instances: make(map[string]string)}
}

// decode reads a record. The counters are good until the next one is read.
func (d *decoder) decode(record []byte) (name store.Entity, counters []ruleCounter, err error) {
	d.rest, d.bad, d.counters = record, false, d.counters[:0]
	instance, consumer := d.text(), d.text()
	for len(d.rest) > 0 && !d.bad {
		handle, err := d.rule()
		if err != nil {
			return name, nil, err
		}
		c := ruleCounter{rule: handle, State: counter.State{Start: d.varint(), Used: d.varint(), Prev: d.varint()}}
		if !valid(c) {
			return name, nil, errRecord
		}
		d.counters = append(d.counters, c)
	}
	if d.bad {
		return name, nil, errRecord
	}
	text, ok := d.instances[string(instance)]
	if !ok {
		text = string(instance)
		d.instances[text] = text
	}
	return store.Entity{Instance: text, Consumer: string(consumer)}, d.counters, nil
}

// valid tells whether the arithmetic can do with a state.
func valid(c ruleCounter) bool {
	w := c.rule.Value().Window
	rest := w.Kind() != store.KindBucket || c.Prev >= 0 && c.Prev < w.Length().Milliseconds()
	return c.Start >= 0 && c.Start < maxInstant && rest
}

// rule reads a rule. Its window is that of all equal ones.
func (d *decoder) rule() (h unique.Handle[store.Rule], err error) {
	from := d.rest
	kind := store.Kind(d.byte())
	var unit, zone []byte
	var length uint64
	if kind == store.KindCalendar {
		unit, zone = d.text(), d.text()
	} else {
		length = d.uvarint()
	}
	refill, id := d.varint(), d.text()
	if d.bad {
		return h, errRecord
	}
	encoded := from[:len(from)-len(d.rest)]
	if h, ok := d.rules[string(encoded)]; ok {
		return h, nil
	}
	w, err := window(kind, string(unit), string(zone), length)
	if err != nil {
		return h, err
	}
	h = unique.Make(store.Rule{ID: string(id), Window: w, Refill: refill})
	d.rules[string(encoded)] = h
	return h, nil
}

// window is that of a counter, which has one: no counter is kept of what is held alone.
func window(kind store.Kind, unit, zone string, length uint64) (*store.Window, error) {
	switch {
	case kind == store.KindNone:
		return nil, errRecord
	case kind == store.KindCalendar && (zone == "" || strings.ContainsRune(zone, 0)):
		return nil, errRecord // an empty name would be UTC
	}
	return store.WindowOf(kind, unit, zone, int64(min(length, math.MaxInt64)))
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	c := d.rest[0]
	d.rest = d.rest[1:]
	return c
}

func (d *decoder) uvarint() uint64 {
	x, n := binary.Uvarint(d.rest)
	d.skip(n)
	return x
}

func (d *decoder) varint() int64 {
	x, n := binary.Varint(d.rest)
	d.skip(n)
	return x
}

// skip goes on by what a number took, nothing or less if it was none.
func (d *decoder) skip(n int) {
	if n <= 0 {
		d.bad = true
		return
	}
	d.rest = d.rest[n:]
}

func (d *decoder) text() []byte {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return nil
	}
	text := d.rest[:n]
	d.rest = d.rest[n:]
	return text
}
