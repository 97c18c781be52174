package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// This file is what a layer needs that bridges outages. It counts calls by itself
// meanwhile, and has their charges taken here afterwards.

// Ping returns nil if the server answers and takes writes: it claims the replica's
// number, or keeps it. What waits for the server is sent then, and for what is in
// doubt Ping waits, for as long as a call may: calls of such an entity would stand
// behind it. Errors wrap store.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	err := s.ping(ctx)
	if err == nil && s.pending.Load() > 0 {
		s.redeliver(ctx)
	}
	return err
}

func (s *Store) ping(ctx context.Context) error {
	r := s.replicas.current.Load()
	if r == nil {
		_, err := s.ready(ctx)
		return err
	}
	again, err := s.claimNumber(ctx, r.number, leased)
	if err != nil {
		return unavailable(err)
	}
	if again == nil { // the number is another's by now
		s.lose(r)
	}
	return nil
}

// redeliver has all sent that waits, and returns when nothing is in doubt any more.
func (s *Store) redeliver(ctx context.Context) {
	for i := range s.shards {
		s.shards[i].list(&s.work)
	}
	s.work.resume()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for s.doubts.Load() > 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return // the server answers all the same
		}
	}
}

// list has the workers come by for all queues that nothing is under way of.
func (sh *shard) list(w *worker) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, q := range sh.queues {
		if q.idles() {
			w.list(q)
		}
	}
}

// idles tells whether something is pending of which nothing is under way.
func (q *queue) idles() bool {
	return q.batch == nil && q.has() || q.batch != nil && q.batch.doubt && !q.batch.flying
}

// Charge charges batches, which are of different entities, and returns an error for
// each, which wraps store.ErrUnavailable; nil for those that are charged, now or
// before. Whatever the error was, the same batch can be sent again, but none that is
// to follow it before. All go in one round trip. What calls of the entities took that were
// given up is given back before, since they may be what is charged: whenever the process
// dies, none of them is charged twice.
func (s *Store) Charge(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	if s.closed.Load() {
		for i := range errs {
			errs[i] = errClosed
		}
		return errs
	}
	s.awaitUndone(ctx, batches, errs)
	pipe := s.client.Pipeline()
	parts := make([]chargePart, 0, len(batches))
	for i := range batches {
		b := &batches[i]
		if errs[i] != nil {
			continue
		}
		key := s.key(b.Entity)
		for n, lines := 0, b.Lines; n == 0 || len(lines) > 0; n++ {
			p := chargePart{batch: i, n: n, lines: lines[:min(len(lines), rulesMost)]}
			lines = lines[len(p.lines):]
			p.cmd = s.apply.call(ctx, key, s.charge(b, &p))
			_ = pipe.Process(ctx, p.cmd) // queues only
			parts = append(parts, p)
		}
		s.forget(b.Entity)
	}
	if len(parts) > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	for i := range parts {
		p := &parts[i]
		b := &batches[p.batch]
		reply, err := s.apply.text(ctx, s.client, p.cmd)
		for moved := 0; err == nil; moved++ {
			if err = s.charged(reply); !errors.Is(err, errClock) || moved == movesMost {
				break
			}
			reply, err = s.apply.run(ctx, s.client, s.key(b.Entity), s.charge(b, p)...)
		}
		if err != nil {
			errs[p.batch] = unavailable(err)
		}
	}
	return errs
}

// awaitUndone returns when nothing is left to be given back of what calls took that were
// given up. It waits for half the time of a call at most. Of entities of which there is
// something still, the error is set: to them the server is as silent as to a call that
// had no answer.
func (s *Store) awaitUndone(ctx context.Context, batches []store.Batch, errs []error) {
	since, left := time.Now(), false
	for i := range batches {
		if s.undoing(batches[i].Entity, true) != nil {
			left = true
		}
	}
	if !left {
		return
	}
	s.work.resume()
	ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	for i := range batches {
		errs[i] = s.awaitUndoneOf(ctx, batches[i].Entity, since)
	}
}

// awaitUndoneOf returns nil when nothing of an entity is to be given back, or an error if the
// time that began at since is up before.
func (s *Store) awaitUndoneOf(ctx context.Context, e store.Entity, since time.Time) error {
	for answered := s.undoing(e, false); answered != nil; answered = s.undoing(e, false) {
		select {
		case <-answered:
		case <-ctx.Done():
			return s.stillUndoing(e, since)
		}
	}
	return nil
}

// stillUndoing is the error of who has waited since then for what is to be given back of
// an entity, nil if nothing is any more.
func (s *Store) stillUndoing(e store.Entity, since time.Time) error {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if q := sh.queues[e]; q != nil && q.undoes() {
		return q.late(since)
	}
	return nil
}

// undoing returns nil if nothing of an entity is to be given back, or else what is closed
// at the next answer to a batch of it. It may have a worker see to it.
func (s *Store) undoing(e store.Entity, hurry bool) <-chan struct{} {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.queues[e]
	if q == nil || !q.undoes() {
		return nil
	}
	if hurry && q.idles() {
		s.work.list(q)
	}
	if q.next == nil {
		q.next = make(chan struct{})
	}
	return q.next
}

// chargePart is as many lines of a batch as a script can take.
type chargePart struct {
	batch, n int // which of the batches, and of its parts
	lines    []store.Amount
	cmd      command
}

// charge returns the script's arguments for a part of a batch. A batch has a field of
// its origin's, where its number is kept like that of a replica's last batch; so has
// each of its parts, since some may be applied and others not.
func (s *Store) charge(b *store.Batch, p *chargePart) []any {
	o := &op{kind: settling, at: b.At}
	for _, a := range p.lines {
		l := line{rule: a.Rule, used: max(0, a.Amount)}
		if a.Amount < 0 {
			start, _ := a.Rule.Window.Span(b.At.UnixMilli())
			l.back = []amount{{start, counter.Sub(0, a.Amount)}}
		}
		o.lines = append(o.lines, l)
	}
	e := encoder{now: s.now()}
	e.settle(o)
	field := "q" + b.Origin
	if p.n > 0 {
		field += "." + strconv.Itoa(p.n)
	}
	return s.head(&e, field, b.Seq, len(e.args), b.Entity)
}

// charged returns nil if a batch was applied, now or before, or a later one was.
func (s *Store) charged(reply string) error {
	r, err := new(batch).read(reply)
	if err == nil && r.verdict == otherTime {
		s.skew.Store(r.then - s.now().UnixMilli())
		return errClock
	}
	return err
}

// forget drops the remembered refusal of an entity.
func (s *Store) forget(e store.Entity) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.refusals, e)
	sh.edits++
}

// Pending is how many changes, and batches that may have been applied, wait for the
// server.
func (s *Store) Pending() int { return int(s.pending.Load()) }
