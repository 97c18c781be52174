package outage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// A record of the file is a kind and what it is of. Numbers are varints, strings
// their length and bytes.
//
//	batch   origin, seq, instance, consumer, at (Unix ms), lines, and of each line
//	        rule id, kind, unit, zone, length (ms), refill, amount
//	taken   origin and seq of a batch that the remote has taken
//	remote  a generation, and a record of the remote's own
//	whole   the generation that is whole
//	sight   instance, consumer, and of each counter rule id, kind, and used, mine, held,
//	        at, reset, lapse, as the remote last told them
//	told    a sight without mine, as versions before 't' and 'c' wrote it
//	own     instance, consumer, and of each limit of its own rule id and limit
//
// A later record of a batch takes the place of those before, and so does a generation
// of the remote's that is whole.
const (
	kindBatch  = 'b'
	kindTaken  = 't'
	kindRemote = 'r'
	kindWhole  = 'w'
	kindSight  = 'c'
	kindTold   = 's'
	kindOwn    = 'o'

	recordVersion = 1
)

// errRecord means that a record says nothing that is known, though its checksum is
// right.
var errRecord = errors.New("record is not understood")

// record appends the batch's record to b.
func (k *batch) record(b []byte) []byte {
	b = append(b, kindBatch)
	b = appendString(b, k.Origin)
	b = binary.AppendVarint(b, k.Seq)
	b = appendString(b, k.Entity.Instance)
	b = appendString(b, k.Entity.Consumer)
	b = binary.AppendVarint(b, k.At.UnixMilli())
	b = binary.AppendVarint(b, int64(len(k.Lines)))
	for _, a := range k.Lines {
		w := a.Rule.Window
		unit, zone := "", ""
		if w.Kind() == store.KindCalendar {
			unit, zone = w.String(), w.Location().String()
		}
		b = appendString(b, a.Rule.ID)
		b = append(b, byte(w.Kind()))
		b = appendString(b, unit)
		b = appendString(b, zone)
		b = binary.AppendVarint(b, w.Length().Milliseconds())
		b = binary.AppendVarint(b, a.Rule.Refill)
		b = binary.AppendVarint(b, a.Amount)
	}
	return b
}

// batchID tells batches apart.
type batchID struct {
	origin string
	seq    int64
}

// recordTaken is the record that the batch was taken.
func (k batchID) recordTaken() []byte {
	return binary.AppendVarint(appendString([]byte{kindTaken}, k.origin), k.seq)
}

// readTaken reads what recordTaken wrote, without its kind.
func readTaken(data []byte) (k batchID, err error) {
	d := decoder{b: data}
	k.origin, k.seq = d.string(), d.varint()
	if d.bad || len(d.b) > 0 {
		return batchID{}, errRecord
	}
	return k, nil
}

// length is about how long the record is, a little more rather than less.
func (k *batch) length() int64 {
	const fixed, line = 48, 64 // with frames and numbers
	n := fixed + len(k.Entity.Instance) + len(k.Entity.Consumer)
	for _, a := range k.Lines {
		n += line + len(a.Rule.ID)
	}
	return int64(n)
}

// readBatch reads what record wrote, without its kind. Rules that are equal are read
// as one.
func readBatch(data []byte, rules map[store.Rule]*store.Rule) (store.Batch, error) {
	d := decoder{b: data}
	k := store.Batch{Origin: d.string(), Seq: d.varint()}
	k.Entity = store.Entity{Instance: d.string(), Consumer: d.string()}
	k.At = time.UnixMilli(d.varint())
	n := d.varint()
	if n < 0 || n > int64(len(data)) {
		return k, errRecord
	}
	for range n {
		a, err := d.amount(rules)
		if err != nil {
			return k, err
		}
		k.Lines = append(k.Lines, a)
	}
	if d.bad || len(d.b) > 0 || k.Seq <= 0 || k.Origin == "" {
		return k, errRecord
	}
	return k, nil
}

func (d *decoder) amount(rules map[store.Rule]*store.Rule) (store.Amount, error) {
	id, kind, unit, zone := d.string(), store.Kind(d.byte()), d.string(), d.string()
	length, refill, amount := d.varint(), d.varint(), d.varint()
	if d.bad {
		return store.Amount{}, errRecord
	}
	w, err := store.WindowOf(kind, unit, zone, length)
	if err != nil {
		return store.Amount{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	r := &store.Rule{ID: id, Window: w, Refill: refill}
	// Windows are made anew for each record; those that are alike are shared.
	key := store.Rule{ID: fmt.Sprintf("%s\x00%d\x00%s\x00%s\x00%d", id, kind, unit, zone, length), Refill: refill}
	if known := rules[key]; known != nil {
		r = known
	} else {
		rules[key] = r
	}
	return store.Amount{Rule: r, Amount: amount}, nil
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendVarint(b, int64(len(s)))
	return append(b, s...)
}

// decoder reads from b. After bad is set, what it returns is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.b, d.bad = nil, true
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) string() string {
	n := d.varint()
	if n < 0 || n > int64(len(d.b)) {
		d.b, d.bad = nil, true
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}
