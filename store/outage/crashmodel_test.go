package outage

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

var (
	paid      = &store.Rule{ID: "paid per day", Window: must(store.Calendar("day", nil))}
	consumers = []store.Entity{{Instance: "apps", Consumer: "a"}, {Instance: "apps", Consumer: "b"}, {Instance: "apps"}}
)

// history is what a call has used, and the least and the most of it that may be found
// charged if its process is killed now: what it was since the file was last written.
type history struct {
	entity store.Entity
	at     int64 // when it was admitted
	ticket *store.Ticket

	owes, base, least, most map[spot]int64
	// unsure is set where it changed while the file was written.
	unsure bool
}

func newHistory(e store.Entity, at int64) *history {
	return &history{
		entity: e, at: at, owes: make(map[spot]int64), base: make(map[spot]int64),
		least: make(map[spot]int64), most: make(map[spot]int64),
	}
}

func (h *history) maybe(s spot, n int64) {
	h.least[s], h.most[s] = min(h.least[s], n), max(h.most[s], n)
}

// written is what a file that is synced does to it.
func (h *history) written() {
	if !h.unsure {
		h.base, h.least, h.most = maps.Clone(h.owes), maps.Clone(h.owes), maps.Clone(h.owes)
	}
	h.unsure = false
}

// life is of one process's counters.
type life struct {
	c     *Counters
	m     *model
	calls []*history
	// told is what it must know at least of what is used, shared with counters before
	// and after it in the same process; kept what its file had of that.
	told, kept map[spot]int64
	writing    bool
}

// machine is what processes run on, one after the other in one directory.
type machine struct {
	*world
	rt   *rapid.T
	dir  string
	o    Options
	step func(time.Duration)

	lives       []*life // those that are there, the newest last
	least, most map[spot]int64
	torn        bool // a file was
}

func (m *machine) start(before *life) *life {
	l := &life{m: &model{w: m.world}, told: make(map[spot]int64), kept: make(map[spot]int64)}
	o := m.o
	o.Dir = m.dir
	if before != nil {
		o.Before, l.told, l.kept = before.c, before.told, before.kept
	}
	torn := m.torn
	o.OnError = func(err error) {
		expected := torn && errors.Is(err, ErrDamaged) || before != nil && errors.Is(err, appendlog.ErrLocked)
		if !expected {
			m.rt.Errorf("told %v", err)
		}
	}
	l.c = New(func(string) Remote { return l.m }, o)
	l.c.once.Do(l.c.begin)
	m.lives = append(m.lives, l)
	return l
}

// change has a call owe more of a counter, or less.
func (m *machine) change(l *life, h *history, s spot, d int64) {
	if d == 0 {
		return
	}
	h.unsure = h.unsure || l.writing
	h.owes[s] += d
	h.maybe(s, h.owes[s])
	l.told[s] += d
}

func (m *machine) call(l *life) {
	rt, now := m.rt, m.now().UnixMilli()
	e := consumers[rapid.IntRange(0, len(consumers)-1).Draw(rt, "consumer")]
	h := newHistory(e, now)
	limit := rapid.SampledFrom([]int64{1 << 40, 5000, 0}).Draw(rt, "limit")
	charge := rapid.SampledFrom([]int64{0, 500, 2000}).Draw(rt, "charged at first")
	r := store.Reservation{Entity: e, Known: true, Lease: time.Hour, Takes: []store.Take{
		{Rule: minute, Limit: 1 << 40, Need: 1, Charge: 1},
		{Rule: day, Limit: limit, Need: 1, Charge: charge, Hold: 100},
		{Rule: paid, Limit: 1 << 40, Need: 1, Hold: 1},
		{Rule: flight, Limit: 1 << 40, Need: 1, Hold: 1},
	}}
	results := make([]store.Result, len(r.Takes))
	doubts := len(m.errands)
	k, err := l.c.Reserve(context.Background(), &r, results)
	if err != nil && l.c.Policy() != Deny {
		rt.Fatalf("a call got %v", err)
	}
	l.calls = append(l.calls, h)
	remote := k != nil && k.Private.(*ticket).remote
	if len(m.errands) > doubts && !remote { // it may have been taken there all the same
		h.unsure = h.unsure || l.writing
		h.maybe(spotOf(e, minute, now), 1)
		h.maybe(spotOf(e, day, now), charge)
	}
	if k == nil {
		return
	}
	h.ticket = k
	m.change(l, h, spotOf(e, minute, now), 1)
	m.change(l, h, spotOf(e, day, now), charge)
	if remote && !l.c.behind(e) {
		for i, rule := range []*store.Rule{minute, day, paid} {
			l.told[spotOf(e, rule, now)] = results[i].Used
		}
	}
}

func (m *machine) settle(l *life, h *history) {
	rt, now := m.rt, m.now().UnixMilli()
	requests := rapid.SampledFrom([]int64{1, 0, 2}).Draw(rt, "requests")
	actual := []int64{requests, 0, 0, 0}
	if requests > 0 {
		actual[1], actual[2] = rapid.SampledFrom([]int64{700, 0, 2000, 5000}).Draw(rt, "tokens"), 1
	}
	l.c.Settle(h.ticket, actual)
	for i, rule := range []*store.Rule{minute, day, paid} {
		at := now
		d := actual[i] - h.ticket.Lines[i].Charged
		if d < 0 {
			at = h.at
		}
		m.change(l, h, spotOf(h.entity, rule, at), d)
	}
	h.ticket = nil
}

// open are the calls that have not ended.
func (l *life) open() (open []*history) {
	for _, h := range l.calls {
		if h.ticket != nil {
			open = append(open, h)
		}
	}
	return open
}

// tick writes the file. A call may come while that is done.
func (m *machine) tick(l *life) error {
	if rapid.Bool().Draw(m.rt, "a call meanwhile") {
		l.m.during = func() { m.call(l) }
	}
	l.writing = true
	before, has := m.known(l), l.c.journal.Load() != nil // else it is only opened
	err := l.c.tendJournal()
	l.writing, l.m.during = false, nil
	if err == nil && has {
		m.synced(l, before)
	}
	return err
}

// known is what the file is to have of what the process knows: all in an outage, and else
// of consumers that have something to be handed over.
func (m *machine) known(l *life) map[spot]int64 {
	known := make(map[spot]int64)
	for s, n := range l.told {
		if l.c.Away() || l.c.queue.has(s.entity) {
			known[s] = n
		}
	}
	return known
}

// synced notes that the file has what was there before it was written.
func (m *machine) synced(l *life, known map[spot]int64) {
	clear(l.kept)
	for s, n := range known {
		l.kept[s] = min(n, l.told[s])
	}
	for _, h := range l.calls {
		h.written()
	}
	for _, other := range m.lives {
		for _, h := range other.calls {
			for s, n := range h.owes {
				l.kept[s] -= max(0, n-h.least[s])
			}
		}
	}
}

// gone adds up what the calls of a process that has ended have used.
func (m *machine) gone(l *life) {
	for _, h := range l.calls {
		for s, n := range h.least {
			m.least[s] += n
		}
		for s, n := range h.most {
			m.most[s] += n
		}
	}
}

// kill ends all counters of the process as kill -9 does, in a write of the file or not.
func (m *machine) kill(writing bool) {
	path := journalPath(m.dir)
	read := func() []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			m.rt.Fatal(err)
		}
		return b
	}
	file := read()
	owner := m.lives[max(0, slices.IndexFunc(m.lives, func(l *life) bool { return l.c.journal.Load() != nil }))]
	if j := owner.c.journal.Load(); j != nil && writing {
		synced, known := j.log.Unsynced() == 0, m.known(owner)
		owner.writing = true
		if rapid.Bool().Draw(m.rt, "a call meanwhile") {
			owner.m.during = func() { m.call(owner) }
		}
		_ = owner.c.tendJournal()
		if after := read(); synced && bytes.HasPrefix(after, file) {
			file = after[:rapid.IntRange(len(file), len(after)).Draw(m.rt, "bytes written")]
			m.torn = m.torn || len(file) < len(after)
		} else if rapid.Bool().Draw(m.rt, "replaced") {
			file = after
		}
		maps.DeleteFunc(owner.kept, func(s spot, _ int64) bool { _, still := known[s]; return !still })
	}
	told := make(map[spot]int64)
	for s, n := range owner.kept {
		told[s] = n
	}
	for _, l := range m.lives {
		l.m.killed = true
		if j := l.c.journal.Load(); j != nil {
			_ = errors.Join(j.log.Close(), j.dir.Close())
		}
		l.c.closing.Do(func() {})
		for _, h := range l.calls {
			for s, n := range h.base {
				told[s] -= max(0, n-h.least[s])
			}
		}
		m.gone(l)
	}
	m.lives = nil
	if err := os.WriteFile(path, file, 0o600); err != nil {
		m.rt.Fatal(err)
	}
	l := m.start(nil)
	l.told, l.kept = told, maps.Clone(told)
}

// leave closes counters that others have taken the place of, once they have no calls and
// lose nothing.
func (m *machine) leave(l *life) {
	for _, h := range l.open() {
		m.settle(l, h)
	}
	if l.c.Safe() {
		m.stop(l)
	}
}

// end closes all counters of the process, as it ends. It returns what the next one knows.
func (m *machine) end() (told map[spot]int64) {
	for len(m.lives) > 0 {
		for _, h := range m.lives[0].open() {
			m.settle(m.lives[0], h)
		}
		// All are closed at once: those that have no directory wait for those that have.
		told = m.stop(m.lives[max(0, slices.IndexFunc(m.lives, func(l *life) bool { return l.c.journal.Load() != nil }))])
	}
	return told
}

// stop closes counters in good order, and returns what their file lets others know.
func (m *machine) stop(l *life) map[spot]int64 {
	for _, h := range l.open() {
		m.settle(l, h)
	}
	if err := l.c.Close(context.Background()); err != nil {
		m.rt.Fatal(err)
	}
	m.synced(l, m.known(l))
	m.gone(l)
	m.lives = slices.DeleteFunc(m.lives, func(o *life) bool { return o == l })
	return l.kept
}
