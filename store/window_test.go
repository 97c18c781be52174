package store

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"
)

// zones are those with the strangest clocks, and some of the usual.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles",
	"America/Havana", "America/Santiago", "America/Sao_Paulo", "America/Asuncion", "America/St_Johns",
	"America/Caracas", "America/Scoresbysund", "America/Juneau", "Africa/Cairo", "Africa/Casablanca",
	"Africa/Monrovia", "Asia/Beirut", "Asia/Gaza", "Asia/Tehran", "Asia/Kathmandu", "Asia/Kolkata",
	"Asia/Pyongyang", "Asia/Manila", "Asia/Amman", "Australia/Lord_Howe", "Australia/Eucla",
	"Australia/Adelaide", "Antarctica/Troll", "Atlantic/Azores", "Pacific/Apia", "Pacific/Chatham",
	"Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Tongatapu", "Pacific/Norfolk",
}

func location(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func calendar(t testing.TB, unit, zone string) *Window {
	t.Helper()
	w, err := Calendar(unit, location(t, zone))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func instant(t testing.TB, s string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMilli()
}

func TestCalendarFollowsTheWallClock(t *testing.T) {
	for _, tt := range []struct {
		name, unit, zone, now, start, end string
	}{
		{"plain minute", "minute", "UTC", "2026-05-06T07:08:09Z", "2026-05-06T07:08:00Z", "2026-05-06T07:09:00Z"},
		{"plain hour", "hour", "UTC", "2026-05-06T07:08:09Z", "2026-05-06T07:00:00Z", "2026-05-06T08:00:00Z"},
		{"plain day", "day", "UTC", "2026-05-06T07:08:09Z", "2026-05-06T00:00:00Z", "2026-05-07T00:00:00Z"},
		{"week from Monday", "week", "UTC", "2026-05-06T07:08:09Z", "2026-05-04T00:00:00Z", "2026-05-11T00:00:00Z"},
		{"Sunday is the week's last day", "week", "UTC", "2026-05-10T23:59:59Z", "2026-05-04T00:00:00Z", "2026-05-11T00:00:00Z"},
		{"Monday is its first", "week", "UTC", "2026-05-11T00:00:00Z", "2026-05-11T00:00:00Z", "2026-05-18T00:00:00Z"},
		{"month of 31 days, from its last", "month", "UTC", "2026-01-31T12:00:00Z", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"February of a leap year", "month", "UTC", "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"month over a new year", "month", "Europe/Berlin", "2025-12-31T23:30:00Z", "2025-12-31T23:00:00Z", "2026-01-31T23:00:00Z"},
		{"before the epoch", "day", "UTC", "1969-12-31T23:00:00Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"},

		{"day of 23 hours", "day", "Europe/Berlin", "2026-03-29T10:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		{"day of 25 hours", "day", "Europe/Berlin", "2026-10-25T10:00:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		{"month with both offsets", "month", "Europe/Berlin", "2026-03-15T10:00:00+01:00", "2026-03-01T00:00:00+01:00", "2026-04-01T00:00:00+02:00"},

		{"no midnight in Havana", "day", "America/Havana", "2024-03-10T01:00:00-04:00", "2024-03-10T01:00:00-04:00", "2024-03-11T00:00:00-04:00"},
		{"the day before no midnight in Havana", "day", "America/Havana", "2024-03-09T23:59:59-05:00", "2024-03-09T00:00:00-05:00", "2024-03-10T01:00:00-04:00"},
		{"no midnight in Santiago", "day", "America/Santiago", "2024-09-08T01:30:00-03:00", "2024-09-08T01:00:00-03:00", "2024-09-09T00:00:00-03:00"},
		{"no midnight in Sao Paulo", "day", "America/Sao_Paulo", "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		{"no midnight in Cairo", "day", "Africa/Cairo", "2024-04-26T12:00:00+03:00", "2024-04-26T01:00:00+03:00", "2024-04-27T00:00:00+03:00"},
		{"no midnight in Beirut", "day", "Asia/Beirut", "2024-03-31T12:00:00+03:00", "2024-03-31T01:00:00+03:00", "2024-04-01T00:00:00+03:00"},
		{"midnight twice in Havana", "day", "America/Havana", "2024-11-03T00:30:00-05:00", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00"},
		{"put back past midnight in St. John's", "day", "America/St_Johns", "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"},

		{"Apia's last day before the one it skipped", "day", "Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		{"Apia's first day after the one it skipped", "day", "Pacific/Apia", "2011-12-31T12:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		{"Apia's week of six days", "week", "Pacific/Apia", "2011-12-31T12:00:00+14:00", "2011-12-26T00:00:00-10:00", "2012-01-02T00:00:00+14:00"},
		{"a month whose first day was skipped", "month", "Pacific/Kiritimati", "1995-01-20T00:00:00+14:00", "1995-01-01T00:00:00+14:00", "1995-02-01T00:00:00+14:00"},

		{"the hour before the repeated one", "hour", "America/New_York", "2026-11-01T01:30:00-04:00", "2026-11-01T01:00:00-04:00", "2026-11-01T02:00:00-04:00"},
		{"the repeated hour", "hour", "America/New_York", "2026-11-01T01:30:00-05:00", "2026-11-01T01:00:00-05:00", "2026-11-01T02:00:00-05:00"},
		{"half an hour ahead", "hour", "Asia/Kolkata", "2026-05-06T07:08:09+05:30", "2026-05-06T07:00:00+05:30", "2026-05-06T08:00:00+05:30"},
		{"three quarters ahead", "hour", "Asia/Kathmandu", "2026-05-06T07:50:00+05:45", "2026-05-06T07:00:00+05:45", "2026-05-06T08:00:00+05:45"},
		{"repeated hour with three quarters", "hour", "Pacific/Chatham", "2026-04-05T03:15:00+12:45", "2026-04-05T03:00:00+12:45", "2026-04-05T04:00:00+12:45"},
		{"hour cut by a repeat with three quarters", "hour", "Pacific/Chatham", "2026-04-05T02:50:00+12:45", "2026-04-05T02:45:00+12:45", "2026-04-05T03:00:00+12:45"},
		{"Lord Howe put back by half an hour", "hour", "Australia/Lord_Howe", "2026-04-05T01:45:00+10:30", "2026-04-05T01:30:00+10:30", "2026-04-05T02:00:00+10:30"},
		{"Lord Howe put forward by half an hour", "hour", "Australia/Lord_Howe", "2026-10-04T02:45:00+11:00", "2026-10-04T02:30:00+11:00", "2026-10-04T03:00:00+11:00"},
		{"Lord Howe's day", "day", "Australia/Lord_Howe", "2026-04-05T12:00:00+10:30", "2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30"},
		{"Caracas put forward within an hour", "hour", "America/Caracas", "2016-05-01T02:10:00-04:30", "2016-05-01T02:00:00-04:30", "2016-05-01T02:30:00-04:30"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := calendar(t, tt.unit, tt.zone)
			start, end := w.Span(instant(t, tt.now))
			if start != instant(t, tt.start) || end != instant(t, tt.end) {
				t.Errorf("got %s to %s, want %s to %s",
					time.UnixMilli(start).In(w.loc), time.UnixMilli(end).In(w.loc), tt.start, tt.end)
			}
		})
	}
}

// drawInstant returns an instant from 1880 to 2100, mostly near a change of
// clocks of the zone.
func drawInstant(t *rapid.T, loc *time.Location) int64 {
	at := rapid.Int64Range(-2_840_140_800_000, 4_102_444_800_000).Draw(t, "at")
	if !rapid.Bool().Draw(t, "near a change") {
		return at
	}
	if _, to := time.UnixMilli(at).In(loc).ZoneBounds(); !to.IsZero() {
		at = to.UnixMilli() + rapid.Int64Range(-90_000_000, 90_000_000).Draw(t, "off by")
	}
	return at
}

func TestWindowsTileTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		length := time.Duration(rapid.Int64Range(1000, maxLength.Milliseconds()).Draw(t, "length")) * time.Millisecond
		var w *Window
		switch kind := rapid.SampledFrom([]string{"minute", "hour", "day", "week", "month", "fixed", "rolling"}).Draw(t, "window"); kind {
		case "fixed":
			w, err = Fixed(length)
		case "rolling":
			w, err = Rolling(length)
		default:
			w, err = Calendar(kind, loc)
		}
		if err != nil {
			t.Fatal(err)
		}

		now := drawInstant(t, loc)
		start, end := w.Span(now)
		if now < start || end <= now {
			t.Fatalf("%d is not in its window from %d to %d", now, start, end)
		}
		for _, at := range []int64{start, end - 1, rapid.Int64Range(start, end-1).Draw(t, "within")} {
			if s, e := w.Span(at); s != start || e != end {
				t.Fatalf("at %d the window is %d to %d, at %d it is %d to %d", now, start, end, at, s, e)
			}
		}
		before, joint := w.Span(start - 1)
		if joint != start {
			t.Fatalf("the window before ends at %d, this starts at %d", joint, start)
		}
		joint, after := w.Span(end)
		if joint != end {
			t.Fatalf("this window ends at %d, the next starts at %d", end, joint)
		}
		if p, s, e, n := w.Edges(now); p != before || s != start || e != end || n != after {
			t.Fatalf("got edges %d %d %d %d, want %d %d %d %d", p, s, e, n, before, start, end, after)
		}
	})
}

func TestHoursAreOneHourOfTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		w, err := Calendar("hour", loc)
		if err != nil {
			t.Fatal(err)
		}
		now := drawInstant(t, loc)
		start, end := w.Span(now)
		if end-start > 3_600_000 {
			t.Fatalf("the hour lasts %d ms", end-start)
		}
		hour := time.UnixMilli(now).In(loc).Hour()
		for _, at := range []int64{start, end - 1} {
			if h := time.UnixMilli(at).In(loc).Hour(); h != hour {
				t.Fatalf("the clock shows %d h at %d, %d h at %d of the same window", hour, now, h, at)
			}
		}
	})
}

// A day starts when its date is shown for the first time: no instant before has
// that date or a later one.
func TestDaysStartWhereTheirDateDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		w, err := Calendar("day", loc)
		if err != nil {
			t.Fatal(err)
		}
		date := func(ms int64) string { return time.UnixMilli(ms).In(loc).Format(time.DateOnly) }
		start, _ := w.Span(drawInstant(t, loc))
		for at := start - 26*3_600_000; at < start; at += 60_000 {
			if date(at) >= date(start) {
				t.Fatalf("%s is shown at %d already, before its start at %d", date(at), at, start)
			}
		}
	})
}

func TestSpanIsRightForClocksThatGoBack(t *testing.T) {
	w := calendar(t, "day", "Europe/Berlin")
	late, early := instant(t, "2026-03-29T12:00:00Z"), instant(t, "2026-03-28T12:00:00Z")
	s1, e1 := w.Span(late)
	s2, e2 := w.Span(early)
	if e2 != s1 || s2 >= s1 {
		t.Errorf("got %d to %d, then %d to %d", s1, e1, s2, e2)
	}
	if s, e := w.Span(late); s != s1 || e != e1 {
		t.Errorf("got %d to %d for the same instant, want %d to %d", s, e, s1, e1)
	}
}

func TestSpanIsSafeForManyGoroutines(t *testing.T) {
	w := calendar(t, "hour", "America/St_Johns")
	base := instant(t, "2026-05-06T00:00:00Z")
	var wg sync.WaitGroup
	for g := range int64(8) {
		wg.Go(func() {
			for i := range int64(500) {
				now := base + (g*i%7)*1_800_000
				if start, end := w.Span(now); now < start || end <= now {
					t.Errorf("%d is not in its window from %d to %d", now, start, end)
				}
			}
		})
	}
	wg.Wait()
}

func TestWindowsWithoutEdges(t *testing.T) {
	bucket, err := Bucket(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*Window{bucket, None()} {
		if start, end := w.Span(12345); start != 0 || end != math.MaxInt64 {
			t.Errorf("%s: got %d to %d", w, start, end)
		}
		if p, s, e, n := w.Edges(12345); p != 0 || s != 0 || e != math.MaxInt64 || n != math.MaxInt64 {
			t.Errorf("%s: got edges %d %d %d %d", w, p, s, e, n)
		}
	}
}

func TestFixedWindowsCountFromTheEpoch(t *testing.T) {
	w, err := Fixed(7 * 24 * time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// The epoch was a Thursday.
	start, end := w.Span(instant(t, "2026-05-06T07:08:09Z"))
	if start != instant(t, "2026-04-30T00:00:00Z") || end != instant(t, "2026-05-07T00:00:00Z") {
		t.Errorf("got %s to %s", time.UnixMilli(start).UTC(), time.UnixMilli(end).UTC())
	}
	if start, end := w.Span(-1); start != -604_800_000 || end != 0 {
		t.Errorf("before the epoch: got %d to %d", start, end)
	}
}

func TestWindowsDescribeThemselves(t *testing.T) {
	fixed, _ := Fixed(90 * time.Second)
	rolling, _ := Rolling(time.Hour)
	bucket, _ := Bucket(time.Minute)
	for _, tt := range []struct {
		w      *Window
		kind   Kind
		length time.Duration
		name   string
	}{
		{fixed, KindFixed, 90 * time.Second, "1m30s"},
		{rolling, KindRolling, time.Hour, "rolling 1h0m0s"},
		{bucket, KindBucket, time.Minute, "bucket 1m0s"},
		{None(), KindNone, 0, "none"},
		{calendar(t, "minute", "UTC"), KindCalendar, time.Minute, "minute"},
		{calendar(t, "month", "UTC"), KindCalendar, 31 * 24 * time.Hour, "month"},
	} {
		if tt.w.Kind() != tt.kind || tt.w.Length() != tt.length || tt.w.String() != tt.name {
			t.Errorf("got %d, %s, %q, want %d, %s, %q", tt.w.Kind(), tt.w.Length(), tt.w, tt.kind, tt.length, tt.name)
		}
	}
}

func TestWindowsThatCannotBe(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func() (*Window, error)
		want string
	}{
		{"unknown unit", func() (*Window, error) { return Calendar("fortnight", nil) }, `calendar window "fortnight" must be minute, hour, day, week or month`},
		{"plural unit", func() (*Window, error) { return Calendar("days", time.UTC) }, `calendar window "days" must be minute, hour, day, week or month`},
		{"zero", func() (*Window, error) { return Fixed(0) }, `window "0s" must be at least 1s`},
		{"negative", func() (*Window, error) { return Rolling(-time.Hour) }, `window "-1h0m0s" must be at least 1s`},
		{"under a second", func() (*Window, error) { return Bucket(999 * time.Millisecond) }, `window "999ms" must be at least 1s`},
		{"parts of milliseconds", func() (*Window, error) { return Fixed(time.Second + time.Microsecond) }, `window "1.000001s" must be whole milliseconds`},
		{"over ten years", func() (*Window, error) { return Fixed(maxLength + time.Second) }, `window "87840h0m1s" must be at most 3660 days`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := tt.make()
			if w != nil || err == nil || err.Error() != tt.want {
				t.Errorf("got %v, %v, want %q", w, err, tt.want)
			}
		})
	}
}

func TestNilLocationIsUTC(t *testing.T) {
	w, err := Calendar("day", nil)
	if err != nil {
		t.Fatal(err)
	}
	if start, _ := w.Span(instant(t, "2026-05-06T07:08:09Z")); start != instant(t, "2026-05-06T00:00:00Z") {
		t.Errorf("got %s", time.UnixMilli(start))
	}
}

func BenchmarkSpan(b *testing.B) {
	w := calendar(b, "month", "Europe/Berlin")
	now := instant(b, "2026-05-06T07:08:09Z")
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			w.Span(now)
		}
	})
	b.Run("computed", func(b *testing.B) {
		for b.Loop() {
			w.calendarSpan(now)
		}
	})
}

func TestWindowsAreMadeAgainOfWhatTheySay(t *testing.T) {
	must := func(w *Window, err error) *Window {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []*Window{
		None(), must(Calendar("week", berlin)), must(Calendar("month", nil)),
		must(Fixed(90 * time.Second)), must(Rolling(time.Hour)), must(Bucket(maxLength)),
	} {
		again, err := WindowOf(w.Kind(), w.String(), w.Location().String(), w.Length().Milliseconds())
		if err != nil {
			t.Errorf("%s: %v", w, err)
			continue
		}
		if again.Kind() != w.Kind() || again.String() != w.String() || again.Length() != w.Length() || again.Location().String() != w.Location().String() {
			t.Errorf("%s in %s came back as %s in %s", w, w.Location(), again, again.Location())
		}
	}
	for _, tc := range []struct {
		kind       Kind
		unit, zone string
		length     int64
		want       string
	}{
		{KindBucket + 1, "", "", 1000, "of no kind"},
		{KindCalendar, "year", "UTC", 0, `calendar window "year"`},
		{KindCalendar, "day", "Mars/Olympus", 0, `time zone "Mars/Olympus"`},
		{KindFixed, "", "", 0, "at least"},
		{KindRolling, "", "", -1, "cannot be"},
		{KindBucket, "", "", math.MaxInt64, "cannot be"},
	} {
		if w, err := WindowOf(tc.kind, tc.unit, tc.zone, tc.length); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, %v", tc, w, err)
		}
	}
}
