package store

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// walked are years of zones in which something happens that a formula gets wrong.
var walked = []struct {
	zone string
	year int
}{
	{"UTC", 2024},
	{"Europe/Berlin", 2040},       // a leap year after the last that is listed
	{"Australia/Adelaide", 2040},  // the same in summer
	{"Europe/Berlin", 2026},       // days of 23 and 25 hours, an ISO week 53
	{"America/New_York", 2026},    // the same on other days
	{"America/Havana", 2024},      // no midnight in March, two in November
	{"America/Santiago", 2024},    // two midnights in April, none in September
	{"America/Sao_Paulo", 2018},   // two midnights in February, none in November
	{"Africa/Cairo", 2024},        // no midnight in April, two in October
	{"Asia/Beirut", 2024},         // no midnight on the last of March, which is in another week
	{"America/St_Johns", 2010},    // put back one minute past midnight, into the day before
	{"America/Asuncion", 2023},    // no midnight on the first day of a month
	{"Australia/Lord_Howe", 2026}, // changes of half an hour
	{"Pacific/Apia", 2011},        // skips a day, which is a Friday and the month's last but one
	{"Pacific/Kiritimati", 1995},  // skips the first day of a year
	{"Pacific/Kwajalein", 1993},   // skips a Saturday
	{"Asia/Kathmandu", 1986},      // goes from half an hour to three quarters
	{"Pacific/Chatham", 2026},     // three quarters of an hour, and changes
	{"Asia/Pyongyang", 2018},      // half an hour forward, late in the evening
	{"America/Caracas", 2016},     // the same, at night
	{"Africa/Casablanca", 2024},   // summer time all year but for a month
	{"Antarctica/Troll", 2026},    // changes of two hours
	{"America/Juneau", 1867},      // a day twice, and an offset with seconds
	{"Africa/Monrovia", 1972},     // 44 minutes and 30 seconds forward
}

// shown is what tells the windows of a unit apart: what the wall clock shows without
// anything smaller. The first two parts never go back from a window to the next, but
// for hours and minutes, which are windows of their own if they are shown twice: there
// the offset tells which.
func shown(unit string, t time.Time) [5]int {
	y, m, d := t.Date()
	switch unit {
	case "day":
		return [5]int{y, t.YearDay()}
	case "week":
		year, week := t.ISOWeek()
		return [5]int{year, week}
	case "month":
		return [5]int{y, int(m)}
	}
	_, offset := t.Zone()
	minute := 0
	if unit == "minute" {
		minute = t.Minute()
	}
	return [5]int{y, int(m)<<5 | d, t.Hour(), minute, offset}
}

// begins reports whether a window that is shown as now follows one shown as last.
// Where the clock is put back into a date that is over, the window that has begun goes
// on.
func begins(unit string, last, now [5]int) bool {
	if now == last {
		return false
	}
	return unit == "hour" || unit == "minute" || now[0] > last[0] || now[0] == last[0] && now[1] > last[1]
}

// finer is the step that finds an edge within a longer one.
var finer = map[time.Duration]time.Duration{15 * time.Minute: time.Minute, 5 * time.Minute: time.Minute, time.Minute: time.Second}

// edges walks from one instant to another and returns where windows begin, in Unix
// milliseconds, by nothing but what the clock shows: at each step it asks whether that
// is the window of the step before, and if not, at which second it changed.
func edges(unit string, loc *time.Location, from, to time.Time, step time.Duration) (starts []int64) {
	last := shown(unit, from.In(loc))
	for t := from.Add(step); !t.After(to); t = t.Add(step) {
		now := shown(unit, t.In(loc))
		switch {
		case !begins(unit, last, now):
		case step > time.Second:
			starts = append(starts, edges(unit, loc, t.Add(-step), t, finer[step])...)
			last = now
		default:
			starts = append(starts, t.UnixMilli())
			last = now
		}
	}
	return starts
}

func TestCalendarAgreesWithAWalkThroughTheYear(t *testing.T) {
	for _, tt := range walked {
		loc := location(t, tt.zone)
		for _, unit := range []string{"hour", "day", "week", "month"} {
			t.Run(fmt.Sprintf("%s/%d/%s", tt.zone, tt.year, unit), func(t *testing.T) {
				step := 15 * time.Minute // all midnights of these years are such
				if unit == "hour" {
					step = 5 * time.Minute // where clocks change there are short ones
				}
				from := time.Date(tt.year, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, -35)
				to := from.AddDate(0, 0, 435)
				compare(t, unit, loc, edges(unit, loc, from, to, step))
			})
		}
	}
}

// compare has every window of the walk be what Span says, at its start, its end and in
// between.
func compare(t *testing.T, unit string, loc *time.Location, starts []int64) {
	t.Helper()
	w, err := Calendar(unit, loc)
	if err != nil {
		t.Fatal(err)
	}
	if len(starts) < 10 {
		t.Fatalf("the walk found %d windows", len(starts))
	}
	for i := 1; i < len(starts); i++ {
		start, end := starts[i-1], starts[i]
		for _, now := range []int64{start, start + (end-start)/2, end - 1} {
			if s, e := w.Span(now); s != start || e != end {
				t.Fatalf("at %s: got %s to %s, want %s to %s", time.UnixMilli(now).In(loc),
					time.UnixMilli(s).In(loc), time.UnixMilli(e).In(loc), time.UnixMilli(start).In(loc), time.UnixMilli(end).In(loc))
			}
		}
	}
}

// TestMinutesAgreeWithAWalk walks by seconds around every change of clocks.
func TestMinutesAgreeWithAWalk(t *testing.T) {
	for _, tt := range walked {
		loc := location(t, tt.zone)
		t.Run(fmt.Sprintf("%s/%d", tt.zone, tt.year), func(t *testing.T) {
			at := time.Date(tt.year, 1, 1, 0, 0, 0, 0, time.UTC)
			for range 4 {
				_, to := at.In(loc).ZoneBounds()
				if to.IsZero() {
					to = at.AddDate(0, 6, 0)
				}
				to = to.UTC()
				compare(t, "minute", loc, edges("minute", loc, to.Add(-20*time.Minute), to.Add(20*time.Minute), time.Second))
				at = to.Add(time.Second)
			}
		})
	}
}

// TestCalendarWindowsTileAYear goes from window to window through random years of all
// zones: none is empty, none overlaps, and each is as long as its unit can be.
func TestCalendarWindowsTileAYear(t *testing.T) {
	longest := map[string]time.Duration{"hour": time.Hour, "day": 50 * time.Hour, "week": 8 * 24 * time.Hour, "month": 33 * 24 * time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		loc, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		unit := rapid.SampledFrom([]string{"hour", "day", "week", "month"}).Draw(t, "unit")
		w, err := Calendar(unit, loc)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(rapid.IntRange(1900, 2090).Draw(t, "year"), 1, 1, 0, 0, 0, 0, loc)
		until := now.AddDate(1, 0, 0).UnixMilli()
		_, at := w.Span(now.UnixMilli())
		for at < until {
			start, end := w.Span(at)
			if start != at || end <= start || end-start > longest[unit].Milliseconds() {
				t.Fatalf("the window from %s on is %s to %s", time.UnixMilli(at).In(loc), time.UnixMilli(start).In(loc), time.UnixMilli(end).In(loc))
			}
			at = end
		}
	})
}
