//go:build unix

package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// A caller at its limit is known to be refused, whatever else its call is counted by.
func TestARefusalIsKnownFromSomeOfTheCounters(t *testing.T) {
	server := redistest.Start(t)
	used, free, other := &store.Rule{ID: "used", Window: tokens.Window}, &store.Rule{ID: "free", Window: tokens.Window}, &store.Rule{ID: "other", Window: tokens.Window}
	take := func(r *store.Rule, shadow bool) store.Take {
		return store.Take{Rule: r, Limit: 10, Need: 1, Charge: 1, Shadow: shadow}
	}
	for name, tc := range map[string]struct {
		between func(t *testing.T, s *Store, e store.Entity, later *time.Duration)
		takes   []store.Take
		want    bool
	}{
		"the-same-counters":         {nil, []store.Take{take(used, false), take(free, false)}, true},
		"one-that-is-not-known":     {nil, []store.Take{take(used, false), take(other, false)}, true},
		"none-that-is-used-up":      {nil, []store.Take{take(free, false), take(other, false)}, false},
		"none-that-is-known":        {nil, []store.Take{take(other, false)}, false},
		"one-that-only-reports":     {nil, []store.Take{take(used, true), take(other, false)}, false},
		"a-larger-limit":            {nil, []store.Take{{Rule: used, Limit: 11, Need: 1}, take(other, false)}, false},
		"another-is-charged":        {charge(other), []store.Take{take(used, false), take(other, false)}, true},
		"what-another-took-is-back": {giveBack(other), []store.Take{take(used, false), take(other, false)}, true},
		"another-is-refused": {func(t *testing.T, s *Store, e store.Entity, _ *time.Duration) {
			ask(t, s, e, false, store.Take{Rule: other, Limit: 0, Need: 1})
		}, []store.Take{take(used, false)}, true},
		"it-is-granted": {func(t *testing.T, s *Store, e store.Entity, _ *time.Duration) {
			if err := s.Adjust(t.Context(), e, store.Amount{Rule: used, Amount: -1}); err != nil {
				t.Fatal(err)
			}
		}, []store.Take{take(used, false)}, false},
		"it-is-charged-in-shadow": {func(t *testing.T, s *Store, e store.Entity, _ *time.Duration) {
			ask(t, s, e, true, take(used, true))
		}, []store.Take{take(used, false)}, false},
		"a-while-later": {func(_ *testing.T, _ *Store, _ store.Entity, later *time.Duration) {
			*later = rememberFor + time.Millisecond
		}, []store.Take{take(used, false)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var later time.Duration
			began := time.Now()
			o := Options{Addresses: []string{server.Addr()}, Now: func() time.Time { return began.Add(later) }}
			s := open(t, o)
			e := store.Entity{Instance: "known", Consumer: name}
			if err := s.Adjust(t.Context(), e, store.Amount{Rule: used, Amount: 10}); err != nil {
				t.Fatal(err)
			}
			ask(t, s, e, false, take(used, false), take(free, false))
			if tc.between != nil {
				tc.between(t, s, e, &later)
			}
			r := store.Reservation{Entity: e, Lease: time.Minute, Takes: tc.takes}
			results := make([]store.Result, len(tc.takes))
			if got := store.Refuses(s, &r, results, false); got != tc.want {
				t.Fatalf("known to be refused: %t, want %t", got, tc.want)
			}
			for i, k := range tc.takes {
				res := results[i]
				switch {
				case !tc.want:
				case k.Rule == used && (!res.Exceeded || res.Used != 10 || res.Limit != 10 || res.Unknown):
					t.Errorf("got %+v of what is used up", res)
				case k.Rule == other && (res.Exceeded || !res.Unknown || res.Limit != 10):
					t.Errorf("got %+v of what is not known", res)
				}
			}
		})
	}
}

// A caller that is refused on and on is answered here by some of its counters; one that is
// refused now and then is told of all.
func TestCallsThatAreRefusedOftenAskNoMore(t *testing.T) {
	server := redistest.Start(t)
	var later time.Duration
	began := time.Now()
	s := open(t, Options{Addresses: []string{server.Addr()}, Now: func() time.Time { return began.Add(later) }})
	e := store.Entity{Instance: "often", Consumer: "app"}
	take := func(id string) store.Take {
		return store.Take{Rule: &store.Rule{ID: id, Window: tokens.Window}, Limit: 10, Need: 1, Charge: 1}
	}
	if err := s.Adjust(t.Context(), e, store.Amount{Rule: take("used").Rule, Amount: 10}); err != nil {
		t.Fatal(err)
	}
	check := func(want bool, takes ...store.Take) {
		t.Helper()
		r := store.Reservation{Entity: e, Lease: time.Minute, Takes: takes}
		results := make([]store.Result, len(takes))
		if got := store.Refuses(s, &r, results, true); got != want {
			t.Fatalf("refused often: %t, want %t", got, want)
		}
		if want && (!results[0].Exceeded || !results[len(takes)-1].Unknown) {
			t.Errorf("got %+v", results)
		}
	}
	for round := range 2 {
		for i := range askedMost {
			check(false, take("used"), take("another"))
			ask(t, s, e, false, take("used"), take(fmt.Sprint(round, "-", i)))
		}
		check(true, take("used"), take("another"))
		check(false, take("free"), take("another"))
		later += rememberFor + time.Millisecond
		check(false, take("used"), take("another"))
	}
}

// Many entities that are refused share the room of one that goes through many counters.
func TestRememberedCountersOfManyEntitiesAreBounded(t *testing.T) {
	now := time.Now()
	for entities, want := range map[int]int{1: countersMost, 100: roomMost / 100, refusalsMost: countersLeast} {
		kept := &refusal{}
		for i := range 2 * countersMost {
			next := &refusal{rules: []remembered{{id: fmt.Sprint(i), at: now}}}
			next.keep(kept, now, room(entities))
			kept = next
		}
		if n := len(kept.rules); n != 1+want {
			t.Errorf("%d are remembered of each of %d, want %d", n, entities, 1+want)
		}
	}
}

// ask reserves, and checks whether that is admitted.
func ask(t *testing.T, s *Store, e store.Entity, admitted bool, takes ...store.Take) *store.Ticket {
	t.Helper()
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: takes}
	k, err := s.Reserve(t.Context(), &r, make([]store.Result, len(takes)))
	if err != nil || (k != nil) != admitted {
		t.Fatalf("admitted: %v, %v", k != nil, err)
	}
	return k
}

func charge(r *store.Rule) func(*testing.T, *Store, store.Entity, *time.Duration) {
	return func(t *testing.T, s *Store, e store.Entity, _ *time.Duration) {
		ask(t, s, e, true, store.Take{Rule: r, Limit: 10, Need: 1, Charge: 1})
	}
}

func giveBack(r *store.Rule) func(*testing.T, *Store, store.Entity, *time.Duration) {
	return func(t *testing.T, s *Store, e store.Entity, _ *time.Duration) {
		s.Settle(ask(t, s, e, true, store.Take{Rule: r, Limit: 10, Need: 1, Charge: 1}), nil)
	}
}

// However many counters a caller has, few are remembered.
func TestRememberedCountersAreBounded(t *testing.T) {
	now := time.Now()
	kept := &refusal{}
	for i := range 10 * countersLeast {
		next := &refusal{rules: []remembered{{id: string(rune('a' + i)), at: now}}}
		next.keep(kept, now, countersLeast)
		kept = next
	}
	if n := len(kept.rules); n != 1+countersLeast {
		t.Errorf("%d are remembered", n)
	}
	next := &refusal{}
	if next.keep(kept, now.Add(rememberFor+1), countersMost); len(next.rules) > 0 {
		t.Errorf("%d are remembered that are too old", len(next.rules))
	}
}
