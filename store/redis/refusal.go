package redis

import (
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// What made the server refuse a call is remembered for a moment, so that a caller
// who asks on and on is refused here, at no cost to the server. It is the counters
// that are remembered, as they were: a call is refused by them as the server would
// if nothing else had changed. One that they would admit is sent to the server.
// A counter that this process changes is forgotten, and with what is renewed or changed by
// hand all of the entity's.

const (
	// rememberFor is how long others' changes may go unseen.
	rememberFor = time.Second
	// refusalsMost is how many entities' are remembered in a shard.
	refusalsMost = 512
	// countersMost is how many counters of an entity are remembered beyond those of the
	// last call: two each of a hundred models, and some.
	countersMost = 256
	// countersLeast is how many at least, where many entities share a shard: its room is
	// roomMost, or a few times that where they have become many only since.
	countersLeast, roomMost = 32, refusalsMost * countersLeast
	// askedMost is how many calls of an entity are refused by the server within rememberFor
	// until it is refused often.
	askedMost = 8
)

// refusal is what is remembered of an entity: the counters of the last call that was
// refused, and before them of others, such as calls of another model.
type refusal struct {
	rules []remembered
	at    time.Time // of the last
	since time.Time // from when on the server was asked so often, for rememberFor at most
	asked int
}

type remembered struct {
	id string
	found
	at    time.Time
	then  int64 // the server's time at that instant
	lapse int64 // when the first of what is held lapses, 0 for never
}

// now is the server's time; ok is false if what is remembered is too old to say anything.
func (r *remembered) now(here time.Time) (now int64, ok bool) {
	age := here.Sub(r.at)
	now = r.then + age.Milliseconds()
	return now, age >= 0 && age <= rememberFor && (r.lapse == 0 || now < r.lapse)
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
	kept := &refusal{rules: make([]remembered, len(c.takes)), at: now, since: now, asked: 1}
	for i := range c.takes {
		kept.rules[i] = remembered{c.takes[i].Rule.ID, r.found[i], now, r.then, r.lapse}
	}
	if before := sh.refusals[q.entity]; before != nil {
		if before.recent(now) {
			kept.since, kept.asked = before.since, before.asked+1
		}
		kept.keep(before, now, room(len(sh.refusals)))
	}
	sh.refusals[q.entity] = kept
}

// room is how many counters are remembered of each of some entities, beyond those of its
// last call.
func room(entities int) int { return max(countersLeast, min(countersMost, roomMost/entities)) }

// changed forgets what was remembered of counters of an entity that this process changes.
func (sh *shard) changed(e store.Entity, is func(id string) bool) {
	if kept := sh.refusals[e]; kept != nil {
		kept.rules = slices.DeleteFunc(kept.rules, func(r remembered) bool { return is(r.id) })
	}
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

// recent tells whether the server was asked within rememberFor as often as is noted.
func (r *refusal) recent(now time.Time) bool {
	age := now.Sub(r.since)
	return age >= 0 && age <= rememberFor
}

// often tells whether the server was asked so often of late that calls are refused by some
// of their counters, also where others are not remembered: an entity may have more counters
// than are, and go through them.
func (r *refusal) often(now time.Time) bool { return r.asked >= askedMost && r.recent(now) }

// keep adds what was remembered before and is so still, at most so much.
func (r *refusal) keep(before *refusal, now time.Time, most int) {
	last := refusal{rules: r.rules} // what was remembered before is of different counters
	most += len(r.rules)
	for i := range before.rules {
		old := &before.rules[i]
		if len(r.rules) == most {
			return
		}
		if _, ok := old.now(now); ok && last.find(old.id, i) == nil {
			r.rules = append(r.rules, *old)
		}
	}
}

// Refuses implements store.Refuser.
func (s *Store) Refuses(r *store.Reservation, results []store.Result, often bool) bool {
	know := knowSome
	if often {
		know = knowOften
	}
	return !s.closed.Load() && s.refused(s.shard(r.Entity), r, results, know)
}

// knowing is of which counters something must be remembered for a call to be refused here.
type knowing uint8

const (
	knowAll knowing = iota
	knowSome
	knowOften // of some, and only where the entity is refused often
)

// refused answers a call that is known to be refused, and fills its results.
func (s *Store) refused(sh *shard, r *store.Reservation, results []store.Result, know knowing) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	kept := sh.refusals[r.Entity]
	if kept == nil {
		return false
	}
	here, refused := s.now(), false
	if know == knowOften && !kept.often(here) {
		return false
	}
	for i := range r.Takes {
		t := &r.Takes[i]
		f := kept.find(t.Rule.ID, i)
		var now int64
		known := false
		if f != nil {
			now, known = f.now(here)
		}
		switch {
		case known:
			state := f.State
			state.Roll(t.Rule, now)
			f.check(state, t, f.held, now, &results[i])
			refused = refused || results[i].Exceeded && !t.Shadow
		case know != knowAll:
			results[i] = store.Result{Limit: t.Limit, Unknown: true}
		default:
			return false
		}
	}
	return refused
}

// find returns what is kept of a rule, which mostly stands where it did.
func (r *refusal) find(id string, guess int) *remembered {
	if guess < len(r.rules) && r.rules[guess].id == id {
		return &r.rules[guess]
	}
	for i := range r.rules {
		if r.rules[i].id == id {
			return &r.rules[i]
		}
	}
	return nil
}
