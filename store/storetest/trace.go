package storetest

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// trace runs random calls against the store and the model side by side.
type trace struct {
	*rapid.T
	f        *fixture
	model    *model
	entities []store.Entity
	rules    []*store.Rule
	tickets  []*store.Ticket // of the model's tickets
	amounts  *rapid.Generator[int64]
	stepping bool
}

// testTrace lets time go by between calls if stepping is set, and else uses
// windows that do not end.
func testTrace(f *fixture, stepping bool) {
	length, longer := decade, decade
	if stepping {
		length, longer = 10*time.Second, 15*time.Second
	}
	rapid.Check(f, func(t *rapid.T) {
		instance := unique("trace")
		most, refill := rapid.SampledFrom([]int64{3, 1000, 1_000_000_000_000_000}).Draw(t, "most"), int64(1)
		if stepping {
			refill += most / 2
		}
		tr := &trace{
			T: t, f: f, model: newModel(), stepping: stepping,
			entities: []store.Entity{{Instance: instance}, {Instance: instance, Consumer: "default"}, {Instance: instance + "2", Consumer: "default"}},
			rules: []*store.Rule{
				f.fixed("fixed", length), f.rolling("rolling", length), f.bucket("bucket", length, refill),
				f.none("none"), f.fixed("longer", longer),
			},
			amounts: rapid.Int64Range(0, most),
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": tr.reserve,
			"settle":  tr.settle,
			"renew":   tr.renew,
			"adjust":  tr.adjust,
			"step":    tr.step,
			"":        tr.compare,
		})
	})
}

func (tr *trace) now() int64 { return tr.f.clock.now().UnixMilli() }

func (tr *trace) entity(t *rapid.T) store.Entity {
	return rapid.SampledFrom(tr.entities).Draw(t, "entity")
}

func (tr *trace) lease(t *rapid.T) time.Duration {
	if !tr.stepping {
		return lease
	}
	return time.Duration(rapid.Int64Range(1, 40_000).Draw(t, "lease")) * time.Millisecond
}

func (tr *trace) reserve(t *rapid.T) {
	e := tr.entity(t)
	rules := rapid.Permutation(tr.rules).Draw(t, "rules")
	r := store.Reservation{Entity: e, Known: true, Lease: tr.lease(t)}
	for _, rule := range rules[:rapid.IntRange(1, len(rules)).Draw(t, "takes")] {
		take := store.Take{
			Rule:       rule,
			Limit:      10 * tr.amounts.Draw(t, "limit"),
			Need:       max(1, tr.amounts.Draw(t, "need")),
			Hold:       tr.amounts.Draw(t, "hold"),
			IgnoreHeld: rapid.Bool().Draw(t, "ignore held"),
			Shadow:     rapid.IntRange(0, 3).Draw(t, "shadow") == 0,
		}
		if rapid.Bool().Draw(t, "charges") {
			take.Charge = tr.amounts.Draw(t, "charge")
		}
		if rapid.Bool().Draw(t, "up to") {
			take.HoldMost = 10 * tr.amounts.Draw(t, "most")
		}
		r.Takes = append(r.Takes, take)
	}
	exceeded, want := tr.model.reserve(e, r.Takes, tr.now(), r.Lease)
	k, results := reserve(t, tr.f.store, r)
	if (k != nil) != (want != nil) {
		t.Fatalf("admitted is %t, want %t; results %+v", k != nil, want != nil, results)
	}
	for i, take := range r.Takes {
		res := results[i]
		if res.Exceeded != exceeded[i] || res.Limit != take.Limit {
			t.Fatalf("take %d: got %+v, want exceeded %t", i, res, exceeded[i])
		}
		if k != nil && (res.Got != want.got[i] || k.Lines[i].Held != want.got[i]) {
			t.Fatalf("take %d: got %d, line %+v, want %d", i, res.Got, k.Lines[i], want.got[i])
		}
		tr.compareState(t, e, take.Rule, res)
		if k == nil && res.Exceeded && tr.stepping {
			// Of an admitted call, what it takes in shadow would be in the way.
			tr.compareWait(t, e, take, res)
		}
	}
	if k != nil {
		tr.tickets = append(tr.tickets, k)
	}
}

// compareWait holds a take's RetryAfter to its definition. Holds are left out:
// they are taken to go.
func (tr *trace) compareWait(t *rapid.T, e store.Entity, take store.Take, res store.Result) {
	c, now := tr.model.counter(e, take.Rule), tr.now()
	fits := func(at int64) bool {
		sum := c.used(take.Rule, at)
		return sum.Add(sum, big.NewInt(take.Need)).Cmp(big.NewInt(take.Limit)) <= 0
	}
	wait := res.RetryAfter.Milliseconds()
	switch {
	case take.Need > take.Limit && c.used(take.Rule, now).Sign() >= 0:
		return // pinned by a test of its own
	case fits(now) || take.Rule.Window.Kind() == store.KindNone:
		if wait != 1000 {
			t.Fatalf("%s: wait of %d ms for calls to be settled", take.Rule.ID, wait)
		}
	case take.Need <= take.Limit && (!fits(now+wait) || fits(now+wait-1)):
		t.Fatalf("%s: fits in %d ms is %t, a millisecond before %t", take.Rule.ID, wait, fits(now+wait), fits(now+wait-1))
	}
}

func (tr *trace) ticket(t *rapid.T) int {
	if len(tr.tickets) == 0 {
		t.Skip("no tickets")
	}
	return rapid.IntRange(0, len(tr.tickets)-1).Draw(t, "ticket")
}

func (tr *trace) settle(t *rapid.T) {
	i := tr.ticket(t)
	actual := make([]int64, len(tr.tickets[i].Lines))
	for j := range actual {
		actual[j] = tr.amounts.Draw(t, "actual")
	}
	tr.model.settle(tr.model.tickets[i], actual, tr.now())
	tr.f.store.Settle(tr.tickets[i], actual)
}

func (tr *trace) renew(t *rapid.T) {
	i, d := tr.ticket(t), tr.lease(t)
	if k := tr.model.tickets[i]; !k.settled {
		k.deadline = tr.now() + d.Milliseconds()
	}
	if err := tr.f.store.Renew(context.Background(), []*store.Ticket{tr.tickets[i]}, d); err != nil {
		t.Fatalf("renewing: %v", err)
	}
}

func (tr *trace) adjust(t *rapid.T) {
	e, r := tr.entity(t), rapid.SampledFrom(tr.rules).Draw(t, "rule")
	amount := tr.amounts.Draw(t, "amount")
	if r.Window.Kind() != store.KindBucket && rapid.Bool().Draw(t, "grant") {
		amount = -amount
	}
	c := tr.model.counter(e, r)
	c.granted = c.granted || amount < 0
	c.change(r, tr.now(), tr.now(), amount)
	if err := tr.f.store.Adjust(context.Background(), e, store.Amount{Rule: r, Amount: amount}); err != nil {
		t.Fatalf("adjusting: %v", err)
	}
	results := make([]store.Result, 1)
	if err := tr.f.store.Read(context.Background(), e, []*store.Rule{r}, results); err != nil {
		t.Fatalf("reading: %v", err)
	}
	tr.compareState(t, e, r, results[0])
}

func (tr *trace) step(t *rapid.T) {
	if tr.stepping {
		tr.f.clock.step(time.Duration(rapid.Int64Range(1, 12_000).Draw(t, "step")) * time.Millisecond)
	}
}

// compare looks at all counters.
func (tr *trace) compare(t *rapid.T) {
	for _, e := range tr.entities {
		for i, res := range look(t, tr.f.store, e, tr.rules...) {
			tr.compareState(t, e, tr.rules[i], res)
		}
	}
}

func (tr *trace) compareState(t *rapid.T, e store.Entity, r *store.Rule, res store.Result) {
	c, now := tr.model.counter(e, r), tr.now()
	used, held := c.used(r, now), tr.model.held(e, r, now)
	if used.Cmp(big.NewInt(res.Used)) != 0 || held.Cmp(big.NewInt(res.Held)) != 0 {
		t.Fatalf("%s of %+v: used %d, held %d, want %s and %s", r.ID, e, res.Used, res.Held, used, held)
	}
	if tr.stepping {
		if err := checkWindow(c, r, now, res); err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
	}
}

// checkWindow holds the window of a result to its definition.
func checkWindow(c *modelCounter, r *store.Rule, now int64, res store.Result) error {
	length := r.Window.Length().Milliseconds()
	start, reset := res.WindowStart.UnixMilli(), res.ResetAt.UnixMilli()
	switch r.Window.Kind() {
	case store.KindNone:
		if !res.WindowStart.IsZero() || !res.ResetAt.IsZero() {
			return fmt.Errorf("no window, but one from %s to %s", res.WindowStart, res.ResetAt)
		}
	case store.KindFixed:
		if start != now-now%length || reset != start+length {
			return fmt.Errorf("window from %d to %d at %d", start, reset, now)
		}
	default:
		if start != now-length {
			return fmt.Errorf("window from %d at %d", start, now)
		}
		if c.used(r, reset).Sign() != 0 {
			return fmt.Errorf("%s used at the reset", c.used(r, reset))
		}
		// A grant that decays, or makes up for what was used, leaves no one answer.
		if c.used(r, now).Sign() > 0 && !c.granted && c.used(r, reset-1).Sign() == 0 {
			return fmt.Errorf("reset at %d is late, now %d", reset, now)
		}
	}
	return nil
}
