package limit

import (
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Models that are counted apart need a bound, for clients choose their names. The store
// keeps it: beside a consumer's counters stand one for each name, which goes up to 1, and
// one for all of them, which goes up to modelsMost. A name that is new takes both at once
// or neither, so that all replicas agree on which names there are, and a name
// that comes too late leaves nothing behind. Neither does the name of a call that is
// refused, here or further in, or of one that nothing came of: see place.

const (
	// modelsMost is how many models a consumer has counters for, beside those that the
	// config names.
	modelsMost = 100
	// namesLive is the window in which so many names are new. A name that is used on
	// takes one of the next window.
	namesLive = 31 * 24 * time.Hour
	// otherModels is what the models that share counters are called.
	otherModels = "other"
)

// names are the window of the counters of names, and the rule of all of them.
var (
	namesWindow = mustFixed(namesLive)
	allNames    = &store.Rule{ID: "models", Window: namesWindow}
)

func mustFixed(d time.Duration) *store.Window {
	w, err := store.Fixed(d)
	if err != nil {
		panic(err)
	}
	return w
}

// slot is the name of the counters of one model of a block: a model's, or none for those
// that share.
type slot struct {
	model string
	other bool
}

// slot finds the counters of a model; normal is its name and exact the one that the
// config gives it, if it does. A name that is new is taken to have its own until the store
// has said so; see enroll. Whatever was found once holds for the call: where its rules are
// chosen again, no name may be new that was not, for nobody would ask for its place.
func (e *entry) slot(normal, exact string) slot {
	switch {
	case exact != "":
		return slot{model: exact}
	case normal == "":
		return slot{other: true} // of calls that name no model
	}
	name := unique.Make(bounded(normal)).Value() // which must not keep a request alive
	if n := e.newcomers().find(name); n != nil {
		return slot{model: name, other: !n.own}
	}
	if e.newcomers().asks(name) {
		return slot{model: name}
	}
	c := e.acquaintance()
	own, ok, p := c.join(name, time.Now())
	if !ok {
		nc := e.come(c)
		nc.fresh = append(nc.fresh, name)
		return slot{model: name}
	}
	if p != nil || len(e.models()) > 0 {
		nc := e.come(c)
		nc.named = append(nc.named, newcomer{model: name, own: own, place: p})
	}
	return slot{model: name, other: !own}
}

// ownMost is how many models a block has rules ready for, at least.
const ownMost = 1000

// rulesOf are the rules that count a model. Those that share have one name.
func (b *block) rulesOf(s slot) []*rule {
	if s.other {
		s.model = otherModels
	}
	return b.own.get(s, ownMost, b.rulesFor)
}

// rulesFor makes the rules of one model. The name stands last in that of the counter, so
// that it can be any.
func (b *block) rulesFor(s slot) []*rule {
	rules := make([]*rule, len(b.rules))
	for i, ru := range b.rules {
		own, counter := *ru, *ru.store
		own.model, own.others = s.model, s.other
		if s.other {
			counter.ID += "~"
		} else {
			counter.ID += "=" + s.model
		}
		own.store = &counter
		own.intern()
		rules[i] = &own
	}
	return rules
}

// acquaintance is what this process has seen of the calls of an entity.
type acquaintance struct {
	mu     sync.Mutex
	group  string
	named  []enrolled
	shared []enrolled // share the counters of others; the oldest first
}

// enrolled is a model of which it is known whether it has counters of its own, until the
// store says so again.
type enrolled struct {
	model string
	until int64  // Unix milliseconds
	place *place // nil once it is there to stay
}

// missFor is how long a model that came too late is known to share counters. A place
// that is given back meanwhile, by a call that is refused in the end, is found after that.
const missFor = time.Minute

// knows tells whether a model has counters of its own; ok is set if that is known without
// asking the store. It is not asked beyond the bound that it keeps itself, either: one that
// counts by itself for a while, because it cannot reach its server, may not know who is
// enrolled.
func (c *acquaintance) knows(model string, now time.Time) (own, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gone := func(n enrolled) bool { return n.until <= now.UnixMilli() }
	is := func(n enrolled) bool { return n.model == model }
	c.named, c.shared = slices.DeleteFunc(c.named, gone), slices.DeleteFunc(c.shared, gone)
	own = slices.ContainsFunc(c.named, is)
	return own, own || len(c.named) >= modelsMost || slices.ContainsFunc(c.shared, is)
}

// miss notes that a model came too late for counters of its own, which begin anew at reset.
// No more are remembered than may have their own: a client can send any number of names.
func (c *acquaintance) miss(model string, now, reset time.Time) {
	until := now.Add(missFor)
	if reset.Before(until) {
		until = reset
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shared = slices.DeleteFunc(c.shared, func(n enrolled) bool { return n.model == model })
	if len(c.shared) >= modelsMost {
		c.shared = slices.Delete(c.shared, 0, 1)
	}
	c.shared = append(c.shared, enrolled{model: model, until: until.UnixMilli()})
}

// models are the names that have counters of their own.
func (c *acquaintance) models() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.named))
	for _, n := range c.named {
		names = append(names, n.model)
	}
	slices.Sort(names)
	return names
}

// acquaintances are the entities of this process, through all configs, as many as of
// tracks.
type acquaintances struct {
	recent[store.Entity, *acquaintance]
}

var acquainted acquaintances

// of returns that of an entity, a new one if there is none.
func (as *acquaintances) of(e store.Entity) *acquaintance {
	return as.get(e, tracksMost, func(store.Entity) *acquaintance { return new(acquaintance) })
}
