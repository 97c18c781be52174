package redis

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// What is pending can be taken over by a later process. To that end it is put into
// batches with their numbers before it is handed out: whoever sends one of them, and
// however often, it is applied once. What has not been sent before is numbered under
// the process's origin, a random name: its replica number may be another's by the
// time that it is restored. Those who wait for a call, an adjustment or a
// renewal end with their process, so that these are left out; of calls and adjustments
// that were given up but may have been applied, what they took is kept, to be given back.

// record is a batch that may or may not have been applied.
type record struct {
	Instance string       `json:"i"`
	Consumer string       `json:"c,omitempty"`
	Replica  int          `json:"r"`
	Origin   string       `json:"g,omitempty"` // instead of Replica
	Number   int64        `json:"n"`
	Undo     bool         `json:"z,omitempty"` // it is what giveBack queues
	Ops      []recordOp   `json:"o,omitempty"`
	Calls    []recordCall `json:"q,omitempty"`
}

// recordOp settles, or is an adjustment that is to be undone. At is Unix milliseconds.
type recordOp struct {
	At    int64        `json:"a"`
	Undo  bool         `json:"z,omitempty"`
	Lines []recordLine `json:"l"`
}

type recordLine struct {
	Rule    recordRule `json:"r"`
	Used    int64      `json:"u,omitempty"`
	Back    [][2]int64 `json:"b,omitempty"`
	Release [][2]int64 `json:"h,omitempty"`
}

// recordCall is a call's place in its batch. Takes is empty unless it was given up.
type recordCall struct {
	Lease int64        `json:"l,omitempty"` // nanoseconds
	Takes []recordTake `json:"t,omitempty"`
}

type recordTake struct {
	Rule   recordRule `json:"r"`
	Charge int64      `json:"c,omitempty"`
	Hold   int64      `json:"h,omitempty"`
	Most   int64      `json:"m,omitempty"`
}

type recordRule struct {
	ID     string `json:"i"`
	Kind   string `json:"k"`           // the script's letter
	Length int64  `json:"l,omitempty"` // milliseconds
	Unit   string `json:"u,omitempty"`
	Zone   string `json:"z,omitempty"`
	Refill int64  `json:"f,omitempty"`
}

// Export returns what is pending. What Restore takes of it in another process is
// applied once in all, even if this one goes on to send it. It may be called at any
// time, and after Close. But it is for outages and ends: of each process that has
// exported what was not sent before, the entities keep a field for forty days.
func (s *Store) Export() [][]byte {
	return s.export(func(*queue) bool { return true })
}

// Stuck is Export for while the server answers: of entities alone of which it has failed
// to take something, or that have been exported before.
func (s *Store) Stuck() [][]byte {
	return s.export((*queue).stuck)
}

// stuck tells whether something is pending that others may have, or is not on its first
// way.
func (q *queue) stuck() bool {
	return q.failures > 0 || len(q.frozen) > 0 || q.batch != nil && (q.batch.frozen || q.batch.doubt)
}

func (s *Store) export(of func(*queue) bool) (out [][]byte) {
	for i := range s.shards {
		out = s.shards[i].export(out, s, of)
	}
	return out
}

func (sh *shard) export(out [][]byte, s *Store, of func(*queue) bool) [][]byte {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, q := range sh.queues {
		if !of(q) {
			continue
		}
		s.freeze(q)
		batches := q.frozen
		if q.batch != nil {
			batches = append([]*batch{q.batch}, batches...)
		}
		for _, b := range batches {
			// Numbers and texts only, so that there can be no error.
			if data, err := json.Marshal(b.record(q.entity)); err == nil && !b.empty() {
				out = append(out, data)
				b.frozen = true // or what it settles could be sent under another number, too
			}
		}
	}
	return out
}

// freeze numbers what is to be settled. The shard is locked.
func (s *Store) freeze(q *queue) {
	var left, settles []*op
	for _, o := range q.ops {
		if o.kind == settling {
			settles = append(settles, o)
		} else {
			left = append(left, o)
		}
	}
	q.ops = left
	for len(settles) > 0 {
		b := &batch{origin: s.origin.name, number: s.origin.next(s.now()), frozen: true}
		b.ops = bounded(settles)
		settles = settles[len(b.ops):]
		q.frozen = append(q.frozen, b)
	}
}

// empty tells whether nothing of the batch is to be kept.
func (b *batch) empty() bool {
	if slices.ContainsFunc(b.ops, (*op).lasts) {
		return false
	}
	for _, c := range b.calls {
		if c.gone {
			return false
		}
	}
	return true
}

// lasts tells whether the op outlives those who wait for it.
func (o *op) lasts() bool { return o.kind == settling || o.kind == adjusting && o.gone }

func (b *batch) record(e store.Entity) record {
	r := record{Instance: e.Instance, Consumer: e.Consumer, Replica: b.replica, Origin: b.origin, Number: b.number, Undo: b.undo}
	for _, o := range b.ops {
		if !o.lasts() {
			continue
		}
		op := recordOp{At: o.at.UnixMilli(), Undo: o.kind == adjusting}
		for i := range o.lines {
			l := &o.lines[i]
			op.Lines = append(op.Lines, recordLine{recorded(l.rule), l.used, pairs(l.back), pairs(l.release)})
		}
		r.Ops = append(r.Ops, op)
	}
	for _, c := range b.calls {
		var call recordCall
		if c.gone {
			call.Lease = int64(c.lease)
			for i := range c.takes {
				t := &c.takes[i]
				call.Takes = append(call.Takes, recordTake{recorded(t.Rule), t.Charge, t.Hold, t.HoldMost})
			}
		}
		r.Calls = append(r.Calls, call)
	}
	return r
}

func pairs(amounts []amount) [][2]int64 {
	var out [][2]int64
	for _, a := range amounts {
		out = append(out, [2]int64{a.at, a.n})
	}
	return out
}

func recorded(r *store.Rule) recordRule {
	w := r.Window
	out := recordRule{ID: r.ID, Refill: r.Refill, Kind: kindLetters[w.Kind()]}
	if w.Kind() == store.KindCalendar {
		out.Unit, out.Zone = w.String(), w.Location().String()
	} else {
		out.Length = w.Length().Milliseconds()
	}
	return out
}

// Restore takes back what another process has exported. It must be called before
// anything else. The error is of records that cannot be read, which are left out.
func (s *Store) Restore(records [][]byte) error {
	var errs []error
	read := make([]record, 0, len(records))
	for _, data := range records {
		var r record
		if err := json.Unmarshal(data, &r); err != nil {
			errs = append(errs, fmt.Errorf("restoring a batch: %w", err))
			continue
		}
		read = append(read, r)
	}
	// Those of an origin must be sent in order, whatever order they were kept in.
	slices.SortStableFunc(read, func(a, b record) int { return cmp.Compare(a.Number, b.Number) })
	for i := range read {
		if err := s.restore(&read[i]); err != nil {
			errs = append(errs, fmt.Errorf("restoring a batch: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) restore(r *record) error {
	b := &batch{replica: r.Replica, origin: r.Origin, number: r.Number, undo: r.Undo, frozen: true, restored: true, doubt: true}
	if r.Number <= 0 || r.Replica < 0 || r.Replica >= replicasMost {
		return fmt.Errorf("number %d of replica %d cannot be", r.Number, r.Replica)
	}
	if r.Origin != "" && !isOrigin(r.Origin) {
		return fmt.Errorf("origin %q is not 16 hexadecimal digits", r.Origin)
	}
	for _, from := range r.Ops {
		o := &op{kind: settling, at: time.UnixMilli(from.At)}
		if from.Undo {
			o.kind, o.gone = adjusting, true
		}
		for _, l := range from.Lines {
			rule, err := l.Rule.rule()
			if err != nil {
				return err
			}
			o.lines = append(o.lines, line{rule, l.Used, amounts(l.Back), amounts(l.Release)})
		}
		b.ops = append(b.ops, o)
	}
	for _, from := range r.Calls {
		c := &call{gone: true, lease: time.Duration(from.Lease)}
		for _, t := range from.Takes {
			rule, err := t.Rule.rule()
			if err != nil {
				return err
			}
			c.takes = append(c.takes, store.Take{Rule: rule, Charge: t.Charge, Hold: t.Hold, HoldMost: t.Most})
		}
		b.calls = append(b.calls, c)
	}
	if len(b.ops) > opsMost+callsMost || len(b.calls) > callsMost {
		return fmt.Errorf("%d changes and %d calls are too many", len(b.ops), len(b.calls))
	}
	e := store.Entity{Instance: r.Instance, Consumer: r.Consumer}
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := s.queue(sh, e)
	q.frozen = append(q.frozen, b)
	s.pending.Add(int64(len(b.ops)) + 1)
	s.doubts.Add(1)
	s.work.list(q)
	return nil
}

func amounts(pairs [][2]int64) []amount {
	var out []amount
	for _, p := range pairs {
		if p[1] > 0 && p[0] >= 0 {
			out = append(out, amount{p[0], p[1]})
		}
	}
	return out
}

func (r recordRule) rule() (*store.Rule, error) {
	kind := slices.Index(kindLetters[:], r.Kind)
	if kind < 0 {
		return nil, fmt.Errorf("reading the rule %q: window %q is of no kind", r.ID, r.Kind)
	}
	w, err := store.WindowOf(store.Kind(kind), r.Unit, r.Zone, r.Length)
	if err != nil {
		return nil, fmt.Errorf("reading the rule %q: %w", r.ID, err)
	}
	return &store.Rule{ID: r.ID, Window: w, Refill: r.Refill}, nil
}
