package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Reserve implements store.Counters. Errors wrap store.ErrUnavailable; what a call
// that got one may have taken is given back as soon as that is known.
func (s *Store) Reserve(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	if len(r.Takes) == 0 {
		t := &ticket{}
		t.Entity, t.Deadline, t.Private = r.Entity, s.now().Add(r.Lease).UnixMilli(), t
		return &t.Ticket, nil
	}
	sh := s.shard(r.Entity)
	if s.refused(sh, r, results, knowAll) {
		return nil, nil
	}
	since := time.Now()
	n, err := s.ready(ctx)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	c := &call{takes: r.Takes, lease: r.Lease, results: results, since: since, done: done}
	sh.mu.Lock()
	q := s.queue(sh, r.Entity)
	if len(q.calls) >= waitMost {
		sh.mu.Unlock()
		return nil, errBusy
	}
	q.calls = append(q.calls, c)
	s.begin(q, n)
	if !s.await(ctx, done, since) {
		if err := s.withdraw(q, c); err != nil {
			return nil, err
		}
	}
	return c.ticket, c.err
}

// waitMost is how many calls of an entity wait here. It is more than a server that
// is near takes in the time that a call may wait.
const waitMost = 4096

var (
	errTimeout = fmt.Errorf("counting in Redis: timeout: %w", store.ErrUnavailable)
	errBusy    = fmt.Errorf("counting in Redis: waiting behind other calls: %w", store.ErrBusy)
)

// ready returns the replica's number.
func (s *Store) ready(ctx context.Context) (*replica, error) {
	if n := s.replicas.current.Load(); n != nil {
		return n, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	n, err := s.replica(ctx)
	if err == nil {
		s.work.connected()
	}
	return n, err
}

// begin sends what is queued, unless a batch is under way that it must follow. One
// that is in doubt and on no way is sent first, lest a call wait for the worker that
// is to send it some time. The shard is locked, and unlocked on return.
func (s *Store) begin(q *queue, n *replica) {
	b := q.batch
	switch {
	case b == nil:
		b = s.build(q, n)
	case b.doubt && !b.flying:
		s.resend(q)
	default:
		b = nil
	}
	q.shard.mu.Unlock()
	if b != nil {
		s.drive(q, b)
	}
}

// await returns false if the time that began at since is up first. A client that has gone away does not
// end it sooner: connections would be closed for it, and the server's answer would
// be missed.
func (s *Store) await(ctx context.Context, done <-chan struct{}, since time.Time) bool {
	select {
	case <-done:
		return true
	default:
	}
	timer := time.NewTimer(s.timeout - time.Since(since))
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// withdraw takes a call back, or if it has been sent, leaves it to be settled
// without its caller. It returns what the caller is to be told, nil if the call was
// answered meanwhile.
func (s *Store) withdraw(q *queue, c *call) error {
	q.shard.mu.Lock()
	defer q.shard.mu.Unlock()
	if c.done == nil {
		return nil
	}
	c.done = nil
	err := q.late(c.since)
	if i := slices.Index(q.calls, c); i >= 0 {
		q.calls = slices.Delete(q.calls, i, i+1)
		q.idle()
		return err
	}
	c.abandon()
	return err
}

// Settle implements store.Counters.
func (s *Store) Settle(t *store.Ticket, actual []int64) {
	k, ok := t.Private.(*ticket)
	if !ok {
		return
	}
	sh := s.shard(k.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if k.settled {
		return
	}
	q := s.queue(sh, k.Entity)
	s.endTicket(q, k, actual)
	s.wake(q)
}

// wake has a worker come by if there is anything to be sent, and nothing under way.
func (s *Store) wake(q *queue) {
	if q.batch == nil && q.has() {
		s.work.list(q)
	}
	q.idle()
}

// renewMost is for how many timeouts Renew waits, since it may be for many tickets.
const renewMost = 10

// Renew implements store.Counters. Errors wrap store.ErrUnavailable; tickets may
// have been renewed all the same.
func (s *Store) Renew(ctx context.Context, tickets []*store.Ticket, lease time.Duration) error {
	if s.closed.Load() {
		return errClosed
	}
	ops := s.queueRenewals(tickets, lease)
	timer := time.NewTimer(renewMost * s.timeout)
	defer timer.Stop()
	var first error
	for _, r := range ops {
		var err error
		select {
		case err = <-r.done:
		case <-timer.C:
			err = s.cancel(r)
			timer.Reset(0)
		case <-ctx.Done():
			err = s.cancel(r)
		}
		if first == nil {
			first = err
		}
	}
	for _, t := range tickets {
		if k, ok := t.Private.(*ticket); ok {
			s.showDeadline(k)
		}
	}
	return first
}

func (s *Store) showDeadline(k *ticket) {
	sh := s.shard(k.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !k.settled {
		k.Deadline = k.deadline
	}
}

// waiting is an op that is waited for.
type waiting struct {
	q    *queue
	op   *op
	done chan error
}

// queueRenewals queues one op for each entity.
func (s *Store) queueRenewals(tickets []*store.Ticket, lease time.Duration) []waiting {
	byEntity := make(map[store.Entity][]*ticket)
	for _, t := range tickets {
		if k, ok := t.Private.(*ticket); ok {
			byEntity[k.Entity] = append(byEntity[k.Entity], k)
		}
	}
	var ops []waiting
	for e, all := range byEntity {
		sh := s.shard(e)
		sh.mu.Lock()
		live := slices.DeleteFunc(all, func(k *ticket) bool { return k.settled || !k.holds() })
		lines := 1
		for _, k := range live {
			lines = max(lines, len(k.Lines))
		}
		// A batch has a bound, so that an op must be below it.
		for part := range slices.Chunk(live, max(1, rulesMost/2/lines)) {
			o := &op{kind: renewing, at: s.now(), lease: lease, tickets: part, done: make(chan error, 1)}
			q := s.queue(sh, e)
			ops = append(ops, waiting{q, o, o.done})
			s.push(q, o)
			s.wake(q)
		}
		sh.mu.Unlock()
	}
	return ops
}

func (k *ticket) holds() bool {
	return slices.ContainsFunc(k.Lines, func(l store.Line) bool { return l.Held > 0 })
}

// cancel takes back an op that waits too long. If it has been sent it is left to
// itself. The error is nil if it was done meanwhile.
func (s *Store) cancel(w waiting) error {
	w.q.shard.mu.Lock()
	defer w.q.shard.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	default:
	}
	w.op.done = nil
	w.op.gone = true
	for _, ops := range []*[]*op{&w.q.ops, &w.q.renewals} {
		if i := slices.Index(*ops, w.op); i >= 0 {
			*ops = slices.Delete(*ops, i, i+1)
			s.pending.Add(-1)
			w.q.idle()
		}
	}
	return errTimeout
}

// Adjust implements store.Counters. Errors wrap store.ErrUnavailable; an adjustment
// that got one has no effect, or is taken back as soon as it is known to have had.
func (s *Store) Adjust(ctx context.Context, name store.Entity, amounts ...store.Amount) error {
	if s.closed.Load() {
		return errClosed
	}
	lines := make([]line, 0, len(amounts))
	for _, a := range amounts {
		if a.Amount != 0 {
			lines = append(lines, line{rule: a.Rule, used: a.Amount})
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if len(lines) > rulesMost/2 {
		return fmt.Errorf("counting in Redis: %d counters are too many to be adjusted at once: %w", len(lines), store.ErrUnavailable)
	}
	return s.change(ctx, name, lines)
}

// change has lines applied, after all that is queued for the entity.
func (s *Store) change(ctx context.Context, name store.Entity, lines []line) error {
	number, err := s.ready(ctx)
	if err != nil {
		return err
	}
	since, done := time.Now(), make(chan error, 1)
	o := &op{kind: adjusting, at: s.now(), lines: lines, done: done}
	sh := s.shard(name)
	sh.mu.Lock()
	q := s.queue(sh, name)
	s.push(q, o)
	s.begin(q, number)
	timer := time.NewTimer(s.timeout - time.Since(since))
	defer timer.Stop()
	select {
	case err = <-done:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	return s.cancel(waiting{q, o, done})
}
