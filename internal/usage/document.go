package usage

import (
	"bytes"

	"github.com/tidwall/gjson"
)

const (
	// maxValues and maxKept bound what one document can make the scanner hold, in
	// values and in bytes. What is beyond counts as absent; elements of arrays leave
	// room for the single values, for a long list must not hide the usage behind it.
	maxValues = 8192
	maxKept   = 256 << 10
)

// Types of JSON values, by what they begin with.
const (
	typeAbsent = 0
	typeObject = '{'
	typeArray  = '['
	typeString = '"'
	typeNumber = '0'
	typeTrue   = 't'
	typeFalse  = 'f'
	typeNull   = 'n'
)

// value is what stood at a position.
type value struct {
	slot int32
	// element is the number, from 1, of the element it lies in, of the outermost
	// array around it; 0 outside arrays.
	element int32
	off     int32
	size    int32 // of the raw JSON kept, 0 if only the type is
	before  int32 // the value at the same position before this one: its index plus one
	kind    byte
}

// document is what the followed positions of one JSON object held.
type document struct {
	values []value
	kept   []byte
	last   []int32                // by slot: index into values plus one
	text   []int64                // by slot: decoded bytes
	texts  []int32                // slots with text, so that no others have to be cleared
	once   [maxOnce/64 + 1]uint64 // by node.once: nodes that came already

	dropped bool // a member came again, so that some of the values are void
}

// maxTexts is how many texts of a document are listed; where there are more, all slots are
// cleared.
const maxTexts = 64

func newDocument(slots int) document {
	return document{last: make([]int32, slots), text: make([]int64, slots)}
}

// reset forgets the document and keeps its memory. It clears what was written alone:
// most documents use a few slots of many.
func (d *document) reset() {
	if len(d.values) > len(d.last) {
		clear(d.last)
	} else {
		for i := range d.values {
			d.last[d.values[i].slot] = 0
		}
	}
	if len(d.texts) == maxTexts {
		clear(d.text)
	} else {
		for _, slot := range d.texts {
			d.text[slot] = 0
		}
	}
	d.values, d.kept, d.texts = d.values[:0], d.kept[:0], d.texts[:0]
	d.once, d.dropped = [len(d.once)]uint64{}, false
}

// counted notes that text may be added at a slot.
func (d *document) counted(slot int32) {
	n := len(d.texts)
	if n == maxTexts || n > 0 && d.texts[n-1] == slot {
		return
	}
	d.texts = append(d.texts, slot)
}

// shrink gives back memory that an unusual document needed.
func (d *document) shrink() {
	if cap(d.kept) > 8<<10 {
		d.kept = nil
	}
	if cap(d.values) > 256 {
		d.values = nil
	}
}

// put records a value, whose raw JSON is what was kept from off on.
func (d *document) put(slot int32, kind byte, element, off int32) {
	if n := len(d.values); n == maxValues || element > 0 && n >= maxValues/2 {
		return
	}
	d.values = append(d.values, value{
		slot: slot, element: element, kind: kind,
		off: off, size: int32(len(d.kept)) - off, before: d.last[slot],
	})
	d.last[slot] = int32(len(d.values))
}

// drop makes absent what the slots hold: the same member came again.
func (d *document) drop(slots []int32) {
	d.dropped = true
	for _, s := range slots {
		d.last[s], d.text[s] = 0, 0
	}
}

// view is a document as one API family sees it: the positions are numbered as in the
// family's own table.
type view struct {
	d     *document
	slots []int32
}

// kind returns the type of the last value at the position, typeAbsent if none.
func (v view) kind(p int) byte {
	i := v.d.last[v.slots[p]]
	if i == 0 {
		return typeAbsent
	}
	return v.d.values[i-1].kind
}

// raw returns the raw JSON of the last value at the position, nil if it is absent or
// was too long. It is valid until the document ends.
func (v view) raw(p int) []byte {
	i := v.d.last[v.slots[p]]
	if i == 0 {
		return nil
	}
	return v.d.raw(&v.d.values[i-1])
}

func (d *document) raw(v *value) []byte {
	if v.size == 0 {
		return nil
	}
	return d.kept[v.off : v.off+v.size]
}

// word returns the text of the last string at the position, nil if there is none or
// it was too long. It is valid until the document ends.
func (v view) word(p int) []byte {
	if v.kind(p) != typeString {
		return nil
	}
	return unquote(v.raw(p))
}

// text returns how many bytes of text stood at the position, decoded.
func (v view) text(p int) int64 { return v.d.text[v.slots[p]] }

// count returns how many values stood at the position.
func (v view) count(p int) int {
	n := 0
	for i := v.d.last[v.slots[p]]; i != 0; i = v.d.values[i-1].before {
		n++
	}
	return n
}

// each calls fn for every value at the position, the last one first.
func (v view) each(p int, fn func(element int32, kind byte, raw []byte)) {
	for i := v.d.last[v.slots[p]]; i != 0; {
		w := &v.d.values[i-1]
		fn(w.element, w.kind, v.d.raw(w))
		i = w.before
	}
}

// at returns the raw JSON of the position's last value within the given element.
func (v view) at(p int, element int32) []byte {
	if w := v.find(p, element); w != nil {
		return v.d.raw(w)
	}
	return nil
}

// wordAt returns the text of the position's last value within the given element, nil if
// that is no string.
func (v view) wordAt(p int, element int32) []byte {
	if w := v.find(p, element); w != nil && w.kind == typeString {
		return unquote(v.d.raw(w))
	}
	return nil
}

func (v view) find(p int, element int32) *value {
	for i := v.d.last[v.slots[p]]; i != 0; {
		w := &v.d.values[i-1]
		if w.element == element {
			return w
		}
		i = w.before
	}
	return nil
}

// element returns the type of the position's last value within the given element.
func (v view) element(p int, element int32) byte {
	if w := v.find(p, element); w != nil {
		return w.kind
	}
	return typeAbsent
}

// unquote decodes a raw JSON string; it copies only what has escapes.
func unquote(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	in := raw[1 : len(raw)-1]
	if bytes.IndexByte(in, '\\') >= 0 {
		return []byte(gjson.ParseBytes(raw).String())
	}
	return in
}
