package outage

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// ledger is what a process knows of the use of limits without the remote. Counters
// that take the place of others in the same process go on with theirs, and a process
// with what the file says, or in an outage each would grant the limits anew.
type ledger struct {
	seen  *seen
	local *memory.Store
	// origins are those whose batches are counted in local.
	mu      sync.Mutex
	origins map[string]struct{}
}

func newLedger(o *Options) *ledger {
	return &ledger{
		seen: newSeen(), local: memory.New(memory.Options{MaxEntities: o.MaxEntities, Now: o.Now}),
		origins: make(map[string]struct{}),
	}
}

// counts notes that what is of the origin is counted, and tells whether it was.
func (l *ledger) counts(origin string) (before bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, before = l.origins[origin]
	l.origins[origin] = struct{}{}
	return before
}

// takeUp has what a former process left count here: what the remote had told it, and
// what it used since.
func (c *Counters) takeUp(sights []sighted, batches []store.Batch) {
	for i := range sights {
		c.seen.restore(&sights[i])
	}
	known := make(map[string]bool)
	for i := range batches {
		origin := batches[i].Origin
		if _, asked := known[origin]; !asked {
			known[origin] = c.counts(origin)
		}
		if !known[origin] {
			c.countHere(&batches[i])
		}
	}
}

// countHere charges a batch to the local counters. Of what was used a while ago, a
// window that slides and a bucket have the less the longer it is ago.
func (c *Counters) countHere(b *store.Batch) {
	now := c.now()
	age := max(0, now.Sub(b.At))
	for _, a := range b.Lines {
		w, amount := a.Rule.Window, a.Amount
		switch w.Kind() {
		case store.KindNone:
			continue
		case store.KindRolling, store.KindBucket:
			if age >= w.Length() {
				continue
			}
			amount = int64(float64(amount) * float64(w.Length()-age) / float64(w.Length()))
		default:
			was, _ := w.Span(b.At.UnixMilli())
			if is, _ := w.Span(now.UnixMilli()); is != was {
				continue
			}
		}
		rule := c.spread.rule(a.Rule, max(1, c.replicas.Load()))
		sh := c.seen.shard(b.Entity)
		sh.mu.Lock()
		if s := sh.find(b.Entity).counter(a.Rule, 0); s != nil {
			c.plant(b.Entity, rule, s, now) // before, since it sets the counter
		}
		_ = c.local.Adjust(context.Background(), b.Entity, store.Amount{Rule: rule, Amount: amount}) // it never fails
		sh.mu.Unlock()
	}
}

// sighted is a sight with its entity, as the file has it.
type sighted struct {
	entity store.Entity
	sight
}

// all gives the records of what counts still to write, up to about so many bytes.
func (s *seen) all(now time.Time, most int64, write func(record []byte) error) error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		var records [][]byte
		for e, g := range sh.young {
			records = g.record(g.recordOwn(records, e), e, now.UnixMilli())
		}
		for e, g := range sh.old {
			if sh.young[e] == nil {
				records = g.record(g.recordOwn(records, e), e, now.UnixMilli())
			}
		}
		sh.mu.Unlock()
		for _, r := range records {
			if most -= int64(len(r)); most < 0 {
				return nil
			}
			if err := write(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// record appends the sight's record, unless nothing of it counts.
func (g *sight) record(records [][]byte, e store.Entity, now int64) [][]byte {
	b := []byte{kindSight}
	b = appendString(appendString(b, e.Instance), e.Consumer)
	empty := true
	for i := range g.counters {
		c := &g.counters[i]
		if c.left(now) == 0 && c.holds(now) == 0 && now >= c.reset {
			continue
		}
		empty = false
		b = append(appendString(b, c.id), byte(c.kind))
		for _, n := range [...]int64{c.used, c.held, c.at, c.reset, c.lapse} {
			b = binary.AppendVarint(b, n)
		}
	}
	if empty {
		return records
	}
	return append(records, b)
}

// readSight reads what record wrote, without its kind.
func readSight(data []byte) (g sighted, err error) {
	d := decoder{b: data}
	g.entity = store.Entity{Instance: d.string(), Consumer: d.string()}
	for len(d.b) > 0 && !d.bad {
		c := counter{id: d.string(), kind: store.Kind(d.byte())}
		for _, n := range [...]*int64{&c.used, &c.held, &c.at, &c.reset, &c.lapse} {
			*n = d.varint()
		}
		if c.kind > store.KindBucket || c.reset < c.at && c.kind != store.KindNone {
			d.bad = true
		}
		g.counters = append(g.counters, c)
	}
	if d.bad {
		return sighted{}, errRecord
	}
	return g, nil
}

// restore takes a sight of a former process, unless there is a newer one.
func (s *seen) restore(g *sighted) {
	sh := s.shard(g.entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.find(g.entity) == nil {
		sh.put(g.entity, &g.sight)
	}
}
