package outage

import (
	"context"
	"encoding/binary"
	"iter"
	"sync"
	"sync/atomic"
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
	// queues are those of all counters, and of closed ones whose file another is to read.
	queues atomic.Pointer[[]*queue]
}

func newLedger(o *Options) *ledger {
	return &ledger{
		seen: newSeen(), local: memory.New(memory.Options{MaxEntities: o.MaxEntities, Now: o.Now}),
		origins: make(map[string]struct{}),
	}
}

// join adds a queue, of counters that begin.
func (l *ledger) join(q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues := []*queue{q}
	if all := l.queues.Load(); all != nil {
		queues = append(queues, *all...)
	}
	l.leave(queues, nil)
}

// prune drops the queues that nobody here is to go on with. by is one that has what the
// file of its directory has, nil for none.
func (l *ledger) prune(by *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all := l.queues.Load(); all != nil {
		l.leave(*all, by)
	}
}

// leave has l keep those of the queues that are in use, and closed ones whose file another
// is to read, or may be as long as none is in use. What a file has that none reads would
// have the remote's answers be doubted for ever. The lock is held.
func (l *ledger) leave(all []*queue, by *queue) {
	heirs, open := make(map[string]bool), false
	for _, q := range all {
		if dir, closed := q.keptIn(); !closed {
			heirs[dir], open = true, true
		}
	}
	queues := make([]*queue, 0, len(all))
	for _, q := range all {
		dir, closed := q.keptIn()
		read := by != nil && by.dir == dir
		if !closed || dir != "" && !read && (heirs[dir] || !open) {
			queues = append(queues, q)
		}
	}
	l.queues.Store(&queues)
}

// behind tells whether what was used of an entity has yet to reach the remote, whichever
// counters it is pending in.
func (l *ledger) behind(e store.Entity) bool {
	for _, q := range *l.queues.Load() {
		if q.has(e) {
			return true
		}
	}
	return false
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

// countsStill is how much counts of what was used at an instant. Of what was used a while
// ago, a window that slides and a bucket have the less the longer it is ago.
func countsStill(a store.Amount, at, now time.Time) int64 {
	age := max(0, now.Sub(at))
	switch w := a.Rule.Window; w.Kind() {
	case store.KindNone:
		return 0
	case store.KindRolling, store.KindBucket:
		if age >= w.Length() {
			return 0
		}
		return int64(float64(a.Amount) * float64(w.Length()-age) / float64(w.Length()))
	default:
		was, _ := w.Span(at.UnixMilli())
		if is, _ := w.Span(now.UnixMilli()); is != was {
			return 0
		}
		return a.Amount
	}
}

// countHere charges a batch to the local counters.
func (c *Counters) countHere(b *store.Batch) {
	now := c.now()
	for _, a := range b.Lines {
		amount := countsStill(a, b.At, now)
		if amount == 0 {
			continue
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

// all gives the records to write of sights that the file does not have as they are. again
// is set where it has had them.
func (s *seen) all(now time.Time, write func(record []byte, again bool) error) error {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		var list []sightRecord
		for e, g := range sh.each() {
			list = g.write(list, e, now.UnixMilli())
		}
		sh.mu.Unlock()
		if err := putAll(list, write); err != nil {
			return err
		}
	}
	return nil
}

// one is all of one entity.
func (s *seen) one(e store.Entity, now time.Time, write func(record []byte, again bool) error) error {
	sh := s.shard(e)
	sh.mu.Lock()
	var list []sightRecord
	if g := sh.find(e); g != nil {
		list = g.write(nil, e, now.UnixMilli())
	}
	sh.mu.Unlock()
	return putAll(list, write)
}

// sightRecord is a record of a sight, and whether the file has had one of the same.
type sightRecord struct {
	record []byte
	again  bool
}

func putAll(list []sightRecord, write func(record []byte, again bool) error) error {
	for _, w := range list {
		if err := write(w.record, w.again); err != nil {
			return err
		}
	}
	return nil
}

// unwritten notes that the file has nothing.
func (s *seen) unwritten() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, g := range sh.each() {
			g.file = fileNone
		}
		sh.mu.Unlock()
	}
}

// each is all of a shard. The lock is held.
func (sh *seenShard) each() iter.Seq2[store.Entity, *sight] {
	return func(yield func(store.Entity, *sight) bool) {
		for e, g := range sh.young {
			if !yield(e, g) {
				return
			}
		}
		for e, g := range sh.old {
			if sh.young[e] == nil && !yield(e, g) {
				return
			}
		}
	}
}

// write appends the records that the file is to have of the sight, none if it has them. What
// says nothing is left out, unless the file says something else.
func (g *sight) write(list []sightRecord, e store.Entity, now int64) []sightRecord {
	if g.file == fileIs {
		return list
	}
	again := g.file == fileOld
	records := g.record(g.recordOwn(e), e, now)
	for _, r := range records {
		list = append(list, sightRecord{r, again})
	}
	if len(records) > 0 {
		g.file = fileIs
	}
	return list
}

// untold is a bit of a counter's kind in a record.
const untold = 0x80

// record appends the sight's record.
func (g *sight) record(records [][]byte, e store.Entity, now int64) [][]byte {
	b := []byte{kindSight}
	b = appendString(appendString(b, e.Instance), e.Consumer)
	empty := true
	for i := range g.counters {
		c := &g.counters[i]
		if c.silent(now) && now >= c.reset {
			continue
		}
		empty = false
		kind := byte(c.kind)
		if c.untold {
			kind |= untold
		}
		b = append(appendString(b, c.id), kind)
		for _, n := range [...]int64{c.used, c.mine, c.held, c.at, c.reset, c.lapse} {
			b = binary.AppendVarint(b, n)
		}
	}
	if empty && g.file != fileOld {
		return records
	}
	return append(records, b)
}

// readSight reads a sight of either kind.
func readSight(kind byte, data []byte) (g sighted, err error) {
	told := kind == kindTold
	d := decoder{b: data}
	g.entity = store.Entity{Instance: d.string(), Consumer: d.string()}
	for len(d.b) > 0 && !d.bad {
		c := counter{id: d.string()}
		kind := d.byte()
		c.untold = !told && kind&untold != 0
		if c.untold {
			kind &^= untold
		}
		c.kind, c.used = store.Kind(kind), d.varint()
		if !told {
			c.mine = d.varint()
		}
		for _, n := range [...]*int64{&c.held, &c.at, &c.reset, &c.lapse} {
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
