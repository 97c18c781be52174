package store

import "time"

// unit is a unit of the calendar.
type unit uint8

const (
	minute unit = iota
	hour
	day
	week
	month
)

var units = map[string]unit{"minute": minute, "hour": hour, "day": day, "week": week, "month": month}

func (u unit) String() string {
	return [...]string{"minute", "hour", "day", "week", "month"}[u]
}

// length is the usual length of the unit, the longest for a month.
func (u unit) length() time.Duration {
	const d = 24 * time.Hour
	return [...]time.Duration{time.Minute, time.Hour, d, 7 * d, 31 * d}[u]
}

func (w *Window) calendarSpan(now int64) (start, end int64) {
	if w.unit <= hour {
		return w.clockSpan(now)
	}
	return w.dateSpan(now)
}

// clockSpan finds windows of minutes and hours. A window starts where the wall
// clock's hour does and where the clock is changed. So an hour that the clock
// shows twice is two windows, and the hour in which it is put forward or back by
// half an hour is short: no caller waits longer than an hour for an hourly limit.
func (w *Window) clockSpan(now int64) (start, end int64) {
	t := time.UnixMilli(now).In(w.loc)
	offset := offsetMilli(t)
	start = floor(now+offset, w.length) - offset
	end = start + w.length

	// A zone's bounds are also where only its name changes. Those are no edges.
	from, to := bounds(t)
	for !from.IsZero() && from.UnixMilli() > start {
		before := from.Add(-1)
		if offsetMilli(before) != offset {
			start = from.UnixMilli()
			break
		}
		from, _ = bounds(before)
	}
	for !to.IsZero() && to.UnixMilli() < end {
		if offsetMilli(to) != offset {
			end = to.UnixMilli()
			break
		}
		_, to = bounds(to)
	}
	return start, end
}

// dateSpan finds windows of days, weeks and months. A window starts at the first
// instant whose local date is its first day or, where the zone skipped that day,
// the next. Where the clock is put back past midnight, the hour in which it shows
// the day before once more stays with the day that has begun.
func (w *Window) dateSpan(now int64) (start, end int64) {
	first := w.firstDay(time.UnixMilli(now).In(w.loc).Date())
	for {
		next := w.nextDay(first)
		if end = w.instant(next); end > now {
			return w.instant(first), end
		}
		first = next
	}
}

// firstDay returns the first day of the window that a date lies in, at midnight
// UTC, whatever the zone: dates are reckoned there, where all midnights exist.
func (w *Window) firstDay(y int, m time.Month, d int) time.Time {
	switch w.unit {
	case month:
		d = 1
	case week:
		t := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		d -= (int(t.Weekday()) + 6) % 7
	default: // a day is its own
	}
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// nextDay returns the first day of the following window.
func (w *Window) nextDay(first time.Time) time.Time {
	switch w.unit {
	case month:
		return first.AddDate(0, 1, 0)
	case week:
		return first.AddDate(0, 0, 7)
	default:
		return first.AddDate(0, 0, 1)
	}
}

// instant returns the first instant at which the wall clock of the zone shows at
// least what date shows in UTC. time.Date does not serve: given a midnight that
// does not exist it returns an hour of the day before in some zones.
func (w *Window) instant(date time.Time) int64 {
	// No zone has been two days from UTC, so the clock shows less here.
	t := date.Add(-48 * time.Hour).In(w.loc)
	for {
		at := date.UnixMilli() - offsetMilli(t)
		from, to := bounds(t)
		if !from.IsZero() {
			at = max(at, from.UnixMilli())
		}
		if to.IsZero() || at < to.UnixMilli() {
			return at
		}
		t = to
	}
}

// bounds is t.ZoneBounds with an end that is behind t. Past the changes of clocks that
// a zone's file lists, the standard library has leap years end a day early: on their
// last day the end it gives is over, and who goes on from there stays there.
func bounds(t time.Time) (from, to time.Time) {
	from, to = t.ZoneBounds()
	if !to.IsZero() && !to.After(t) {
		to = t.Add(24 * time.Hour)
	}
	return from, to
}

// offsetMilli is how far the zone is ahead of UTC at t.
func offsetMilli(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset) * 1000
}
