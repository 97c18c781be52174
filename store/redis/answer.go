package redis

import (
	"errors"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// triesMost is how often a batch is sent at once over connections that end.
const triesMost = 3

// retryFirst and retryMost are after how long what could not be sent is tried again.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// answer takes in what came of a batch. It returns what is to be sent next: nothing,
// the same batch, or one that others wait for.
func (s *Store) answer(q *queue, b *batch, reply string, err error) *batch {
	sh := q.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	defer q.wake()
	b.flying = false
	var r reading
	if err == nil {
		r, err = b.read(reply)
	}
	if err == nil && r.verdict == otherTime {
		s.skew.Store(r.then - b.sent.UnixMilli())
		if b.moved++; b.moved <= movesMost {
			s.encode(q, b)
			return b
		}
		err = errClock
	}
	switch {
	case err == nil:
		s.work.succeeded()
		q.batch, q.failures, q.answered = nil, 0, time.Now()
		s.complete(q, b, &r)
		s.settlePending(b) // after what follows from it is pending
	case untouched(err) && !b.doubt:
		// The next would find the same, and so on without a pause.
		q.batch = nil
		s.dissolve(q, b, unavailable(err))
		s.turnAway(q, unavailable(err))
		if q.has() {
			s.work.later(q)
		}
		q.idle()
		return nil
	default:
		if errors.Is(err, errReply) && !b.told {
			b.told = true
			s.report(errNotUnderstood)
		}
		if !b.doubt {
			b.doubt = true
			s.pending.Add(1)
			s.doubts.Add(1)
		}
		if lost(err) && b.tries < triesMost && s.now().Before(b.until) {
			s.encode(q, b)
			return b
		}
		b.giveUp(unavailable(err))
		if untouched(err) {
			s.turnAway(q, unavailable(err))
		}
		s.work.later(q)
		return nil
	}
	if q.waited() {
		if r := s.replicas.current.Load(); r != nil {
			return s.build(q, r)
		}
	}
	if q.has() {
		s.work.list(q)
	}
	q.idle()
	return nil
}

func retryDelay(tries int) time.Duration {
	return min(retryMost, retryFirst<<min(tries-1, 10))
}

// settlePending takes a batch out of the count of what is pending.
func (s *Store) settlePending(b *batch) {
	n := int64(len(b.ops))
	if b.doubt {
		n++
		s.doubts.Add(-1)
	}
	s.pending.Add(-n)
}

// dissolve undoes build, after it is certain that the batch was not applied. Those
// who wait are told; what must be settled waits on.
func (s *Store) dissolve(q *queue, b *batch, err error) {
	if b.frozen {
		b.giveUp(err)
		q.frozen = append([]*batch{b}, q.frozen...)
		return
	}
	var keep []*op
	for _, o := range b.ops {
		if o.kind == settling {
			keep = append(keep, o)
			continue
		}
		s.pending.Add(-1)
		o.tell(err)
	}
	q.ops = append(keep, q.ops...)
	for _, c := range b.calls {
		c.finish(nil, err)
	}
}

// turnAway tells those who wait for what is queued that it cannot be sent. What must
// be settled waits on.
func (s *Store) turnAway(q *queue, err error) {
	b := &batch{ops: append(q.ops, q.renewals...), calls: q.calls}
	q.ops, q.renewals, q.calls = nil, nil, nil
	s.dissolve(q, b, err)
}

// giveUp tells those who wait that nothing is known. The batch is sent again
// without them.
func (b *batch) giveUp(err error) {
	for _, o := range b.ops {
		o.tell(err)
		o.gone = o.kind == adjusting
	}
	for _, c := range b.calls {
		if !c.gone {
			c.abandon()
			c.finish(nil, err)
		}
	}
}

func (o *op) tell(err error) {
	if o.done != nil && !o.gone {
		o.done <- err
		o.done = nil
	}
}

// abandon makes the call independent of its caller.
func (c *call) abandon() {
	c.gone = true
	c.takes = slices.Clone(c.takes)
	c.results = nil
}

func (c *call) finish(t *store.Ticket, err error) {
	if c.done == nil {
		return
	}
	c.ticket, c.err = t, err
	close(c.done)
	c.done = nil
}

// complete takes in the reply of a batch that was applied, now or before.
func (s *Store) complete(q *queue, b *batch, r *reading) {
	switch r.verdict {
	case passed:
		s.overtaken(q, b, r.then)
		return
	case before:
		if b.first() { // it is another's of the same number
			s.overtaken(q, b, b.number)
			return
		}
	case applied:
		s.skew.Store(r.then - b.sent.UnixMilli())
	}
	var undo []*op
	for _, o := range b.ops {
		switch o.kind {
		case renewing:
			o.renewed(s.deadline(r.then, o.lease))
		case adjusting:
			if o.gone {
				undo = append(undo, o.undone())
			}
		default:
		}
		o.tell(nil)
	}
	for i, c := range b.calls {
		r.calls[i].edits = b.edits
		if o := s.decided(q, c, &r.calls[i]); o != nil {
			undo = append(undo, o)
		}
	}
	if len(undo) > 0 {
		s.giveBack(q, b, undo)
	}
}

// giveBack queues what is to be given back of a batch, before all else, and under the
// number that follows the batch's own. Whoever has restored the batch finds the same, and
// may have sent it. An odd number has none that follows it: the record of its batch is from
// a version that kept none free.
func (s *Store) giveBack(q *queue, b *batch, ops []*op) {
	if b.origin != "" || b.number&1 == 1 {
		for _, o := range ops {
			s.push(q, o)
		}
		return
	}
	for _, o := range ops {
		q.shard.changed(q.entity, o.has)
	}
	back := &batch{replica: b.replica, number: b.number | 1, ops: ops, undo: true, frozen: b.frozen, restored: b.restored}
	q.frozen = append([]*batch{back}, q.frozen...)
	s.pending.Add(int64(len(ops)))
}

// has tells whether the op changes the counter of a rule.
func (o *op) has(id string) bool {
	return slices.ContainsFunc(o.lines, func(l line) bool { return l.rule.ID == id })
}

// first tells whether the batch was sent once, and by nobody else. The server cannot know
// it then. Where a clock was put back, numbers are those that a former process had.
func (b *batch) first() bool { return b.tries-b.moved == 1 && !b.doubt && !b.frozen }

// overtaken is for a batch after which the server has applied another of the same
// replica or origin. Both send theirs in order.
func (s *Store) overtaken(q *queue, b *batch, last int64) {
	switch {
	case b.origin != "", b.frozen && (b.undo || last == b.number|1):
		// Whoever has it, too, has had it applied and gone on. Those who wait, if it is this
		// process's own, are not told what came of it.
		b.giveUp(errTimeout)
	case b.restored:
		// So has its process, or it is another's number since.
		if r := s.replicas.current.Load(); r == nil || r.number != b.replica || !r.kept {
			s.report(errOvertaken)
		}
	default:
		// Two have the same number, since one was away for longer than its lease. What
		// was sent once more may be charged twice then, rather than never.
		if b.doubt {
			s.report(errOvertaken)
		}
		s.passed(b.replica, last)
		s.again(q, b)
	}
}

// again queues a batch anew whose number the server has passed.
func (s *Store) again(q *queue, b *batch) {
	var ops, renewals []*op
	for _, o := range b.ops {
		if o.kind == renewing {
			renewals = append(renewals, o)
		} else {
			ops = append(ops, o)
		}
	}
	q.ops, q.renewals = append(ops, q.ops...), append(renewals, q.renewals...)
	s.pending.Add(int64(len(b.ops)))
	waiting := slices.DeleteFunc(b.calls, func(c *call) bool { return c.gone })
	q.calls = append(waiting, q.calls...)
}

// deadline is when holds lapse that were taken or renewed then. The script has the
// same formula.
func (s *Store) deadline(then int64, lease time.Duration) int64 {
	ms := counter.CeilMilli(lease)
	grid := s.grid(ms)
	return (then + ms + grid - 1) / grid * grid
}

// renewed notes the new deadline of tickets.
func (o *op) renewed(deadline int64) {
	for _, t := range o.tickets {
		if t.settle != nil {
			t.settle.move(t, deadline)
		}
		t.deadline = deadline
	}
}

// undone takes an adjustment back that whoever asked for it was told had failed.
func (o *op) undone() *op {
	undone := &op{kind: settling, at: o.at}
	for _, l := range o.lines {
		undone.lines = append(undone.lines, line{rule: l.rule, used: counter.Sub(0, l.used)})
	}
	return undone
}
