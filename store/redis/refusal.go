package redis

import (
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// What made the server refuse a call is remembered for a moment, so that a caller
// who asks on and on is refused here, at no cost to the server. It is the counters
// that are remembered, as they were: a call is refused by them as the server would
// if nothing else had changed. One that they would admit is sent to the server.
// Whatever this process changes of the entity ends it.

const (
	// rememberFor is how long others' changes may go unseen.
	rememberFor = time.Second
	// refusalsMost is how many entities' are remembered in a shard.
	refusalsMost = 512
)

type refusal struct {
	rules []remembered
	at    time.Time
	then  int64 // the server's time at that instant
	lapse int64 // when the first of what is held lapses, 0 for never
}

type remembered struct {
	id string
	found
}

// remember keeps what was found by a call that was refused. The shard is locked.
func (s *Store) remember(q *queue, c *call, r *outcome) {
	sh := q.shard
	if len(q.ops) > 0 || r.edits != sh.edits {
		return
	}
	if sh.refusals == nil {
		sh.refusals = make(map[store.Entity]*refusal)
	}
	now := s.now()
	if _, known := sh.refusals[q.entity]; !known && len(sh.refusals) >= refusalsMost {
		sh.forget(now)
	}
	kept := &refusal{rules: make([]remembered, len(c.takes)), at: now, then: r.then, lapse: r.lapse}
	for i := range c.takes {
		kept.rules[i] = remembered{c.takes[i].Rule.ID, r.found[i]}
	}
	sh.refusals[q.entity] = kept
}

// forget makes room for another refusal.
func (sh *shard) forget(now time.Time) {
	n := 0
	for e, r := range sh.refusals {
		// Maps are gone through in no order, so that one of some is found that is old.
		if age := now.Sub(r.at); age < 0 || age > rememberFor || n == 8 {
			delete(sh.refusals, e)
			return
		}
		n++
	}
	for e := range sh.refusals {
		delete(sh.refusals, e)
		return
	}
}

// refused answers a call that is known to be refused, and fills its results.
func (s *Store) refused(sh *shard, r *store.Reservation, results []store.Result) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	kept := sh.refusals[r.Entity]
	if kept == nil {
		return false
	}
	age := s.now().Sub(kept.at)
	now := kept.then + age.Milliseconds()
	if age < 0 || age > rememberFor || kept.lapse > 0 && now >= kept.lapse {
		delete(sh.refusals, r.Entity)
		return false
	}
	refused := false
	for i := range r.Takes {
		t := &r.Takes[i]
		f := kept.find(t.Rule.ID, i)
		if f == nil {
			return false
		}
		state := f.State
		state.Roll(t.Rule, now)
		f.check(state, t, f.held, now, &results[i])
		refused = refused || results[i].Exceeded && !t.Shadow
	}
	return refused
}

// find returns what is kept of a rule, which mostly stands where it did.
func (r *refusal) find(id string, guess int) *found {
	if guess < len(r.rules) && r.rules[guess].id == id {
		return &r.rules[guess].found
	}
	for i := range r.rules {
		if r.rules[i].id == id {
			return &r.rules[i].found
		}
	}
	return nil
}
