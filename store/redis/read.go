package redis

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// readMost is how many entities are read in one round trip: few enough for the time of one
// call.
const readMost = 100

// Read implements store.Counters. Errors wrap store.ErrUnavailable.
func (s *Store) Read(ctx context.Context, name store.Entity, rules []*store.Rule, results []store.Result) error {
	return s.ReadAll(ctx, []store.Reading{{Entity: name, Rules: rules, Results: results}})
}

// ReadAll is Read of many entities, a hundred of which take one round trip and the time of
// one call at most. Errors wrap store.ErrUnavailable.
func (s *Store) ReadAll(ctx context.Context, readings []store.Reading) error {
	if s.closed.Load() {
		return errClosed
	}
	if _, err := s.ready(ctx); err != nil {
		return err
	}
	for part := range slices.Chunk(readings, readMost) {
		if err := s.readPart(context.WithoutCancel(ctx), part); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil { // nobody wants the rest
			return unavailable(err)
		}
	}
	return nil
}

func (s *Store) readPart(ctx context.Context, part []store.Reading) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var all []*question
	for i := range part {
		r := &part[i]
		results := r.Results
		for rules := range slices.Chunk(r.Rules, rulesMost) {
			all = append(all, &question{of: r.Entity, rules: rules, results: results[:len(rules)]})
			results = results[len(rules):]
		}
	}
	pipe := s.client.Pipeline()
	for _, q := range all {
		q.cmd = s.apply.call(ctx, s.key(q.of), s.ask(q))
		_ = pipe.Process(ctx, q.cmd) // queues only
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, q := range all {
		if err := s.told(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// question is for counters of an entity. It is asked as a batch that nobody else is in, and
// that has no number.
type question struct {
	of      store.Entity
	rules   []*store.Rule
	results []store.Result
	asked   time.Time
	cmd     command
}

// ask returns the script's arguments.
func (s *Store) ask(q *question) []any {
	e := encoder{now: s.now()}
	q.asked = e.now
	e.add("p", len(q.rules))
	for _, r := range q.rules {
		e.add(e.rule(r))
	}
	return s.head(&e, "q", 0, 0, q.of)
}

// told reads what the server has said, and asks again where another connection, or
// another time, may do.
func (s *Store) told(ctx context.Context, q *question) error {
	reply, err := s.apply.text(ctx, s.client, q.cmd)
	for tries := 1; ; tries++ {
		if err == nil {
			err = s.fill(q, reply)
		}
		if err == nil {
			return nil
		}
		if tries == triesMost || !lost(err) && !errors.Is(err, errClock) {
			return unavailable(err)
		}
		reply, err = s.apply.run(ctx, s.client, s.key(q.of), s.ask(q)...)
	}
}

// fill reads a reply. The error is errClock if the server found the question to be of
// another time.
func (s *Store) fill(q *question, reply string) error {
	b := &batch{calls: []*call{{takes: make([]store.Take, len(q.rules))}}, asked: []bool{true}}
	r, err := b.read(reply)
	switch {
	case err != nil:
		return err
	case r.verdict == otherTime:
		s.skew.Store(r.then - q.asked.UnixMilli())
		return errClock
	case len(r.calls) == 0:
		return errReply
	}
	for i, f := range r.calls[0].found {
		q.results[i] = store.Result{Limit: f.limit, Overridden: f.own, Held: f.held}
		counter.Fill(&q.results[i], &f.State, q.rules[i], r.then)
	}
	return nil
}
