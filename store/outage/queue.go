package outage

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// queue holds what the remote has yet to be charged with, in batches, by entity.
// Charges go into a batch that is there as long as it has not been sent and its
// windows are theirs, so that there are about as many batches as entities.
type queue struct {
	origin string
	most   int64  // bytes of all batches, above which windows are no longer told apart
	dir    string // where they are kept in the end, empty for nowhere

	mu     sync.Mutex
	seq    int64
	lanes  map[store.Entity]*lane
	n      int   // batches
	size   int64 // their bytes in a file
	full   bool  // the size was above most, and charges were merged for it
	closed bool
	// changed batches have not been written as they are now. It is nil while nothing
	// is written to a file.
	changed map[*batch]struct{}
	// taken are those that have been written and that the remote has taken since.
	taken []batchID
}

// lane is the batches of an entity, in the order in which they are sent.
type lane struct{ batches []*batch }

// batch is one that is being collected, or sent.
type batch struct {
	store.Batch
	// sent is set once it may have reached the remote: then it stays as it is.
	sent bool
	size int64
	// written is set once a file has it.
	written bool
}

func newQueue(most int64) *queue {
	return &queue{origin: randomID(), most: most, lanes: make(map[store.Entity]*lane)}
}

// randomID is 16 hexadecimal digits that no other process has.
func randomID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// add charges amounts that were used at one instant. It returns false after close.
func (q *queue) add(e store.Entity, at time.Time, lines []store.Amount) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	l := q.lanes[e]
	if l == nil {
		e.Consumer = strings.Clone(e.Consumer) // or the request it is part of would stay
		l = new(lane)
		q.lanes[e] = l
	}
	b := q.fitting(l, at, lines)
	if b == nil {
		q.seq = max(q.seq+1, time.Now().UnixMicro())
		b = &batch{Batch: store.Batch{Entity: e, Origin: q.origin, Seq: q.seq, At: at}}
		l.batches = append(l.batches, b)
		q.n++
	}
	for _, a := range lines {
		b.add(a)
	}
	q.measure(b)
	return true
}

// fitting returns a batch that the amounts may be added to, nil if there is none.
func (q *queue) fitting(l *lane, at time.Time, lines []store.Amount) *batch {
	for i := len(l.batches) - 1; i >= 0 && !l.batches[i].sent; i-- {
		if l.batches[i].fits(at, lines) {
			return l.batches[i]
		}
	}
	if q.size < q.most || len(l.batches) == 0 || l.batches[len(l.batches)-1].sent {
		return nil
	}
	// No room for another: what is used now counts, in long windows as in short ones,
	// and what was used before may count in the short ones too.
	q.full = true
	b := l.batches[len(l.batches)-1]
	if at.After(b.At) {
		b.At = at
	}
	return b
}

// fits tells whether the amounts were used in the very windows that the batch is
// charged to. A bucket has none; for it the time is kept to the minute.
func (b *batch) fits(at time.Time, lines []store.Amount) bool {
	for _, a := range lines {
		if a.Rule.Window.Kind() == store.KindBucket {
			if at.Sub(b.At).Abs() >= time.Minute {
				return false
			}
			continue
		}
		// Span keeps the window asked for last, so the current one is asked for last.
		was, _ := a.Rule.Window.Span(b.At.UnixMilli())
		if is, _ := a.Rule.Window.Span(at.UnixMilli()); is != was {
			return false
		}
	}
	return true
}

func (b *batch) add(a store.Amount) {
	for i := range b.Lines {
		if b.Lines[i].Rule.ID == a.Rule.ID {
			b.Lines[i].Amount = addUp(b.Lines[i].Amount, a.Amount)
			return
		}
	}
	b.Lines = append(b.Lines, a)
}

// addUp stops at the ends of int64.
func addUp(a, b int64) int64 {
	switch s := a + b; {
	case a > 0 && b > 0 && s < 0:
		return 1<<63 - 1
	case a < 0 && b < 0 && s >= 0:
		return -1 << 63
	default:
		return s
	}
}

func (q *queue) measure(b *batch) {
	size := b.length()
	q.size += size - b.size
	b.size = size
	q.note(b)
}

// restore takes a batch of a former process, which may have reached the remote.
func (q *queue) restore(b store.Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[b.Entity]
	if l == nil {
		l = new(lane)
		q.lanes[b.Entity] = l
	}
	k := &batch{Batch: b, sent: true, written: true}
	l.batches = append(l.batches, k)
	q.n++
	q.measure(k)
}

// has tells whether something of the entity is pending.
func (q *queue) has(e store.Entity) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lanes[e] != nil
}

// first returns the batch of the entity that is to be sent next, nil if there is
// none. It stays as it is from then on.
func (q *queue) first(e store.Entity) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[e]
	if l == nil {
		return nil
	}
	return q.seal(l)
}

func (q *queue) seal(l *lane) *batch {
	b := l.batches[0]
	b.sent = true
	return b
}

// next returns the first batches of up to n entities, in no order, but of those that
// skip tells. Batches of one entity are never sent at once: one that failed must not
// be passed by the next.
func (q *queue) next(n int, skip func(store.Entity) bool) []*batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.lanes))
	batches := make([]*batch, 0, n)
	for e, l := range q.lanes {
		if len(batches) == n {
			break
		}
		if !skip(e) {
			batches = append(batches, q.seal(l))
		}
	}
	return batches
}

// remove drops a batch that the remote has taken. It returns false if it was dropped before.
func (q *queue) remove(b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[b.Entity]
	if l == nil || l.batches[0] != b {
		return false
	}
	l.batches[0] = nil
	l.batches = l.batches[1:]
	if len(l.batches) == 0 {
		delete(q.lanes, b.Entity)
	}
	q.n--
	q.size -= b.size
	delete(q.changed, b)
	if b.written {
		q.taken = append(q.taken, batchID{b.Origin, b.Seq})
	}
	if q.n == 0 {
		q.full = false
	}
	return true
}

// pending is how many batches there are.
func (q *queue) pending() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n
}

func (q *queue) state() (n int, size int64, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.n, q.size, q.full
}

// watch has changes noted from now on, or no longer.
func (q *queue) watch(on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !on:
		q.changed, q.taken = nil, nil
	case q.changed == nil:
		q.noteAll()
	}
}

// changes gives the records of batches that have changed to write, and forgets that
// they have. The earlier ones are first, so that a file that breaks off has no batch
// without those before it. Calls are kept waiting for a few of them only. It returns
// those that were taken, which are to be written after, and forgets them, too.
func (q *queue) changes(write func(record []byte) error) (taken []batchID, err error) {
	q.mu.Lock()
	batches := slices.SortedFunc(maps.Keys(q.changed), func(a, b *batch) int { return cmp.Compare(a.Seq, b.Seq) })
	clear(q.changed)
	taken, q.taken = q.taken, nil
	q.mu.Unlock()
	return taken, q.encode(batches, write)
}

// again has all batches written, and that others were taken: after an error nobody knows
// what the file has.
func (q *queue) again(taken []batchID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noteAll()
	q.taken = append(taken, q.taken...)
}

// entities are those that something is pending of.
func (q *queue) entities() []store.Entity {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Collect(maps.Keys(q.lanes))
}

// all gives the records of all batches to write.
func (q *queue) all(write func(record []byte) error) error {
	q.mu.Lock()
	batches := make([]*batch, 0, q.n)
	for _, l := range q.lanes {
		batches = append(batches, l.batches...)
	}
	q.mu.Unlock()
	return q.encode(batches, write)
}

func (q *queue) encode(batches []*batch, write func(record []byte) error) error {
	const few = 64
	var record []byte
	for some := range slices.Chunk(batches, few) {
		q.mu.Lock()
		for _, b := range some {
			record = b.record(record[:0])
			b.written = true
			if err := write(record); err != nil {
				q.mu.Unlock()
				return err
			}
		}
		q.mu.Unlock()
	}
	return nil
}

// note has the batch written again. The lock is held.
func (q *queue) note(b *batch) {
	if q.changed != nil {
		q.changed[b] = struct{}{}
	}
}

// noteAll has all batches written again. The lock is held.
func (q *queue) noteAll() {
	q.changed = make(map[*batch]struct{})
	for _, l := range q.lanes {
		for _, b := range l.batches {
			q.note(b)
		}
	}
}

// keptIn is the directory of a queue that is closed, where the file has what is pending. It
// is empty if there is none.
func (q *queue) keptIn() (dir string, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dir, q.closed
}

// close refuses further charges. kept is set where a file has those that are pending.
func (q *queue) close(kept bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if !kept || q.n == 0 {
		q.dir = ""
	}
}
