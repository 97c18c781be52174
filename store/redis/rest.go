package redis

import (
	"slices"
	"sync"
	"time"
)

const (
	// restMost is how many names a listing finds beyond those it was asked for, so that a
	// page of it does not go through all keys again: some 50 bytes each.
	restMost = 50_000
	// restLists is how many listings are remembered.
	restLists = 4
	// restFor is for how long.
	restFor = time.Minute
)

// rests are the names that listings have found and not told yet. Who goes on where a page
// of one has ended is told them; who begins anew has all keys gone through. The zero value
// has none.
type rests struct {
	mu    sync.Mutex
	lists []rest // the one that was used last is the last
}

// rest is one listing.
type rest struct {
	suffix, field string
	names         []string // ascending, with those that were told
	told          int
	all           bool // there are none behind
	at            time.Time
}

// next returns the n names after one, if that is where the last page of a listing ended, or
// the name before: who asks for one more than fits, to know whether there is more, goes on
// there.
func (rs *rests) next(suffix, field, after string, n int, now time.Time) (names []string, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	i := slices.IndexFunc(rs.lists, func(r rest) bool { return r.suffix == suffix && r.field == field })
	if i < 0 {
		return nil, false
	}
	r := rs.lists[i]
	if age := now.Sub(r.at); age < 0 || age >= restFor {
		return nil, false
	}
	from := -1
	for back := 1; back <= 2 && back <= r.told; back++ {
		if r.names[r.told-back] == after {
			from = r.told - back + 1
		}
	}
	if from < 0 || from+n > len(r.names) && !r.all {
		return nil, false
	}
	to := min(from+n, len(r.names))
	r.told = max(r.told, to)
	rs.lists = append(slices.Delete(rs.lists, i, i+1), r)
	return slices.Clone(r.names[from:to]), true
}

// keep remembers a listing of which the first names have been told, in the place of the one
// before. Lists that are all told, or out of date, are dropped.
func (rs *rests) keep(r rest) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.lists = slices.DeleteFunc(rs.lists, func(o rest) bool {
		return o.suffix == r.suffix && o.field == r.field || r.at.Sub(o.at) >= restFor
	})
	if r.told == len(r.names) {
		return
	}
	if len(rs.lists) >= restLists {
		rs.lists = slices.Delete(rs.lists, 0, 1)
	}
	rs.lists = append(rs.lists, r)
}
