package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func testRolling(f *fixture) {
	const length = 100 * time.Second
	e, r := f.consumer("app"), f.rolling("tokens", length)
	start := f.clock.now().Truncate(length).Add(length)
	f.clock.set(start.Add(90 * time.Second))
	_, results := f.admit(e, charge(r, 100, 100))
	if got := results[0]; !got.WindowStart.Equal(f.clock.now().Add(-length)) {
		f.Errorf("the window starts at %s, want one window before %s", got.WindowStart, f.clock.now())
	}
	for _, tt := range []struct {
		at   time.Duration
		want int64
	}{
		{90 * time.Second, 100},
		{100 * time.Second, 100},
		{100*time.Second + time.Millisecond, 99}, // 99.999
		{101 * time.Second, 99},
		{150 * time.Second, 50},
		{199 * time.Second, 1},
		{199*time.Second + time.Millisecond, 0},
		{200 * time.Second, 0},
		{1000 * time.Second, 0},
	} {
		f.clock.set(start.Add(tt.at))
		if got := look(f, f.store, e, r)[0]; got.Used != tt.want {
			f.Errorf("at %s: used %d, want %d", tt.at, got.Used, tt.want)
		}
	}

	// Of both windows, and of a grant.
	start = start.Add(2000 * time.Second)
	f.clock.set(start)
	f.adjust(e, r, 100)
	f.clock.set(start.Add(125 * time.Second))
	f.adjust(e, r, 30)
	f.expect(e, r, 75+30, 0)
	f.adjust(e, r, -130)
	f.expect(e, r, 75-100, 0)
	f.clock.set(start.Add(250 * time.Second))
	f.expect(e, r, -50, 0)
	f.clock.set(start.Add(300 * time.Second))
	f.expect(e, r, 0, 0)
}

func testBucket(f *fixture) {
	e, r := f.consumer("app"), f.bucket("requests", time.Minute, 60)
	start := f.clock.now()
	_, results := f.admit(e, charge(r, 10, 10))
	if got := results[0]; !got.ResetAt.Equal(start.Add(10*time.Second)) || !got.WindowStart.Equal(start.Add(-time.Minute)) {
		f.Errorf("full again at %s, window from %s", got.ResetAt, got.WindowStart)
	}
	if got := f.refuse(e, charge(r, 10, 1))[0]; got.RetryAfter != time.Second {
		f.Errorf("retry after %s", got.RetryAfter)
	}
	f.clock.step(999 * time.Millisecond)
	if got := f.refuse(e, charge(r, 10, 1))[0]; got.RetryAfter != time.Millisecond {
		f.Errorf("retry after %s", got.RetryAfter)
	}
	f.clock.step(time.Millisecond)
	f.admit(e, charge(r, 10, 1))
	// Looking on does not cost what has come back in part.
	for range 10 {
		f.clock.step(350 * time.Millisecond)
		look(f, f.store, e, r)
	}
	f.expect(e, r, 7, 0)
	f.clock.step(time.Hour) // and no more than full
	f.expect(e, r, 0, 0)
	f.admit(e, charge(r, 10, 10))
	f.refuse(e, charge(r, 10, 1))
	// A larger bucket has room at once.
	f.admit(e, charge(r, 15, 5))
}

func testBucketDebt(f *fixture) {
	e, r := f.consumer("app"), f.bucket("tokens", time.Minute, 600)
	k, _ := f.admit(e, hold(r, 100, 50))
	f.store.Settle(k, []int64{300})
	f.expect(e, r, 300, 0)
	if got := f.refuse(e, hold(r, 100, 1))[0]; got.RetryAfter != 20*time.Second+100*time.Millisecond {
		f.Errorf("retry after %s", got.RetryAfter)
	}
	f.clock.step(20 * time.Second)
	f.refuse(e, hold(r, 100, 1))
	f.clock.step(100 * time.Millisecond)
	f.admit(e, charge(r, 100, 1))
	f.clock.step(time.Minute)
	f.adjust(e, r, -200)
	f.expect(e, r, -200, 0)
	f.clock.step(5 * time.Second)
	f.expect(e, r, -150, 0)
	f.clock.step(15 * time.Second)
	f.expect(e, r, 0, 0)
}

func testLapse(f *fixture) {
	const short, long = 10 * time.Second, 20 * time.Second
	e, r, calls := f.consumer("app"), f.fixed("tokens", decade), f.none("calls")
	leases := []time.Duration{long, short, long, short, 15 * time.Second}
	for i, d := range leases {
		k, _ := reserve(f, f.store, store.Reservation{Entity: e, Lease: d, Takes: []store.Take{hold(r, 1000, int64(10+i)), hold(calls, 9, 1)}})
		if end := time.UnixMilli(k.Deadline); !end.Equal(f.clock.now().Add(d)) {
			f.Errorf("a lease of %s ends in %s", d, end.Sub(f.clock.now()))
		}
	}
	for _, tt := range []struct{ step, held, calls int64 }{
		{9_999, 60, 5}, {1, 36, 3}, {4_999, 36, 3}, {1, 22, 2}, {4_999, 22, 2}, {1, 0, 0}, {1, 0, 0},
	} {
		f.clock.step(time.Duration(tt.step) * time.Millisecond)
		f.expect(e, r, 0, tt.held)
		f.expect(e, calls, 0, tt.calls)
	}
}

func testLapsedSettle(f *fixture) {
	const d = 10 * time.Second
	r, requests := f.fixed("tokens", decade), f.fixed("requests", time.Minute)
	for _, after := range []time.Duration{d, d + time.Second, time.Hour} {
		e := f.consumer(fmt.Sprint("app ", after))
		f.clock.set(f.clock.now().Truncate(time.Minute))
		late, _ := reserve(f, f.store, store.Reservation{Entity: e, Lease: d, Takes: []store.Take{hold(r, 100, 40), charge(requests, 10, 1)}})
		f.clock.step(after)
		other, _ := f.admit(e, hold(r, 100, 100)) // there is room: the first holds nothing now
		f.store.Settle(late, []int64{30, 1})
		f.expect(e, r, 30, 100)
		f.store.Settle(late, []int64{30, 1})
		f.renew(d, late)
		f.expect(e, r, 30, 100)
		f.store.Settle(other, []int64{5})
		f.expect(e, r, 35, 0)
	}
}

func testRenew(f *fixture) {
	const d = 10 * time.Second
	e, r := f.consumer("app"), f.fixed("tokens", decade)
	k, _ := reserve(f, f.store, store.Reservation{Entity: e, Lease: d, Takes: []store.Take{hold(r, 100, 40)}})
	left, _ := reserve(f, f.store, store.Reservation{Entity: e, Lease: d, Takes: []store.Take{hold(r, 100, 5)}})
	for range 5 {
		f.clock.step(d - time.Millisecond)
		f.renew(d, k)
		if end := time.UnixMilli(k.Deadline); !end.Equal(f.clock.now().Add(d)) {
			f.Errorf("renewed for %s", end.Sub(f.clock.now()))
		}
	}
	f.expect(e, r, 0, 40)
	f.clock.step(d)
	f.expect(e, r, 0, 0)
	f.store.Settle(k, []int64{1})
	f.store.Settle(left, []int64{1})
	f.expect(e, r, 2, 0)
}

func testRenewLapsed(f *fixture) {
	const d = 10 * time.Second
	e, r := f.consumer("app"), f.fixed("tokens", time.Minute)
	for _, after := range []time.Duration{d, 24 * time.Hour} {
		k, _ := reserve(f, f.store, store.Reservation{Entity: e, Lease: d, Takes: []store.Take{hold(r, 100, 40)}})
		f.clock.step(after)
		f.expect(e, r, 0, 0)
		f.renew(d, k)
		f.expect(e, r, 0, 40)
		f.clock.step(d - time.Millisecond)
		f.expect(e, r, 0, 40)
		f.store.Settle(k, []int64{0})
		f.expect(e, r, 0, 0)
	}
}

// testRetryAfter holds every kind of window to its word: a millisecond early
// there is no room, on time there is.
func testRetryAfter(f *fixture) {
	rapid.Check(f, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(1000, 100_000).Draw(t, "length")) * time.Millisecond
		most := rapid.SampledFrom([]int64{5, 1000, 1_000_000, 1_000_000_000_000_000_000}).Draw(t, "most")
		amounts := rapid.Int64Range(1, most)
		var r *store.Rule
		switch rapid.SampledFrom([]string{"fixed", "rolling", "bucket"}).Draw(t, "window") {
		case "fixed":
			r = f.fixed("r", length)
		case "rolling":
			r = f.rolling("r", length)
		case "bucket":
			// Not so slow that waits are longer than a duration can say.
			r = f.bucket("r", length, rapid.Int64Range(1+most/1000, most).Draw(t, "refill"))
		}
		e := f.consumer(unique("app"))
		for range rapid.IntRange(1, 4).Draw(t, "charges") {
			f.adjust(e, r, amounts.Draw(t, "charge"))
			f.clock.step(time.Duration(rapid.Int64Range(0, length.Milliseconds()).Draw(t, "step")) * time.Millisecond)
		}
		limit := amounts.Draw(t, "limit")
		take := store.Take{Rule: r, Limit: limit, Need: rapid.Int64Range(1, limit).Draw(t, "need")}
		k, results := reserve(t, f.store, store.Reservation{Entity: e, Takes: []store.Take{take}, Lease: lease})
		if k != nil {
			return
		}
		wait := results[0].RetryAfter
		if wait%time.Millisecond != 0 {
			t.Fatalf("retry after %s", wait)
		}
		if results[0].ResetAt.Before(f.clock.now().Add(wait)) {
			t.Fatalf("retry after %s, but reset at %s, now %s", wait, results[0].ResetAt, f.clock.now())
		}
		f.clock.step(wait - time.Millisecond)
		if k, results := reserve(t, f.store, store.Reservation{Entity: e, Takes: []store.Take{take}, Lease: lease}); k != nil {
			t.Fatalf("admitted a millisecond before %s: %+v", wait, results)
		}
		f.clock.step(time.Millisecond)
		if k, results := reserve(t, f.store, store.Reservation{Entity: e, Takes: []store.Take{take}, Lease: lease}); k == nil {
			t.Fatalf("refused after %s: %+v", wait, results)
		}
	})

	// Where only holds stand in the way nobody can tell.
	for _, r := range []*store.Rule{f.fixed("fixed", time.Hour), f.rolling("rolling", time.Hour), f.bucket("bucket", time.Hour, 1)} {
		e := f.consumer("held")
		f.adjust(e, r, 50)
		f.admit(e, hold(r, 100, 50))
		if got := f.refuse(e, hold(r, 100, 50))[0].RetryAfter; got != time.Second {
			f.Errorf("%s: retry after %s", r.ID, got)
		}
	}
}

func testNeverFits(f *fixture) {
	f.clock.set(f.clock.now().Truncate(time.Hour).Add(10 * time.Minute))
	for _, tt := range []struct {
		rule        *store.Rule
		empty, used time.Duration // wait with nothing and with 30 used
	}{
		{f.fixed("fixed", time.Hour), 50 * time.Minute, 50 * time.Minute},
		{f.rolling("rolling", time.Hour), time.Second, 110*time.Minute - 2*time.Minute + time.Millisecond},
		{f.bucket("bucket", time.Hour, 60), time.Second, 30 * time.Minute},
		{f.none("none"), time.Second, time.Second},
	} {
		e := f.consumer("app")
		take := store.Take{Rule: tt.rule, Limit: 100, Need: 101}
		if got := f.refuse(e, take)[0].RetryAfter; got != tt.empty {
			f.Errorf("%s, nothing used: retry after %s, want %s", tt.rule.ID, got, tt.empty)
		}
		f.adjust(e, tt.rule, 30)
		got := f.refuse(e, take)[0]
		if got.RetryAfter != tt.used {
			f.Errorf("%s: retry after %s, want %s", tt.rule.ID, got.RetryAfter, tt.used)
		}
		if tt.rule.Window.Kind() != store.KindNone && !got.ResetAt.Equal(f.clock.now().Add(tt.used)) {
			f.Errorf("%s: retry after %s, reset at %s", tt.rule.ID, got.RetryAfter, got.ResetAt)
		}
	}
}
