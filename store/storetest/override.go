package storetest

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// override gives an entity a limit of its own.
func (f *fixture) override(e store.Entity, r *store.Rule, limit int64) {
	f.Helper()
	if err := f.store.Override(context.Background(), e, r.ID, &limit); err != nil {
		f.Fatalf("overriding: %v", err)
	}
}

// restore takes it away.
func (f *fixture) restore(e store.Entity, r *store.Rule) {
	f.Helper()
	if err := f.store.Override(context.Background(), e, r.ID, nil); err != nil {
		f.Fatalf("taking a limit away: %v", err)
	}
}

// own fails the test unless an entity has these limits of its own.
func (f *fixture) own(e store.Entity, want map[string]int64) {
	f.Helper()
	got, err := f.store.OverridesOf(context.Background(), e)
	if err != nil {
		f.Fatalf("reading limits: %v", err)
	}
	if !maps.Equal(got, want) {
		f.Errorf("%+v has limits of its own %v, want %v", e, got, want)
	}
	nobody := store.Entity{Instance: e.Instance, Consumer: "who has no limit"}
	all, err := store.OverridesOfAll(context.Background(), f.store, []store.Entity{nobody, e})
	if err != nil || len(all) != 2 || len(all[0]) != 0 || !maps.Equal(all[1], want) {
		f.Errorf("of many: got %v, %v, want %v of %+v", all, err, want, e)
	}
}

func (f *fixture) overridden(after string, n int) []string {
	f.Helper()
	return f.listed(f.store.Overridden, after, n)
}

func testOverride(f *fixture) {
	e, other, shared := f.consumer("app"), f.consumer("other"), store.Entity{Instance: f.instance}
	for _, r := range []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1)} {
		take := charge(r, 10, 1)
		f.adjust(e, r, 10)
		f.refuse(e, take)

		// More than the config's, at once, also of what has just been refused.
		f.override(e, r, 12)
		_, results := f.admit(e, take)
		if got := results[0]; got.Limit != 12 || !got.Overridden || got.Used != 11 || got.Remaining() != 1 {
			f.Errorf("%s: got %+v, want a limit of 12 of its own", r.ID, got)
		}
		f.admit(e, take)
		if got := f.refuse(e, take)[0]; got.Limit != 12 || !got.Overridden || got.RetryAfter <= 0 {
			f.Errorf("%s: refused by %+v", r.ID, got)
		}
		if got := f.refuse(e, take)[0]; got.Limit != 12 || !got.Overridden { // as it is remembered
			f.Errorf("%s: refused again by %+v", r.ID, got)
		}
		// Less than it.
		f.adjust(e, r, -10)
		f.override(e, r, 3)
		f.admit(e, take)
		if got := f.refuse(e, take)[0]; got.Limit != 3 || !got.Overridden {
			f.Errorf("%s: refused by %+v", r.ID, got)
		}
		// It is nobody else's.
		for _, e := range []store.Entity{other, shared} {
			if got := look(f, f.store, e, r)[0]; got.Limit != 0 || got.Overridden {
				f.Errorf("%s: %+v has %+v", r.ID, e, got)
			}
		}
		f.restore(e, r)
		_, results = f.admit(e, take)
		if got := results[0]; got.Limit != 10 || got.Overridden || got.Used != 4 {
			f.Errorf("%s: got %+v, want the limit of the config", r.ID, got)
		}
		f.restore(e, r) // there is none
	}
}

func testOverrideOfSome(f *fixture) {
	e := f.consumer("app")
	mine, config, calls := f.fixed("mine", decade), f.fixed("config", decade), f.none("calls")
	f.override(e, mine, 5)
	f.override(e, calls, 2)
	takes := []store.Take{charge(config, 100, 1), charge(mine, 100, 1), hold(calls, 100, 1)}
	_, results := f.admit(e, takes...)
	for i, want := range []store.Result{{Limit: 100}, {Limit: 5, Overridden: true}, {Limit: 2, Overridden: true}} {
		if got := results[i]; got.Limit != want.Limit || got.Overridden != want.Overridden {
			f.Errorf("take %d: got %+v", i, got)
		}
	}
	f.admit(e, takes...)
	results = f.refuse(e, takes...)
	if results[0].Exceeded || results[1].Exceeded || !results[2].Exceeded {
		f.Errorf("got %+v, want the calls to exceed", results)
	}
	f.override(e, calls, 1000)
	// What is free of a range goes by it.
	f.override(e, mine, 50)
	k, results := f.admit(e, store.Take{Rule: mine, Limit: 10, Need: 1, Hold: 1, HoldMost: 1000})
	if want := int64(50 - 2); results[0].Got != want || k.Lines[0].Held != want {
		f.Errorf("got %d of a range, line %+v, want %d", results[0].Got, k.Lines[0], want)
	}
	// Shadow takes report by it.
	_, results = f.admit(e, store.Take{Rule: config, Limit: 100, Need: 1, Shadow: true}, store.Take{Rule: mine, Limit: 1000, Need: 1, Shadow: true})
	if results[0].Exceeded || !results[1].Exceeded {
		f.Errorf("got %+v", results)
	}
	// A call that names a part of the rules, in another order.
	if got := look(f, f.store, e, calls, config)[0]; got.Limit != 1000 || !got.Overridden {
		f.Errorf("got %+v", got)
	}
}

func testOverrideAmounts(f *fixture) {
	e, r := f.consumer("app"), f.fixed("tokens", decade)
	f.override(e, r, 0)
	if got := f.refuse(e, charge(r, 100, 1))[0]; got.Limit != 0 || !got.Overridden {
		f.Errorf("got %+v, want a limit of 0", got)
	}
	f.override(e, r, -5)
	f.own(e, map[string]int64{r.ID: 0})
	for _, limit := range []int64{1<<53 + 1, 1_000_000_000_000_000_003} {
		f.override(e, r, limit)
		f.own(e, map[string]int64{r.ID: limit})
		f.adjust(e, r, limit-1-f.used(e, r))
		if got := f.refuse(e, charge(r, 100, 2))[0]; got.Limit != limit {
			f.Errorf("%d: got %+v", limit, got)
		}
		if _, results := f.admit(e, charge(r, 100, 1)); results[0].Limit != limit || results[0].Used != limit {
			f.Errorf("%d: got %+v", limit, results[0])
		}
	}
}

func (f *fixture) used(e store.Entity, r *store.Rule) int64 {
	f.Helper()
	return look(f, f.store, e, r)[0].Used
}

func testOverrideIsRead(f *fixture) {
	ctx := context.Background()
	e, r, plain := f.consumer("app"), f.fixed("tokens", decade), f.fixed("plain", decade)
	f.override(e, r, 7)
	results := make([]store.Result, 2)
	if err := f.store.Read(ctx, e, []*store.Rule{plain, r}, results); err != nil {
		f.Fatalf("reading: %v", err)
	}
	if got := results[0]; got.Limit != 0 || got.Overridden {
		f.Errorf("got %+v, want no limit", got)
	}
	if got := results[1]; got.Limit != 7 || !got.Overridden || got.Used != 0 || got.Exceeded {
		f.Errorf("got %+v, want the limit alone", got)
	}
}

func testOverridesAreListed(f *fixture) {
	r, s := f.fixed("tokens per hour [a%20b]=x/y z", decade), f.fixed("usd per day\n\"é\" w 5", decade)
	if got := f.overridden("", 10); len(got) != 0 {
		f.Errorf("an unknown instance lists %q", got)
	}
	f.own(f.consumer("nobody"), nil)
	var want []string
	for _, name := range append(oddNames(), "app", "bob") {
		e := f.consumer(name)
		want = append(want, name)
		f.override(e, r, 1)
		f.override(e, s, 2)
		f.override(e, r, 3)
		f.own(e, map[string]int64{r.ID: 3, s.ID: 2})
	}
	f.adjust(f.consumer("counted"), r, 1)
	shared := store.Entity{Instance: f.instance}
	f.override(shared, r, 9)
	f.own(shared, map[string]int64{r.ID: 9})
	slices.Sort(want)
	if got := f.overridden("", 1000); !slices.Equal(got, want) {
		f.Errorf("listed %q, want %q", got, want)
	}
	if got := f.overridden(want[1], 2); !slices.Equal(got, want[2:4]) {
		f.Errorf("listed %q, want %q", got, want[2:4])
	}
	if got := f.overridden("", 0); len(got) != 0 {
		f.Errorf("none are listed as %q", got)
	}
	// Those with nothing but limits are among all.
	all := append(slices.Clone(want), "counted")
	slices.Sort(all)
	if got := f.list("", 1000); !slices.Equal(got, all) {
		f.Errorf("all are %q, want %q", got, all)
	}
	for _, name := range want {
		f.restore(f.consumer(name), r)
		f.own(f.consumer(name), map[string]int64{s.ID: 2})
		f.restore(f.consumer(name), s)
		f.own(f.consumer(name), nil)
	}
	if got := f.overridden("", 1000); len(got) != 0 {
		f.Errorf("what was taken away lists %q", got)
	}
}

// testOverrideOutlastsCounters lets all windows pass, over and over.
func testOverrideOutlastsCounters(f *fixture) {
	e, r := f.consumer("app"), f.fixed("tokens", 10*time.Second)
	f.override(e, r, 5)
	for range 5 {
		for range 5 {
			f.admit(e, charge(r, 1, 1))
		}
		f.refuse(e, charge(r, 1, 1))
		f.clock.step(40 * 24 * time.Hour)
		f.admit(f.consumer("another"), charge(r, 1, 1)) // a call that comes by
	}
	f.own(e, map[string]int64{r.ID: 5})
	f.restore(e, r)
	f.admit(e, charge(r, 1, 1))
	f.refuse(e, charge(r, 1, 1))
}

func testClear(f *fixture) {
	ctx := context.Background()
	e, other := f.consumer("app"), f.consumer("other")
	rules := []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1), f.fixed("granted", decade)}
	held, calls := f.fixed("held", decade), f.none("calls")
	for i, r := range rules {
		f.adjust(e, r, int64(100*(i+1)))
		f.adjust(other, r, 5)
	}
	f.adjust(e, rules[3], -1000)
	f.adjust(e, held, 30)
	k, _ := f.admit(e, hold(held, 100, 20), hold(calls, 5, 1))
	settled, _ := f.admit(e, hold(rules[0], 1000, 1))
	f.store.Settle(settled, []int64{50}) // it counts before, as it was before
	f.override(e, rules[0], 70)
	f.refuse(e, charge(rules[0], 1000, 1))

	if err := f.store.Clear(ctx, e); err != nil {
		f.Fatalf("clearing: %v", err)
	}
	for _, r := range rules {
		f.expect(e, r, 0, 0)
		f.expect(other, r, 5, 0)
	}
	f.expect(e, held, 0, 20)
	f.expect(e, calls, 0, 1)
	f.own(e, map[string]int64{rules[0].ID: 70})
	f.admit(e, charge(rules[0], 1, 1))
	f.store.Settle(k, []int64{40, 0})
	f.expect(e, held, 40, 0)
	f.expect(e, calls, 0, 0)
	if err := f.store.Clear(ctx, f.consumer("nobody")); err != nil {
		f.Errorf("clearing nothing: %v", err)
	}
}

func testAdjustSeveral(f *fixture) {
	ctx := context.Background()
	e := f.consumer("app")
	a, b, c := f.fixed("a", decade), f.rolling("b", decade), f.bucket("c", decade, 1)
	for _, amounts := range [][]store.Amount{{{Rule: a, Amount: 5}, {Rule: b, Amount: -3}, {Rule: c, Amount: 7}}, {{Rule: c, Amount: 1}, {Rule: a, Amount: 0}}, {}} {
		if err := f.store.Adjust(ctx, e, amounts...); err != nil {
			f.Fatalf("adjusting: %v", err)
		}
	}
	f.expect(e, a, 5, 0)
	f.expect(e, b, -3, 0)
	f.expect(e, c, 8, 0)
}

// testEditsUnderLoad changes limits and amounts by hand while calls are charged. No
// charge may be lost, none may pass the largest limit, and what is adjusted counts once.
func testEditsUnderLoad(f *fixture) {
	const low, high, rounds = 1_000_000, 2_000_000, 100
	e, r, s := f.consumer("app"), f.fixed("tokens", decade), f.fixed("requests", decade)
	var charged, calls, adjusted atomic.Int64
	together(func(n int) {
		w := worker{f.T}
		if n%4 == 0 {
			for i := range rounds / 4 {
				limit := int64(low)
				if i%2 == 0 {
					limit = high
				}
				if err := f.store.Override(context.Background(), e, r.ID, &limit); err != nil {
					w.Fatalf("overriding: %v", err)
				}
				if err := f.store.Adjust(context.Background(), e, store.Amount{Rule: r, Amount: 7}, store.Amount{Rule: s, Amount: 1}); err != nil {
					w.Fatalf("adjusting: %v", err)
				}
				adjusted.Add(1)
			}
			return
		}
		for i := range rounds {
			k, results := reserve(w, f.store, store.Reservation{
				Entity: e, Known: true, Lease: lease,
				Takes: []store.Take{hold(r, high, 3), charge(s, math.MaxInt64/4, 1)},
			})
			if got := results[0]; got.Overridden && got.Limit != low && got.Limit != high || !got.Overridden && got.Limit != high {
				w.Errorf("got %+v", got)
			}
			if k == nil {
				continue
			}
			calls.Add(1)
			charged.Add(int64(i))
			f.store.Settle(k, []int64{int64(i), 1})
		}
	})
	f.expect(e, r, charged.Load()+7*adjusted.Load(), 0)
	f.expect(e, s, calls.Load()+adjusted.Load(), 0)
	if calls.Load() == 0 || adjusted.Load() == 0 {
		f.Errorf("%d calls and %d adjustments say nothing", calls.Load(), adjusted.Load())
	}
}
