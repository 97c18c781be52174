package redis

import (
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// queue is all that is pending of one entity. It exists only while something is.
// Its shard's lock guards it.
type queue struct {
	entity store.Entity
	key    string
	shard  *shard
	// frozen batches have their numbers already, and are sent first, as they are.
	frozen []*batch
	// ops wait to be sent, in order; calls after them. renewals go along.
	ops      []*op
	calls    []*call
	renewals []*op
	// batch is under way, or in doubt.
	batch *batch
	// listed is set while the worker is to come by, waking while it is to be listed.
	listed, waking bool
	// failures is how many batches failed since one was answered, at answered.
	failures int
	answered time.Time
	// next is closed when something has come of a batch, if anybody waits for that.
	next chan struct{}
}

type kind uint8

const (
	settling kind = iota
	adjusting
	renewing
)

// op is a change that must be made, whatever the counters say.
type op struct {
	kind kind
	// at is when what it charges was used.
	at    time.Time
	lines []line
	// lease and tickets are of a renewal.
	lease   time.Duration
	tickets []*ticket
	// done is told of the outcome, if anybody waits for it.
	done chan error
	gone bool // nobody does any more
}

// line is what is to be changed of one counter.
type line struct {
	rule *store.Rule
	// used is charged, or if negative granted.
	used int64
	// back is given back to the windows that began at the instants.
	back []amount
	// release ends holds, by their deadlines.
	release []amount
}

// amount belongs to an instant, in Unix milliseconds of the server.
type amount struct{ at, n int64 }

func addAmount(to []amount, a amount) []amount {
	for i := range to {
		if to[i].at == a.at {
			to[i].n = counter.Add(to[i].n, a.n)
			return to
		}
	}
	return append(to, a)
}

// call waits to be admitted.
type call struct {
	takes   []store.Take
	lease   time.Duration
	results []store.Result
	since   time.Time // when it came
	done    chan struct{}
	gone    bool // nobody waits for it any more; takes are its own then

	ticket *store.Ticket
	err    error
}

// ticket is the store's side of an admitted call. The queue's lock guards it.
type ticket struct {
	store.Ticket
	deadline int64
	settled  bool
	// settle is the op that releases what is held, once there is one.
	settle *op
	few    [4]store.Line // room for the lines of most calls
}

const (
	// foldFrom is from how many ops on that wait, settling adds to those that are
	// there instead of queueing behind them.
	foldFrom = 64
	// foldSpan is what is added up at most, in time.
	foldSpan = time.Minute
)

// queue returns the queue of an entity. The shard is locked.
func (s *Store) queue(sh *shard, e store.Entity) *queue {
	q := sh.queues[e]
	if q == nil {
		if sh.queues == nil {
			sh.queues = make(map[store.Entity]*queue)
		}
		// A copy, or the request that the names are part of would stay.
		e = store.Entity{Instance: strings.Clone(e.Instance), Consumer: strings.Clone(e.Consumer)}
		q = &queue{entity: e, key: s.key(e), shard: sh}
		sh.queues[e] = q
	}
	return q
}

// push queues an op, and returns that or the one which it was added to. The shard
// is locked.
func (s *Store) push(q *queue, o *op) *op {
	if o.kind == settling {
		q.shard.changed(q.entity, o.has)
	} else {
		delete(q.shard.refusals, q.entity)
	}
	if o.kind == settling && len(q.ops) >= foldFrom {
		if to := q.fold(o); to != nil {
			return to
		}
	}
	s.pending.Add(1)
	if o.kind == renewing {
		q.renewals = append(q.renewals, o)
		return o
	}
	q.ops = append(q.ops, o)
	return o
}

// fold adds what is to be settled to an op that waits, if one is of the same minute
// and of the same windows.
func (q *queue) fold(o *op) *op {
	for i := len(q.ops) - 1; i >= 0; i-- {
		to := q.ops[i]
		if to.kind != settling || !sameMinute(to.at, o.at) || !sameWindows(to.at, o) {
			continue
		}
		for _, l := range o.lines {
			to.add(l)
		}
		return to
	}
	return nil
}

func sameMinute(a, b time.Time) bool {
	return a.Truncate(foldSpan).Equal(b.Truncate(foldSpan))
}

// sameWindows tells whether what an op charges would be charged to the same windows
// at another instant.
func sameWindows(at time.Time, o *op) bool {
	for _, l := range o.lines {
		a, _ := l.rule.Window.Span(at.UnixMilli())
		b, _ := l.rule.Window.Span(o.at.UnixMilli())
		if a != b {
			return false
		}
	}
	return true
}

func (o *op) add(l line) {
	for i := range o.lines {
		to := &o.lines[i]
		if to.rule.ID != l.rule.ID {
			continue
		}
		to.used = counter.Add(to.used, l.used)
		for _, a := range l.back {
			to.back = addAmount(to.back, a)
		}
		for _, a := range l.release {
			to.release = addAmount(to.release, a)
		}
		return
	}
	o.lines = append(o.lines, l)
}

// move changes the deadline of a ticket whose holds the op is to release.
func (o *op) move(t *ticket, to int64) {
	for i := range t.Lines {
		held := &t.Lines[i]
		if held.Held == 0 {
			continue
		}
		for j := range o.lines {
			l := &o.lines[j]
			if l.rule.ID == held.Rule.ID {
				l.release = addAmount(l.release, amount{t.deadline, -held.Held})
				l.release = addAmount(l.release, amount{to, held.Held})
			}
		}
	}
}

// has tells whether anything is to be sent.
func (q *queue) has() bool { return len(q.frozen)+len(q.ops)+len(q.calls)+len(q.renewals) > 0 }

// waited tells whether anybody waits for what is queued.
func (q *queue) waited() bool {
	waits := func(o *op) bool { return o.done != nil && !o.gone }
	return len(q.calls) > 0 || slices.ContainsFunc(q.ops, waits) || slices.ContainsFunc(q.renewals, waits)
}

// late is the error of a call that has waited for as long as it may. While the server
// answers, it is for those before it that it waited.
func (q *queue) late(since time.Time) error {
	if q.answered.After(since) {
		return errBusy
	}
	return errTimeout
}

// undoes tells whether something is to be given back, or may be, of what calls took that
// were given up.
func (q *queue) undoes() bool {
	return q.batch != nil && q.batch.undoes() || slices.ContainsFunc(q.frozen, (*batch).undoes)
}

func (b *batch) undoes() bool {
	return b.undo || slices.ContainsFunc(b.calls, func(c *call) bool { return c.gone && len(c.takes) > 0 })
}

// wake tells those who wait for it that something has come of a batch.
func (q *queue) wake() {
	if q.next != nil {
		close(q.next)
		q.next = nil
	}
}

// idle forgets the queue if nothing is pending.
func (q *queue) idle() {
	if q.batch == nil && !q.listed && !q.has() && q.shard.queues[q.entity] == q {
		delete(q.shard.queues, q.entity)
	}
}
