package limit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// fleet is replicas that share a store, each with what it has seen itself.
type fleet struct {
	counters store.Counters
	leases   *store.Leases
}

func newFleet() *fleet {
	c := memory.New(memory.Options{})
	return &fleet{c, store.NewLeases(c, time.Minute, nil)}
}

func (f *fleet) replica() *registrar {
	return &registrar{f.counters, f.leases, store.Entity{Instance: "i", Consumer: "app"}, true, new(acquaintance)}
}

// places is how many places are taken, and which of these models have one.
func (f *fleet) places(t testing.TB, models ...string) (all int64, own []string) {
	t.Helper()
	rules := []*store.Rule{allNames}
	for _, m := range models {
		rules = append(rules, nameRule(m))
	}
	results := make([]store.Result, len(rules))
	if err := f.counters.Read(t.Context(), f.replica().of, rules, results); err != nil {
		t.Fatal(err)
	}
	for i, m := range models {
		switch n := results[i+1].Used; n {
		case 0:
		case 1:
			own = append(own, m)
		default:
			t.Fatalf("%s has %d places", m, n)
		}
	}
	return results[0].Used, own
}

// call is one whose models are new, or may be given back.
func (g *registrar) call(t testing.TB, models ...string) (met []newcomer) {
	t.Helper()
	var fresh []string
	for _, m := range models {
		_, ok, p := g.c.join(m, time.Now())
		switch {
		case p != nil:
			met = append(met, newcomer{m, true, p})
		case !ok:
			fresh = append(fresh, m)
		}
	}
	more, err := g.enroll(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	return append(met, more...)
}

// end ends a call; what is to be made sure of is, before it returns.
func (g *registrar) end(met []newcomer, keep bool) {
	for _, n := range met {
		if n.place != nil && g.c.leave(n.model, n.place, keep) {
			g.charge(n.model, n.place)
		}
	}
}

func (f *fleet) fill(t testing.TB, n int) {
	t.Helper()
	g := f.replica()
	for i := range n {
		g.end(g.call(t, fmt.Sprint("filled-", i)), true)
	}
}

func ownOf(met []newcomer) (own []string) {
	for _, n := range met {
		if n.own {
			own = append(own, n.model)
		}
	}
	slices.Sort(own)
	return own
}

// The models of a call get places as far as there are any, those first that it names first.
func TestPlacesOfSeveralModelsAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		taken int
		known []string // by another replica
		want  []string
		all   int64
	}{
		"room-for-all":       {0, nil, []string{"a", "b", "c"}, 3},
		"room-for-two":       {98, nil, []string{"a", "b"}, 100},
		"no-room":            {100, nil, nil, 100},
		"one-has-its-own":    {50, []string{"b"}, []string{"a", "b", "c"}, 53},
		"one-of-the-last":    {99, []string{"b"}, []string{"b"}, 100},
		"two-and-room":       {97, []string{"a", "c"}, []string{"a", "b", "c"}, 100},
		"all-have-their-own": {97, []string{"a", "b", "c"}, []string{"a", "b", "c"}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			f.fill(t, tc.taken)
			for _, m := range tc.known {
				g := f.replica()
				g.end(g.call(t, m), true)
			}
			g := f.replica()
			met := g.call(t, "a", "b", "c")
			if got := ownOf(met); !slices.Equal(got, tc.want) || len(met) != 3 {
				t.Errorf("%v have their own, want %v", got, tc.want)
			}
			g.end(met, true)
			if all, own := f.places(t, "a", "b", "c"); all != tc.all || !slices.Equal(own, tc.want) {
				t.Errorf("%d places, of %v, want %d and %v", all, own, tc.all, tc.want)
			}
			if got := ownOf(g.call(t, "a", "b", "c")); len(got) > 0 {
				t.Errorf("%v may be given back yet", got)
			}
		})
	}
}

// Another replica finds a model new, and gives its place back while a call of this one is
// under way that is charged in the end.
func TestAPlaceThatAnotherReplicaGivesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		between int // models that get places meanwhile
		keep    bool
		late    bool // it is given back once the other call has ended
		all     int64
	}{
		"it is taken anew":                 {0, true, false, 1},
		"it is taken beyond the bound":     {100, true, false, 101},
		"nothing came of either":           {0, false, false, 0},
		"nothing came of it, none left":    {100, false, false, 100},
		"it is charged while it is held":   {0, true, true, 1},
		"the last is charged while held":   {99, true, true, 100},
		"nothing came of either, held yet": {0, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet()
			one, two := f.replica(), f.replica()
			failed := one.call(t, "new")
			good := two.call(t, "new")
			if got := ownOf(good); len(got) != 1 {
				t.Fatal("the second replica counts it elsewhere")
			}
			if !tc.late {
				one.end(failed, false)
			}
			f.fill(t, tc.between)
			two.end(good, tc.keep)
			if tc.late {
				one.end(failed, false)
			}
			all, own := f.places(t, "new")
			if all != tc.all || (len(own) == 1) != tc.keep {
				t.Errorf("%d places, of %v", all, own)
			}
			if tc.keep && len(ownOf(f.replica().call(t, "new"))) != 1 {
				t.Error("a third replica counts it elsewhere")
			}
		})
	}
}

// Whatever calls there are, in whatever order they end: a model has one place if any call
// of it was charged, and none if all have ended for nothing.
func TestPlacesAreThoseOfModelsThatWereCharged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type call struct {
			at     *registrar
			models []string
			met    []newcomer
		}
		f := newFleet()
		replicas := []*registrar{f.replica(), f.replica()}
		models := []string{"a", "b", "c", "d"}
		charged := make(map[string]bool)
		var calls []call
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			if len(calls) == 0 || rapid.Bool().Draw(rt, "begins") {
				c := call{at: rapid.SampledFrom(replicas).Draw(rt, "replica")}
				c.models = rapid.SliceOfNDistinct(rapid.SampledFrom(models), 1, 3, rapid.ID[string]).Draw(rt, "models")
				c.met = c.at.call(t, c.models...)
				calls = append(calls, c)
			} else {
				i := rapid.IntRange(0, len(calls)-1).Draw(rt, "ends")
				c, keep := calls[i], rapid.Bool().Draw(rt, "charged")
				calls = slices.Delete(calls, i, i+1)
				c.at.end(c.met, keep)
				for _, m := range c.models {
					charged[m] = charged[m] || keep
				}
			}
			_, own := f.places(t, models...)
			for m := range charged {
				if charged[m] && !slices.Contains(own, m) {
					rt.Fatalf("%s was charged and has no place", m)
				}
			}
		}
		for _, c := range calls {
			c.at.end(c.met, false)
		}
		all, own := f.places(t, models...)
		for _, m := range models {
			if charged[m] != slices.Contains(own, m) {
				rt.Fatalf("%s was charged: %t, has a place: %t", m, charged[m], !charged[m])
			}
		}
		if all != int64(len(own)) {
			rt.Fatalf("%d places for %v", all, own)
		}
	})
}
