package limit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// eachApart is a limiter that counts each model apart.
func eachApart(t *testing.T) *Limiter {
	return newTestLimiter(t, Config{Models: []ModelBlock{{Match: []string{"*"}, Limits: oneOf10, PerModel: true}}})
}

// newcomersOf is the entry of a call of an entity whose rules are to be chosen.
func newcomersOf(l *Limiter, of store.Entity) *entry {
	e := newEntry(l, l.plan.base.usual())
	e.reservation.Entity = of
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

// A model that a call names twice has one place.
func TestAModelThatIsNamedTwiceIsAskedForOnce(t *testing.T) {
	e := newcomersOf(eachApart(t), store.Entity{Instance: "twice"})
	if got := counted(t, e, "new", "NEW", "openai/new"); !slices.Equal(got, []string{"=new"}) {
		t.Errorf("the call counts in %q", got)
	}
	if got := e.newcomers.fresh; !slices.Equal(got, []string{"new"}) {
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
	was := e.newcomers.c
	for i := range 2*tracksMost + 1 {
		acquainted.of(store.Entity{Instance: "crowd", Consumer: fmt.Sprint(i)})
	}
	if acquainted.of(of) == was {
		t.Fatal("the entity is known yet")
	}
	other := newcomersOf(l, of)
	counted(t, other, "newer")
	if other.newcomers.c == was || e.registrarOf(f.counters, f.leases).c != was || e.acquaintance() != was {
		t.Error("a call is to leave places of another's")
	}
}
