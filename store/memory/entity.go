package memory

import (
	"unique"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// entity is the counters of one consumer in one instance, or those that all of
// its callers share. Its shard's lock guards it, but for the names, which never
// change. 80 bytes, and 32 a counter.
type entity struct {
	instance unique.Handle[string]
	consumer string
	counters []ruleCounter
	// holds is nil while no call is under way.
	holds *holds
	// expires is no later than the instant from which on the entity says nothing
	// any more. What a call adds need not be noted here: it is found when the
	// instant is reached.
	expires int64
	// next is another entity of the same hash.
	next  *entity
	place int32 // in the shard's heap
	// dirty tells that the entity is in its shard's list of those to be written.
	dirty bool
}

// ruleCounter is the state of a rule's counter. The rule is a copy that all counters
// share, lest a counter keeps the config alive that it was last used with.
type ruleCounter struct {
	counter.State
	rule unique.Handle[store.Rule]
}

// holds is what calls under way hold. It exists only meanwhile, since most
// entities are idle most of the time.
type holds struct {
	// tickets that have not lapsed, by their deadline.
	tickets heap[*ticket]
	// amounts correspond to the entity's counters. Those missing are zero.
	amounts []int64
}

// ticket is an admitted call. The store never uses one again, since Settle may
// come at any time, after all else was dropped.
//
// It is marked with the hash of its entity and its place in the heap of that one's holds,
// which is -1 if it has lapsed or is settled.
type ticket store.Ticket

func (e *entity) due() int64   { return e.expires }
func (e *entity) moved(to int) { e.place = int32(to) }

func (t *ticket) due() int64   { return t.Deadline }
func (t *ticket) moved(to int) { t.Mark.Place = int32(to) }

// is tells whether the entity is the one of that name.
func (e *entity) is(name store.Entity) bool {
	return e.consumer == name.Consumer && e.instance.Value() == name.Instance
}

// few is how many counters are looked at one by one: those of some models may be hundreds.
const few = 8

// find returns the index of the rule's counter, -1 if there is none. It is
// mostly the one it is guessed to be.
func (e *entity) find(r *store.Rule, guess int) int {
	if guess < len(e.counters) && e.counters[guess].rule.Value().ID == r.ID {
		return guess
	}
	if len(e.counters) > few {
		// Handles lie side by side, and what they stand for all over the memory.
		h := unique.Make(*r)
		for i := range e.counters {
			if e.counters[i].rule == h {
				return i
			}
		}
	}
	for i := range e.counters {
		if e.counters[i].rule.Value().ID == r.ID {
			return i
		}
	}
	return -1
}

// counter returns the index of the rule's counter, which is made if there is
// none, and rolls it.
func (e *entity) counter(r *store.Rule, guess int, now int64) int {
	i := e.find(r, guess)
	if i < 0 {
		if len(e.counters) == cap(e.counters) {
			e.compact(now)
		}
		i = len(e.counters)
		e.counters = append(e.counters, ruleCounter{rule: unique.Make(*r)})
	}
	c := &e.counters[i]
	if c.rule.Value() != *r {
		c.rule = unique.Make(*r)
	}
	c.Roll(r, now)
	return i
}

// compact drops counters that say nothing any more, such as those of rules that
// are in no config now.
func (e *entity) compact(now int64) {
	n := 0
	for i := range e.counters {
		c, held := &e.counters[i], e.held(i)
		r := c.rule.Value()
		c.Roll(&r, now)
		if held == 0 && c.Idle(&r, now) <= now {
			continue
		}
		e.counters[n] = *c
		if e.holds != nil && n < len(e.holds.amounts) {
			e.holds.amounts[n] = held
		}
		n++
	}
	if e.holds != nil && n < len(e.holds.amounts) {
		e.holds.amounts = e.holds.amounts[:n]
	}
	clear(e.counters[n:])
	e.counters = e.counters[:n]
}

// held returns what calls hold of a counter.
func (e *entity) held(i int) int64 {
	if e.holds == nil || i >= len(e.holds.amounts) {
		return 0
	}
	return e.holds.amounts[i]
}

// hold adds to what is held of a counter. The entity must have holds.
func (e *entity) hold(i int, amount int64) {
	h := e.holds
	for len(h.amounts) <= i {
		h.amounts = append(h.amounts, 0)
	}
	h.amounts[i] = counter.Add(h.amounts[i], amount)
}

// take counts what the ticket holds.
func (e *entity) take(t *ticket, now int64) {
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Held != 0 {
			e.hold(e.counter(l.Rule, i, now), l.Held)
		}
	}
	e.holds.tickets.push(t)
}

// release ends what the ticket holds.
func (e *entity) release(t *ticket) {
	for i := range t.Lines {
		l := &t.Lines[i]
		if l.Held == 0 {
			continue
		}
		// A counter of which something is held is never dropped, unless the holds
		// were more than an int64 and did not add up.
		if j := e.find(l.Rule, i); j >= 0 {
			e.holds.amounts[j] = max(0, e.holds.amounts[j]-l.Held)
		}
	}
	e.holds.tickets.remove(int(t.Mark.Place))
}

// lapse releases what is held by tickets whose deadline has passed.
func (e *entity) lapse(now int64) {
	for e.holds != nil && len(e.holds.tickets) > 0 && e.holds.tickets[0].Deadline <= now {
		e.release(e.holds.tickets[0])
	}
}

// end returns from when on the entity says nothing any more, or an instant
// before that if calls are under way.
func (e *entity) end(now int64) int64 {
	var end int64
	for i := range e.counters {
		c := &e.counters[i]
		r := c.rule.Value()
		c.Roll(&r, now)
		end = max(end, c.Idle(&r, now))
	}
	if e.holds != nil && len(e.holds.tickets) > 0 {
		end = max(end, e.holds.tickets[0].Deadline)
	}
	return end
}
