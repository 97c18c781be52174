package memory

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
	"unique"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// at is when the tests of this file are.
var at = time.Date(2026, 3, 15, 12, 30, 0, 0, time.UTC).UnixMilli()

var berlin = must(time.LoadLocation("Europe/Berlin"))

// everyKind has a rule of each kind of window.
var everyKind = []*store.Rule{
	{ID: "requests per minute", Window: must(store.Calendar("minute", time.UTC))},
	{ID: "tokens per hour", Window: must(store.Calendar("hour", berlin))},
	{ID: "tokens per day", Window: must(store.Calendar("day", berlin))},
	{ID: "tokens per week \x00\xff", Window: must(store.Calendar("week", nil))},
	{ID: "usd per month", Window: must(store.Calendar("month", berlin))},
	{ID: "tokens per 90s", Window: must(store.Fixed(90 * time.Second))},
	{ID: "tokens per rolling 1h", Window: must(store.Rolling(time.Hour))},
	{ID: "tokens per 1h burst 100", Window: must(store.Bucket(time.Hour)), Refill: 1000},
}

func entityOf(consumer string, counters ...ruleCounter) *entity {
	return &entity{instance: unique.Make("tokens"), consumer: consumer, counters: counters}
}

// used is the counter of a rule with what was used in the window of now.
func used(r *store.Rule, amount int64) ruleCounter {
	c := ruleCounter{rule: unique.Make(*r)}
	c.Roll(r, at)
	c.Charge(r, amount)
	return c
}

func appendVarints(ns ...int64) (b []byte) {
	for _, n := range ns {
		b = binary.AppendVarint(b, n)
	}
	return b
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	d := newDecoder()
	for _, amount := range []int64{1, -1, 1e18, math.MaxInt64, math.MinInt64} {
		for _, consumer := range []string{"", "app", "odd \x00\xff/%", string(make([]byte, 1000))} {
			var counters []ruleCounter
			for _, r := range everyKind {
				counters = append(counters, used(r, amount))
			}
			record, n := entityOf(consumer, counters...).appendRecord(nil, at)
			if n != len(counters) {
				t.Fatalf("%d counters are written of %d", n, len(counters))
			}
			name, got, err := d.decode(record)
			if err != nil {
				t.Fatal(err)
			}
			if name != (store.Entity{Instance: "tokens", Consumer: consumer}) || len(got) != len(counters) {
				t.Fatalf("got %d counters of %q", len(got), name)
			}
			for i, c := range got {
				r, want := c.rule.Value(), everyKind[i]
				if c.State != counters[i].State || r.ID != want.ID || r.Refill != want.Refill || r.Window.Kind() != want.Window.Kind() {
					t.Errorf("%s: got %+v, want %+v", want.ID, c.State, counters[i].State)
				}
				start, end := r.Window.Span(at)
				if s, e := want.Window.Span(at); s != start || e != end {
					t.Errorf("%s: the window is %d to %d, want %d to %d", want.ID, start, end, s, e)
				}
			}
		}
	}
}

func TestRecordsLeaveOutWhatSaysNothing(t *testing.T) {
	e := entityOf("app",
		used(everyKind[0], 0), used(inFlight, 5), used(everyKind[2], 7),
		ruleCounter{rule: unique.Make(*hourly), State: counter.State{Start: at - 2*3600_000, Used: 9}},
	)
	record, n := e.appendRecord(nil, at)
	if _, got, err := newDecoder().decode(record); err != nil || n != 1 || len(got) != 1 || got[0].Used != 7 {
		t.Errorf("got %d counters, %+v, %v", n, got, err)
	}
}

func TestRecordsThatAreNone(t *testing.T) {
	good, _ := entityOf("app", used(everyKind[4], 5), used(everyKind[7], 5)).appendRecord(nil, at)
	for n := range good {
		if _, counters, err := newDecoder().decode(good[:n]); err == nil && len(counters) > 1 {
			t.Errorf("%d of %d bytes: got %+v", n, len(good), counters)
		}
	}
	change := func(from, to string) []byte { return bytes.Replace(good, []byte(from), []byte(to), 1) }
	state := func(r *store.Rule, s counter.State) []byte {
		b, _ := entityOf("app").appendRecord(nil, at)
		b = appendRule(b, r)
		return append(b, appendVarints(s.Start, s.Used, s.Prev)...)
	}
	for name, record := range map[string][]byte{
		"an unknown zone":               change("Europe/Berlin", "Europe/Berlyn"),
		"a zone that is a path":         change("Europe/Berlin", "../etc/passwd"),
		"an unknown unit":               change("month", "moons"),
		"a start before all":            state(hourly, counter.State{Start: -1, Used: 1}),
		"a start beyond reckoning":      state(hourly, counter.State{Start: math.MaxInt64, Used: 1}),
		"a rest that is more than that": state(everyKind[7], counter.State{Start: at, Used: 1, Prev: 3600_000}),
		"a negative rest":               state(everyKind[7], counter.State{Start: at, Used: 1, Prev: -1}),
		"a window that never ends":      state(inFlight, counter.State{Used: 1}),
	} {
		if _, _, err := newDecoder().decode(record); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	var all []ruleCounter
	for _, r := range everyKind {
		all = append(all, used(r, 5))
	}
	for n := range all {
		record, _ := entityOf("app", all[n:]...).appendRecord(nil, at)
		f.Add(record)
	}
	var own overrides
	limit := int64(5)
	own.set(store.Entity{Instance: "i", Consumer: "app"}, "tokens", &limit)
	f.Add(own.appendRecord(nil, store.Entity{Instance: "i", Consumer: "app"}))
	f.Fuzz(func(t *testing.T, record []byte) {
		s := New(Options{Now: func() time.Time { return time.UnixMilli(at) }})
		l := s.newLoading()
		if err := l.visit(record); err != nil {
			t.Fatal(err)
		}
		s.adopt(l, true)
		// What is read can be counted on, and is written as it was read.
		for i := range s.shards {
			for e, limits := range s.shards[i].own.limits {
				name, again, err := newDecoder().decodeOverrides(s.shards[i].own.appendRecord(nil, e))
				if err != nil || name != e || !maps.Equal(again, limits) {
					t.Fatalf("read %+v %v, wrote %+v %v (%v)", e, limits, name, again, err)
				}
			}
			for _, e := range s.shards[i].ends {
				again, _ := e.appendRecord(nil, at)
				name, counters, err := newDecoder().decode(again)
				if err != nil || name.Consumer != e.consumer || !slices.EqualFunc(counters, e.counters, func(a, b ruleCounter) bool { return a.State == b.State }) {
					t.Fatalf("read %+v, wrote %+v (%v)", e.counters, counters, err)
				}
				for _, c := range counters {
					r := c.rule.Value()
					if err := s.Adjust(t.Context(), name, store.Amount{Rule: &r, Amount: 1}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
