package limit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// eachApart is a limiter that counts each model apart.
func eachApart(t *testing.T) *Limiter {
	return newTestLimiter(t, Config{Models: []ModelBlock{{Match: []string{"*"}, Limits: oneOf10, PerModel: true}}})
}

// newcomersOf is the entry of a call of an entity whose rules are to be chosen.
func newcomersOf(l *Limiter, of store.Entity) *entry {
	e := newEntry(l, l.plan.base)
	e.asked.Entity = of
	return e
}

// counted chooses the rules of a call, and returns the ends of their counters' names.
func counted(t *testing.T, e *entry, model string, others ...string) (ids []string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":%q,"messages":[]}`, model)
	if len(others) > 0 {
		body = fmt.Sprintf(`{"model":%q,"models":["%s"],"messages":[]}`, model, strings.Join(others, `","`))
	}
	r := newRequest("POST", "/v1/chat/completions", body)
	if f := e.choose(r, newCall(t, meter.New(), r), e.l.plan.base); f != nil {
		t.Fatal(f.Message)
	}
	for _, ru := range e.rules {
		ids = append(ids, strings.TrimPrefix(ru.store.ID, e.l.blocks[0].rules[0].store.ID))
	}
	return ids
}

// All places are taken, and what this process knows of a model of the call changes while
// the store is asked for another one: the model stays where it was found.
func TestWhatIsKnownOfAModelHoldsForTheCall(t *testing.T) {
	reset := time.Now().Add(namesLive)
	for name, tc := range map[string]struct {
		before, between func(c *acquaintance)
		want            []string // the main model's
	}{
		"one that shares is crowded out": {
			func(c *acquaintance) {
				c.miss("real", time.Now(), reset)
				for i := range modelsMost - 1 {
					c.miss(fmt.Sprint("late-", i), time.Now(), reset)
				}
			},
			func(*acquaintance) {},
			[]string{"~"},
		},
		"one that shares is forgotten": {
			func(c *acquaintance) { c.miss("real", time.Now(), reset) },
			func(c *acquaintance) { c.shared = nil },
			[]string{"~"},
		},
		"one that has its own is forgotten": {
			func(c *acquaintance) { c.meet("real", reset, nil) },
			func(c *acquaintance) { c.forget("real") },
			[]string{"=real", "~"},
		},
		"one that shares gets a place": {
			func(c *acquaintance) { c.miss("real", time.Now(), reset) },
			func(c *acquaintance) { c.meet("real", reset, nil) },
			[]string{"~"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			f.fill(t, modelsMost)
			l := eachApart(t)
			of := store.Entity{Instance: "holds", Consumer: name}
			c := acquainted.of(of)
			tc.before(c)
			e := newcomersOf(l, of)
			if got := counted(t, e, "real", "new"); !slices.Contains(got, "=new") {
				t.Fatalf("got %q for a model that is new", got)
			}
			g := f.replica()
			g.c = e.newcomers().c
			met, err := g.enroll(t.Context(), e.newcomers().fresh)
			if err != nil {
				t.Fatal(err)
			}
			tc.between(c)
			e.newcomers().named, e.newcomers().fresh = append(e.newcomers().named, met...), nil
			if !e.newcomers().sharing() {
				t.Fatal("the model that is new has got a place")
			}
			e.again = true
			if got := counted(t, e, "real", "new"); !slices.Equal(got, tc.want) {
				t.Errorf("the call counts in %q, want %q", got, tc.want)
			}
			if e.newcomers().unasked() {
				t.Errorf("%q are to be asked for, and nobody does", e.newcomers().fresh)
			}
		})
	}
}

// A model that a call names twice has one place.
func TestAModelThatIsNamedTwiceIsAskedForOnce(t *testing.T) {
	e := newcomersOf(eachApart(t), store.Entity{Instance: "twice"})
	if got := counted(t, e, "new", "NEW", "openai/new"); !slices.Equal(got, []string{"=new"}) {
		t.Errorf("the call counts in %q", got)
	}
	if got := e.newcomers().fresh; !slices.Equal(got, []string{"new"}) {
		t.Errorf("%q are to be asked for", got)
	}
}

// A call leaves the places that it has come into, also where so many callers have come
// meanwhile that its own was forgotten, and is known anew.
func TestACallLeavesThePlacesThatItCameInto(t *testing.T) {
	l, f := eachApart(t), newFleet()
	of := store.Entity{Instance: "leaves"}
	e := newcomersOf(l, of)
	counted(t, e, "new")
	was := e.newcomers().c
	for i := range 2*tracksMost + 1 {
		acquainted.of(store.Entity{Instance: "crowd", Consumer: fmt.Sprint(i)})
	}
	if acquainted.of(of) == was {
		t.Fatal("the entity is known yet")
	}
	other := newcomersOf(l, of)
	counted(t, other, "newer")
	if other.newcomers().c == was || e.registrarOf(f.counters, f.leases).c != was || e.acquaintance() != was {
		t.Error("a call is to leave places of another's")
	}
}
