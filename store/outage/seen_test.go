package outage

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Counters that a client made up, and that nothing is left of, are not remembered, however
// many there are; those of which something is used are.
func TestCountersThatSayNothingAreNotRemembered(t *testing.T) {
	hour, err := store.Fixed(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s, now := newSeen(), time.Now()
	e := store.Entity{Instance: "i", Consumer: "app"}
	told := func(id string, res store.Result, taken int64) *store.Ticket {
		rule := &store.Rule{ID: id, Window: hour}
		r := &store.Reservation{Entity: e, Lease: time.Second, Takes: []store.Take{{Rule: rule}}}
		var ticket *store.Ticket
		if taken > 0 {
			ticket = &store.Ticket{Entity: e, Lines: []store.Line{{Rule: rule, Held: taken}}}
		}
		s.record(r, ticket, []store.Result{res}, now)
		return ticket
	}
	told("used", store.Result{Used: 7, ResetAt: now.Add(time.Hour)}, 0)
	for i := range 5000 {
		told(fmt.Sprint("refused-", i), store.Result{ResetAt: now.Add(time.Hour)}, 0)
		id := fmt.Sprint("given-back-", i)
		s.settled(told(id, store.Result{Held: 1, ResetAt: now.Add(time.Hour)}, 1), nil, 0, nil)
		now = now.Add(100 * time.Millisecond)
	}
	held := told("held", store.Result{Held: 3, ResetAt: now.Add(time.Hour)}, 3)
	g := s.shard(e).find(e)
	if n := len(g.counters); n > 100 {
		t.Errorf("%d counters are remembered", n)
	}
	if c := g.counter(&store.Rule{ID: "used"}, 0); c == nil || c.used != 7 {
		t.Errorf("what is used is forgotten: %+v", c)
	}
	if c := g.counter(held.Lines[0].Rule, 0); c == nil || c.own != 3 {
		t.Errorf("what is held is forgotten: %+v", c)
	}
}

// Nor are those of windows that are over, where calls have ended in the window after.
func TestCountersOfCallsThatEndedInTheNextWindowAreNotRemembered(t *testing.T) {
	now, step := midday()
	c, _ := setup(t, newServer(now), Options{Now: now})
	var last *store.Rule
	for i := range 1000 {
		last = &store.Rule{ID: fmt.Sprint("model-", i), Window: minute.Window}
		k := admit(t, c, hold(day, 1<<40, 1), hold(last, 10, 1))
		step(time.Minute)
		c.Settle(k, []int64{1, 5})
	}
	g := c.seen.shard(entity).find(entity)
	if n := len(g.counters); n > 100 {
		t.Errorf("%d counters are remembered", n)
	}
	if k := g.counter(last, 0); k == nil || k.used != 5 {
		t.Errorf("what is used in this window is forgotten: %+v", k)
	}
	if k := g.counter(day, 0); k == nil || k.used == 0 { // midnight has passed
		t.Errorf("what is used today is forgotten: %+v", k)
	}
}

// Refuses makes the fake remember that it refuses every call.
func (f *fake) Refuses(_ *store.Reservation, results []store.Result, _ bool) bool {
	for i := range results {
		results[i] = store.Result{Exceeded: true}
	}
	return true
}

// What the remote remembers does not count while this process decides.
func TestWhatTheRemoteRemembersIsNotAskedInAnOutage(t *testing.T) {
	now, _ := midday()
	c, f := setup(t, newServer(now), Options{Now: now})
	r := store.Reservation{Entity: entity, Lease: time.Minute, Takes: []store.Take{hold(day, 1, 1)}}
	results := make([]store.Result, 1)
	if !store.Refuses(c, &r, results, false) || !results[0].Exceeded {
		t.Error("the remote is not asked what it remembers")
	}
	cut(t, c, f)
	if store.Refuses(c, &r, results, false) {
		t.Error("refused by what a remote remembers that is away")
	}
}
