package storetest

import (
	"time"
	_ "time/tzdata" // zones, wherever the tests run

	"github.com/llmlimits/caddy-llm-limits/store"
)

func testFixedWindows(f *fixture) {
	e := f.consumer("app")
	minutely, hourly, daily := f.fixed("minute", time.Minute), f.fixed("hour", time.Hour), f.fixed("day", 24*time.Hour)
	twin := f.fixed("minute too", time.Minute)
	f.clock.set(f.clock.now().Truncate(24 * time.Hour).Add(25 * time.Second))

	_, results := f.admit(e, charge(minutely, 10, 10), charge(hourly, 20, 10), charge(daily, 30, 10), charge(twin, 10, 10))
	for i, length := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour, time.Minute} {
		start := f.clock.now().Truncate(length)
		if got := results[i]; !got.WindowStart.Equal(start) || !got.ResetAt.Equal(start.Add(length)) {
			f.Errorf("%s: from %s to %s, want it from %s", length, got.WindowStart, got.ResetAt, start)
		}
	}

	f.clock.step(35*time.Second - time.Millisecond) // the last of the minute
	if got := f.refuse(e, charge(minutely, 10, 1))[0]; got.RetryAfter != time.Millisecond {
		f.Errorf("retry after %s", got.RetryAfter)
	}
	f.expect(e, twin, 10, 0)
	f.clock.step(time.Millisecond)
	f.expect(e, minutely, 0, 0)
	f.expect(e, twin, 0, 0)
	f.expect(e, hourly, 10, 0)
	f.admit(e, charge(minutely, 10, 10), charge(hourly, 20, 10), charge(daily, 30, 10))
	f.refuse(e, charge(hourly, 20, 1))
	f.clock.step(59 * time.Minute)
	f.admit(e, charge(minutely, 10, 10), charge(hourly, 20, 10), charge(daily, 30, 10))
	f.clock.step(time.Hour)
	if got := f.refuse(e, charge(minutely, 10, 10), charge(daily, 30, 10)); got[0].Exceeded || got[1].RetryAfter != 22*time.Hour {
		f.Errorf("got %+v", got)
	}
	f.clock.step(22 * time.Hour)
	f.expect(e, daily, 0, 0)
	f.clock.step(1000 * 24 * time.Hour)
	f.expect(e, daily, 0, 0)
	f.admit(e, charge(daily, 30, 30))
}

func testSteadyTraffic(f *fixture) {
	e, r := f.consumer("app"), f.fixed("requests", time.Minute)
	f.clock.set(f.clock.now().Truncate(time.Minute))
	for minute := range 4 {
		for second := range 60 {
			k, _ := f.reserve(e, charge(r, 20, 1))
			if admitted := k != nil; admitted != (second < 20) {
				f.Fatalf("minute %d, second %d: admitted is %t", minute, second, admitted)
			}
			f.clock.step(time.Second)
		}
	}
}

func testCalendarWindows(f *fixture) {
	e := f.consumer("app")
	for _, tt := range []struct {
		unit, zone, now, start, end string
	}{
		{"day", "America/Havana", "2024-03-09T23:59:59-05:00", "2024-03-09T00:00:00-05:00", "2024-03-10T01:00:00-04:00"},
		{"day", "Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"hour", "Australia/Lord_Howe", "2026-04-05T01:45:00+10:30", "2026-04-05T01:30:00+10:30", "2026-04-05T02:00:00+10:30"},
		{"month", "Europe/Berlin", "2026-10-31T12:00:00+01:00", "2026-10-01T00:00:00+02:00", "2026-11-01T00:00:00+01:00"},
		{"minute", "UTC", "2026-11-01T12:00:05Z", "2026-11-01T12:00:00Z", "2026-11-01T12:01:00Z"},
		{"week", "Asia/Kolkata", "2026-11-22T23:00:00+05:30", "2026-11-16T00:00:00+05:30", "2026-11-23T00:00:00+05:30"},
	} {
		loc, err := time.LoadLocation(tt.zone)
		if err != nil {
			f.Fatalf("loading zone: %v", err)
		}
		r := &store.Rule{ID: tt.unit + " in " + tt.zone, Window: must(store.Calendar(tt.unit, loc))}
		now, start, end := instant(tt.now), instant(tt.start), instant(tt.end)
		e := f.consumer(e.Consumer + tt.zone)
		f.clock.set(now)
		_, results := f.admit(e, charge(r, 10, 10))
		if got := results[0]; !got.WindowStart.Equal(start) || !got.ResetAt.Equal(end) {
			f.Errorf("%s: from %s to %s, want %s to %s", r.ID, got.WindowStart, got.ResetAt, start, end)
		}
		if got := f.refuse(e, charge(r, 10, 1))[0]; got.RetryAfter != end.Sub(now) {
			f.Errorf("%s: retry after %s, want %s", r.ID, got.RetryAfter, end.Sub(now))
		}
		f.clock.set(end.Add(-time.Millisecond))
		f.expect(e, r, 10, 0)
		f.clock.set(end)
		f.expect(e, r, 0, 0)
	}
}

func instant(s string) time.Time {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return at
}

func testHoldAcrossEdge(f *fixture) {
	for _, r := range []*store.Rule{f.fixed("fixed", time.Minute), f.rolling("rolling", time.Minute)} {
		e := f.consumer("app")
		f.clock.set(f.clock.now().Truncate(time.Minute).Add(50 * time.Second))
		k, _ := f.admit(e, hold(r, 100, 60))
		for range 3 {
			f.clock.step(time.Minute)
			f.expect(e, r, 0, 60)
			f.refuse(e, hold(r, 100, 41))
		}
		// The charge belongs to the window in which the call ends.
		f.store.Settle(k, []int64{80})
		f.expect(e, r, 80, 0)
		f.clock.step(2 * time.Minute)
		f.expect(e, r, 0, 0)
	}
}

func testGiveBackWindow(f *fixture) {
	const length = time.Minute
	for _, tt := range []struct {
		name  string
		rule  *store.Rule
		after time.Duration // from the start of the window that was charged
		want  int64         // of 40 used otherwise, and 10 to be given back
	}{
		{"fixed, same window", f.fixed("r", length), length - time.Millisecond, 40},
		{"fixed, next window", f.fixed("r", length), length, 0},
		{"rolling, same window", f.rolling("r", length), length - time.Millisecond, 40},
		{"rolling, next window", f.rolling("r", length), length, 40},
		{"rolling, late in the next", f.rolling("r", length), length * 7 / 4, 10},
		{"rolling, two windows on", f.rolling("r", length), 2 * length, 0},
		{"bucket, not refilled yet", f.bucket("r", length, 60), time.Second, 39},
		{"bucket, almost full again", f.bucket("r", length, 60), 47 * time.Second, 0},
		{"bucket, full again", f.bucket("r", length, 60), 3 * length, 0},
	} {
		e := f.consumer(tt.name)
		f.clock.set(f.clock.now().Truncate(length).Add(2 * length))
		start := f.clock.now()
		k, _ := f.admit(e, charge(tt.rule, 100, 10))
		f.adjust(e, tt.rule, 40)
		f.clock.set(start.Add(tt.after))
		f.store.Settle(k, nil)
		if got := look(f, f.store, e, tt.rule)[0].Used; got != tt.want {
			f.Errorf("%s: used %d, want %d", tt.name, got, tt.want)
		}
	}

	// What a call charged too little is charged where it ends.
	e, r := f.consumer("more"), f.fixed("r", length)
	k, _ := f.admit(e, charge(r, 100, 10))
	f.clock.step(length)
	f.store.Settle(k, []int64{25})
	f.expect(e, r, 15, 0)
}

func testStepBack(f *fixture) {
	day := &store.Rule{ID: "day", Window: must(store.Calendar("day", time.UTC))}
	for _, r := range []*store.Rule{f.fixed("fixed", time.Hour), f.rolling("rolling", time.Hour), day} {
		e := f.consumer("app")
		f.clock.set(f.clock.now().Truncate(24 * time.Hour).Add(48*time.Hour - time.Minute))
		f.admit(e, charge(r, 100, 50))
		f.clock.step(2 * time.Minute)
		f.admit(e, charge(r, 1000, 30))
		want := look(f, f.store, e, r)[0]
		f.clock.step(-3 * time.Minute)
		k, results := f.admit(e, hold(r, 1000, 5))
		if got := results[0]; got.Used < want.Used || r.Window.Kind() != store.KindRolling && got.Used != 30 {
			f.Errorf("%s: used %d before, %d after a step back", r.ID, want.Used, got.Used)
		}
		if r.Window.Kind() != store.KindRolling && !results[0].WindowStart.Equal(want.WindowStart) {
			f.Errorf("%s: the window went back from %s to %s", r.ID, want.WindowStart, results[0].WindowStart)
		}
		f.store.Settle(k, []int64{7})
		f.clock.step(3 * time.Minute)
		if got := look(f, f.store, e, r)[0]; got.Used != want.Used+7 {
			f.Errorf("%s: used %d, want %d", r.ID, got.Used, want.Used+7)
		}
	}
}
