package limit

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Thresholds tell operators that a limit is nearly used up before it refuses anybody.
//
// No counter knows which replica's charge took it across a line. A replica tells of a
// line that was crossed if it has charged something since it last knew the counter to be
// below; one that only sees the count of others keeps silent. So each replica tells
// once in a window at most, and mostly only the one whose charge it was.

// percents are the shares of a limit that are told of.
var percents = [...]int64{80, 100}

const (
	// thresholdWindow is the shortest window that is worth telling of.
	thresholdWindow = time.Hour
	// tracksMost is how many entities are remembered at least, and half of how many at
	// most. Of one that is forgotten, a line crossed meanwhile is not told.
	tracksMost = 10_000
	// rearm is the share of a rolling limit below which its lines are told of anew.
	rearm = 50
	// doubtsMost is how many states in a row may be out of date before one is believed.
	doubtsMost = 64
)

// watched tells whether lines of the rule are told of. A token bucket is there to be
// used up, and what only reports refuses nobody.
func (r *rule) watched() bool { return r.telling && !r.shadow }

// tellsOf tells whether lines of a limit in the window are told of.
func tellsOf(w *store.Window) bool {
	return w.Length() >= thresholdWindow && w.Kind() != store.KindNone && w.Kind() != store.KindBucket
}

// mark is what this replica knows of a counter.
type mark struct {
	rule      string // its ID
	window    int64  // when it began, in Unix milliseconds; 0 for one that slides
	limit     int64
	lines     [len(percents)]int64 // the percents of it
	bottom    int64                // see rearm
	seen, own int64                // what was used when it was last looked at, and charged here since
	ours      bool                 // something was charged here that seen may not include
	doubts    int                  // looks in a row that were out of date
	said      [len(percents)]bool
}

// look takes the state of the counter before it was charged for a call, and returns the
// share that this replica's charges have just brought about, in percent; 0 for none. doubt
// is set where this replica has charged something else since the counter was asked for, or
// was about to: the state may include it or not, and counts only if it is more than what is
// known.
func (m *mark) look(window, used, charged, limit int64, doubt bool) (percent int64) {
	if window < m.window {
		return 0 // older than what is known
	}
	m.enter(window)
	if limit != m.limit {
		// another limit has other lines; those passed already are no news
		m.draw(limit)
		m.cross(m.seen)
	}
	if known := m.seen + m.own; doubt && used < known && m.doubts < doubtsMost {
		m.doubts++
		return m.charge(max(0, used+charged-known)) // what is known may have the charge
	}
	percent = m.cross(used)
	if !m.ours {
		percent = 0 // it was others
	}
	m.seen, m.own, m.ours, m.doubts = used, 0, doubt && m.ours, 0
	return max(percent, m.charge(charged))
}

// charge adds what is charged here, and returns the share that it brings about.
func (m *mark) charge(amount int64) (percent int64) {
	m.own += amount
	m.ours = m.ours || amount > 0
	return m.cross(m.seen + m.own)
}

// enter begins another window, if it is one.
func (m *mark) enter(window int64) {
	if window > m.window {
		*m = mark{rule: m.rule, window: window, limit: m.limit, lines: m.lines, bottom: m.bottom}
	}
}

// draw puts the lines where they are of a limit.
func (m *mark) draw(limit int64) {
	m.limit, m.said = limit, [len(percents)]bool{}
	for i, p := range percents {
		m.lines[i] = part(limit, p)
	}
	m.bottom = part(limit, rearm)
}

// cross notes the lines up to an amount, and returns the highest that is new.
func (m *mark) cross(amount int64) (percent int64) {
	if m.window == 0 && amount < m.bottom {
		m.said = [len(percents)]bool{}
	}
	for i, line := range m.lines {
		if amount >= line && !m.said[i] {
			m.said[i] = true
			percent = percents[i]
		}
	}
	return percent
}

// part is a share of a limit, rounded up.
func part(limit, percent int64) int64 {
	return limit/100*percent + (limit%100*percent+99)/100
}

// track is what is known of the counters of an entity.
type track struct {
	settling atomic.Int64 // calls whose charges are on their way to the store
	charges  atomic.Int64 // how many have been noted

	mu    sync.Mutex
	marks []mark
}

// now is what since tells of the charges from now on.
func (t *track) now() (at int64) {
	if at = t.charges.Load(); t.settling.Load() > 0 {
		return -1
	}
	return at
}

// since tells whether a state that was asked for at an instant may lack charges that have
// been noted.
func (t *track) since(at int64) bool { return t.settling.Load() > 0 || t.charges.Load() != at }

// settle notes that n more calls have charges on their way; fewer if it is negative. A
// nil track notes nothing.
func (t *track) settle(n int64) {
	if t != nil {
		t.settling.Add(n)
	}
}

// mark returns that of a rule; guess is where it probably stands. The lock must be
// held. One that is new begins with what has been used already, whoever did it.
func (t *track) mark(ru *rule, guess int, window, used, limit int64) *mark {
	if guess < len(t.marks) && t.marks[guess].rule == ru.store.ID {
		return &t.marks[guess]
	}
	for i := range t.marks {
		if t.marks[i].rule == ru.store.ID {
			return &t.marks[i]
		}
	}
	if len(t.marks) >= marksMost {
		t.marks = t.marks[:0] // of rules that no config has any more
	}
	m := mark{rule: ru.store.ID, window: window, seen: used}
	m.draw(limit)
	m.cross(used)
	t.marks = append(t.marks, m)
	return &t.marks[len(t.marks)-1]
}

// marksMost bounds the rules of an entity, of which each of a hundred models may have a
// few.
const marksMost = 500

// tracks are the entities of this process, through all configs.
type tracks struct {
	recent[store.Entity, *track]
}

var tracked tracks

// of returns the track of an entity.
func (ts *tracks) of(e store.Entity) *track {
	return ts.get(e, tracksMost, func(store.Entity) *track { return new(track) })
}
