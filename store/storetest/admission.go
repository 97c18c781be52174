package storetest

import (
	"fmt"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func testAdmission(f *fixture) {
	for i, tt := range []struct {
		name       string
		used, held int64
		take       store.Take
		admitted   bool
	}{
		{"nothing used", 0, 0, store.Take{Limit: 1, Need: 1}, true},
		{"limit of zero", 0, 0, store.Take{Limit: 0, Need: 1}, false},
		{"just fits", 60, 30, store.Take{Limit: 100, Need: 10}, true},
		{"one too many", 60, 30, store.Take{Limit: 100, Need: 11}, false},
		{"used alone fills it", 100, 0, store.Take{Limit: 100, Need: 1}, false},
		{"held alone fills it", 0, 100, store.Take{Limit: 100, Need: 1}, false},
		{"used past the limit", 150, 0, store.Take{Limit: 100, Need: 1}, false},
		{"holds ignored", 60, 1000, store.Take{Limit: 100, Need: 40, IgnoreHeld: true}, true},
		{"holds ignored, use is not", 100, 0, store.Take{Limit: 100, Need: 1, IgnoreHeld: true}, false},
		{"a hold larger than what is free", 99, 0, store.Take{Limit: 100, Need: 1, Hold: 5000}, true},
		{"a charge larger than what is free", 99, 0, store.Take{Limit: 100, Need: 1, Charge: 5000}, true},
		{"granted", -50, 0, store.Take{Limit: 100, Need: 150}, true},
		{"beyond what is granted", -50, 0, store.Take{Limit: 100, Need: 151}, false},
		{"a limit lowered below use", 60, 30, store.Take{Limit: 50, Need: 1}, false},
		{"sums past int64", 1 << 61, 1 << 62, store.Take{Limit: 1 << 62, Need: 1 << 62}, false},
	} {
		rules := []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1)}
		for _, r := range rules {
			e := f.consumer(fmt.Sprint("row ", i))
			f.adjust(e, r, tt.used)
			if tt.held > 0 {
				f.admit(e, store.Take{Rule: r, Limit: 1 << 62, Need: 1, Hold: tt.held, IgnoreHeld: true})
			}
			tt.take.Rule = r
			k, results := f.reserve(e, tt.take)
			if admitted := k != nil; admitted != tt.admitted {
				f.Errorf("%s, %s: admitted is %t, results %+v", r.ID, tt.name, admitted, results)
			}
			used, held := tt.used, tt.held
			if tt.admitted {
				used, held = used+tt.take.Charge, held+tt.take.Hold
			}
			if got := results[0]; got.Used != used || got.Held != held || got.Limit != tt.take.Limit {
				f.Errorf("%s, %s: got %+v, want used %d, held %d", r.ID, tt.name, got, used, held)
			}
		}
	}
}

func testAllOrNothing(f *fixture) {
	e := f.consumer("app")
	requests, tokens, calls := f.fixed("requests", decade), f.rolling("tokens", decade), f.none("calls")
	f.adjust(e, tokens, 90)

	results := f.refuse(e, charge(requests, 10, 1), hold(tokens, 100, 11), hold(calls, 2, 1))
	for i, want := range []bool{false, true, false} {
		if results[i].Exceeded != want {
			f.Errorf("take %d: exceeded is %t, want %t", i, results[i].Exceeded, want)
		}
	}
	if got := results[1]; got.Used != 90 || got.Held != 0 || got.Got != 0 {
		f.Errorf("the refused take: %+v", got)
	}
	f.expect(e, requests, 0, 0)
	f.expect(e, tokens, 90, 0)
	f.expect(e, calls, 0, 0)

	f.admit(e, charge(requests, 10, 1), hold(tokens, 100, 10), hold(calls, 2, 1))
	f.expect(e, requests, 1, 0)
	f.expect(e, tokens, 90, 10)
	f.expect(e, calls, 0, 1)
}

func testRefusals(f *fixture) {
	e := f.consumer("app")
	r, other := f.fixed("requests", decade), f.fixed("other", decade)
	f.admit(e, charge(r, 5, 5))
	for range 1000 {
		f.refuse(e, charge(other, 10, 1), charge(r, 5, 1))
	}
	f.expect(e, r, 5, 0)
	f.expect(e, other, 0, 0)
	// The limit is no part of the counter: raised, it acts at once.
	f.admit(e, charge(other, 10, 1), charge(r, 6, 1))
	f.refuse(e, charge(r, 6, 1))
}

func testHoldMost(f *fixture) {
	for i, tt := range []struct {
		name       string
		used, held int64
		take       store.Take
		got        int64
	}{
		{"all of it", 0, 0, store.Take{Limit: 100, Need: 1, Hold: 1, HoldMost: 50}, 50},
		{"what is free", 60, 30, store.Take{Limit: 100, Need: 1, Hold: 1, HoldMost: 50}, 10},
		{"no less than asked for", 60, 30, store.Take{Limit: 100, Need: 1, Hold: 20, HoldMost: 50}, 20},
		{"a most below the least", 0, 0, store.Take{Limit: 100, Need: 1, Hold: 20, HoldMost: 10}, 20},
		{"after the charge", 0, 0, store.Take{Limit: 100, Need: 10, Charge: 10, Hold: 1, HoldMost: 200}, 90},
		{"whatever is held", 60, 30, store.Take{Limit: 100, Need: 1, Hold: 1, HoldMost: 50, IgnoreHeld: true}, 40},
		{"of a grant", -50, 0, store.Take{Limit: 100, Need: 1, Hold: 1, HoldMost: 500}, 150},
	} {
		e, r := f.consumer(fmt.Sprint("row ", i)), f.fixed("tokens", decade)
		f.adjust(e, r, tt.used)
		if tt.held > 0 {
			f.admit(e, hold(r, 1000, tt.held))
		}
		tt.take.Rule = r
		k, results := f.admit(e, tt.take)
		if results[0].Got != tt.got || k.Lines[0].Held != tt.got || results[0].Held != tt.held+tt.got {
			f.Errorf("%s: got %d, a line of %d and %d held, want %d",
				tt.name, results[0].Got, k.Lines[0].Held, results[0].Held, tt.got)
		}
		f.store.Settle(k, nil)
		f.expect(e, r, tt.used, tt.held)
	}
}

func testShadow(f *fixture) {
	e := f.consumer("app")
	r, strict := f.fixed("tokens", decade), f.fixed("strict", decade)
	f.adjust(e, r, 100)
	shadow := store.Take{Rule: r, Limit: 100, Need: 10, Charge: 10, Hold: 5, HoldMost: 50, Shadow: true}

	k, results := f.admit(e, shadow, charge(strict, 1, 1))
	if got := results[0]; !got.Exceeded || got.Used != 110 || got.Held != 5 || got.Got != 5 {
		f.Errorf("got %+v", got)
	}
	f.store.Settle(k, []int64{10, 1})
	f.expect(e, r, 110, 0)

	// A shadow take of a call that another rule refuses takes nothing.
	results = f.refuse(e, shadow, charge(strict, 1, 1))
	if !results[0].Exceeded || !results[1].Exceeded {
		f.Errorf("got %+v", results)
	}
	f.expect(e, r, 110, 0)
}

func testCorrespondence(f *fixture) {
	e := f.consumer("app")
	var rules []*store.Rule
	for i := range 9 {
		rules = append(rules, f.fixed(fmt.Sprint("rule ", i), decade))
	}
	// The same rules in another order each time: nothing may go by position.
	want := make([]int64, len(rules))
	for turn := range 4 {
		var takes []store.Take
		var order []int
		for i := range rules {
			j := (i*(turn+1) + turn) % len(rules)
			if turn == 2 {
				j = len(rules) - 1 - i
			}
			order = append(order, j)
			takes = append(takes, store.Take{Rule: rules[j], Limit: 1000 + int64(j), Need: 1, Hold: int64(j) * 10})
		}
		k, results := f.admit(e, takes...)
		actual := make([]int64, len(takes))
		for i, j := range order {
			l := k.Lines[i]
			if l.Rule.ID != rules[j].ID || l.Held != int64(j)*10 || results[i].Limit != 1000+int64(j) || results[i].Got != int64(j)*10 {
				f.Errorf("turn %d, take %d of rule %d: line %+v, result %+v", turn, i, j, l, results[i])
			}
			actual[i] = int64(j) + 1
			want[j] += actual[i]
		}
		if k.Entity != e || len(k.Lines) != len(takes) {
			f.Errorf("turn %d: ticket of %+v with %d lines", turn, k.Entity, len(k.Lines))
		}
		f.store.Settle(k, actual)
	}
	for j, r := range rules {
		f.expect(e, r, want[j], 0)
	}

	k, results := f.admit(e, charge(rules[0], 1000, 1), hold(f.none("calls"), 5, 1))
	if got := results[0]; got.ResetAt.Sub(got.WindowStart) != decade {
		f.Errorf("a window from %s to %s", got.WindowStart, got.ResetAt)
	} else if k.Lines[0].ChargedIn != got.WindowStart.UnixMilli() || k.Lines[0].Charged != 1 {
		f.Errorf("charged by %+v in the window from %s", k.Lines[0], got.WindowStart)
	}
	if got := results[1]; !got.ResetAt.IsZero() || !got.WindowStart.IsZero() {
		f.Errorf("no window, but one from %s to %s", got.WindowStart, got.ResetAt)
	}
	if r := (store.Result{Limit: 10, Used: 7, Held: 5}); r.Remaining() != 0 {
		f.Errorf("%d remain of a limit that is passed", r.Remaining())
	}
}

func testInFlight(f *fixture) {
	e, r := f.consumer("app"), f.none("calls")
	take := hold(r, 3, 1)
	a, _ := f.admit(e, take)
	f.admit(e, take)
	f.admit(e, take)
	if got := f.refuse(e, take)[0]; got.Used != 0 || got.Held != 3 || got.RetryAfter != time.Second {
		f.Errorf("got %+v", got)
	}
	f.store.Settle(a, []int64{1}) // kept nowhere: only what is held counts
	f.expect(e, r, 0, 2)
	f.admit(e, take)
	f.refuse(e, take)
	f.adjust(e, r, 5)
	f.expect(e, r, 0, 3)
}
