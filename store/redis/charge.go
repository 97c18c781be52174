package redis

import (
	"context"
	"strconv"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// This file is what a layer needs that bridges outages. It counts calls by itself
// meanwhile, and has their charges taken here afterwards.

// Ping returns nil if the server answers and takes writes: it claims the replica's
// number, or keeps it. Errors wrap store.ErrUnavailable.
func (s *Store) Ping(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	r := s.replicas.current.Load()
	if r == nil {
		_, err := s.ready(ctx)
		return err
	}
	again, err := s.claimNumber(ctx, r.number)
	if err != nil {
		return unavailable(err)
	}
	if again == nil { // the number is another's by now
		s.lose(r)
	}
	return nil
}

// Charge charges batches, which are of different entities, and returns an error for
// each, which wraps store.ErrUnavailable; nil for those that are charged, now or
// before. Whatever the error was, the same batch can be sent again, but none that is
// to follow it before. All go in one round trip.
func (s *Store) Charge(ctx context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	if s.closed.Load() {
		for i := range errs {
			errs[i] = errClosed
		}
		return errs
	}
	pipe := s.client.Pipeline()
	cmds := make([]command, 0, len(batches))
	of := make([]int, 0, len(batches)) // the batches of the commands
	for i := range batches {
		b := &batches[i]
		key := s.key(b.Entity)
		for n, lines := 0, b.Lines; n == 0 || len(lines) > 0; n++ {
			part := lines[:min(len(lines), rulesMost)]
			lines = lines[len(part):]
			cmd := s.apply.call(ctx, key, s.charge(b, n, part))
			_ = pipe.Process(ctx, cmd) // queues only
			cmds, of = append(cmds, cmd), append(of, i)
		}
		s.forget(b.Entity)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, cmd := range cmds {
		reply, err := s.apply.text(ctx, s.client, cmd)
		if err == nil && !charged(reply) {
			err = errReply
		}
		if err != nil {
			errs[of[i]] = unavailable(err)
		}
	}
	return errs
}

// charge returns the script's arguments for a part of a batch, of as many lines as a
// script can take. A batch has a field of its origin's, where its number is kept like
// that of a replica's last batch; so has each of its parts, since some may be applied
// and others not.
func (s *Store) charge(b *store.Batch, part int, lines []store.Amount) []any {
	o := &op{kind: settling, at: b.At}
	for _, a := range lines {
		l := line{rule: a.Rule, used: max(0, a.Amount)}
		if a.Amount < 0 {
			start, _ := a.Rule.Window.Span(b.At.UnixMilli())
			l.back = []amount{{start, counter.Sub(0, a.Amount)}}
		}
		o.lines = append(o.lines, l)
	}
	e := encoder{now: s.now()}
	e.settle(o)
	args := s.head(&e, 0, b.Seq, len(e.args), b.Entity)
	field := "q" + b.Origin
	if part > 0 {
		field += "." + strconv.Itoa(part)
	}
	args[0] = field
	return args
}

// charged tells whether a batch was applied, now or before, or a later one was.
func charged(reply string) bool {
	w := words{rest: reply}
	verdict := w.next()
	return verdict == "A" || verdict == "D" || verdict == "F"
}

// forget drops the remembered refusal of an entity.
func (s *Store) forget(e store.Entity) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.refusals, e)
}

// Pending is how many changes, and batches that may have been applied, wait for the
// server.
func (s *Store) Pending() int { return int(s.pending.Load()) }
