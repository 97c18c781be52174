package outage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

var (
	odd      = store.Entity{Instance: "apps", Consumer: "odd"}
	errOfKey = fmt.Errorf("WRONGTYPE: %w", store.ErrUnavailable)
)

// callOf is a whole call of an entity that uses n of its day.
func callOf(t *testing.T, c *Counters, e store.Entity, n int64) error {
	t.Helper()
	r := store.Reservation{Entity: e, Known: true, Takes: []store.Take{hold(day, 1<<60, 1)}, Lease: time.Hour}
	k, err := c.Reserve(context.Background(), &r, make([]store.Result, 1))
	if err == nil && k == nil {
		t.Fatal("refused")
	}
	if k != nil {
		c.Settle(k, []int64{n})
	}
	return err
}

func TestEntityThatCannotBeChargedKeepsNobodyAway(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{})
	cut(t, c, f)
	use(t, c, day, 1)
	if err := callOf(t, c, odd, 5); err != nil {
		t.Fatal(err)
	}
	f.setEntity(odd, errOfKey)
	f.set(nil, false)
	wait(t, "the end of the outage", func() bool { s := c.Status(); return !s.Open && s.Pending == 1 })
	if n := used(t, f.server, day); n != 1 {
		t.Errorf("%d charged to the other consumer, want 1", n)
	}
	if err := callOf(t, c, odd, 5); err != nil { // counted here
		t.Fatal(err)
	}
	f.setEntity(odd, nil)
	wait(t, "its charges", func() bool { return c.Pending() == 0 })
	var results [1]store.Result
	if err := f.Read(t.Context(), odd, []*store.Rule{day}, results[:]); err != nil || results[0].Used != 10 {
		t.Errorf("%d charged to it, %v, want 10", results[0].Used, err)
	}
}

// Under Deny nothing is pending that would tell, after the outage that its failures are
// taken for, that it is the entity's trouble.
func TestEntityThatIsNotServedIsTakenForAnOutageOnce(t *testing.T) {
	var opened atomic.Int64
	c, f := setup(t, newServer(nil), Options{Policy: Deny, OnOpen: func(error) { opened.Add(1) }})
	f.setEntity(odd, errOfKey)
	for range defaultFailures {
		if err := callOf(t, c, odd, 1); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	wait(t, "the end of the outage", func() bool { return opened.Load() == 1 && !c.Away() })
	before := f.calls.Load()
	wait(t, "calls that try", func() bool {
		if err := callOf(t, c, odd, 1); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		return f.calls.Load() > before+3
	})
	if opened.Load() != 1 || c.Away() {
		t.Errorf("opened %d times, want once", opened.Load())
	}
	f.setEntity(odd, nil)
	wait(t, "it to be served", func() bool { return callOf(t, c, odd, 1) == nil })
}

func TestFailuresWhileOthersAreServedDoNotOpen(t *testing.T) {
	c, _ := setup(t, newServer(nil), Options{})
	c.Start()
	for i := range 10 * defaultFailures {
		e := store.Entity{Instance: "apps", Consumer: fmt.Sprint(i)}
		_, err := c.ask(t.Context(), e, func() (*store.Ticket, error) {
			use(t, c, day, 1) // meanwhile
			return nil, errGone
		})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	if c.Away() {
		t.Error("open")
	}
}

// A crowd of calls is no outage, and no way past a limit.
func TestCallsThatWaitForOthersDoNotOpen(t *testing.T) {
	for _, p := range []Policy{Local, Allow, Deny} {
		c, f := setup(t, newServer(nil), Options{Policy: p})
		c.Settle(admit(t, c, take(day, 5, 3)), []int64{3})
		f.setEntity(entity, fmt.Errorf("waiting: %w", store.ErrBusy))
		admitted := 0
		for range 10 * defaultFailures {
			k, _, err := reserve(c, false, take(day, 5, 1))
			if p == Deny != errors.Is(err, store.ErrBusy) {
				t.Errorf("%s: got %v", p, err)
			}
			if k != nil {
				admitted++
				c.Settle(k, []int64{1})
			}
		}
		if want := 2; p != Deny && admitted != want {
			t.Errorf("%s: admitted %d, want %d", p, admitted, want)
		}
		if c.Away() {
			t.Errorf("%s: open", p)
		}
	}
}

func TestEntitiesAreSetApartForLonger(t *testing.T) {
	a := apart{failures: 3, first: time.Minute}
	began := time.Now()
	for range 5 { // of which two were under way
		a.failed(entity, began, false)
	}
	if blocked, known := a.ask(entity); !blocked || known {
		t.Errorf("blocked %v, known %v", blocked, known)
	}
	if d := a.entities[entity].delay; d != apartMost {
		t.Errorf("set apart for %s, want at most %s", d, apartMost)
	}
	if got := a.pardon(); len(got) != 1 || got[0] != entity {
		t.Errorf("in doubt are %v", got)
	}
	if blocked, _ := a.ask(entity); blocked {
		t.Error("not tried after it was pardoned")
	}
	if blocked, _ := a.ask(entity); !blocked {
		t.Error("tried twice at once")
	}
	a.refused(entity)
	if _, known := a.ask(entity); !known {
		t.Error("its trouble is not known")
	}
	a.served(entity)
	if blocked, _ := a.ask(entity); blocked || a.n.Load() != 0 {
		t.Error("still set apart after it was served")
	}
	for i := range 2 * apartEntities {
		a.refused(store.Entity{Consumer: fmt.Sprint(i)})
	}
	if n := a.n.Load(); n != apartEntities {
		t.Errorf("%d entities are remembered, want %d", n, apartEntities)
	}
}
