package memory

import (
	"bytes"
	"hash/maphash"
	"maps"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// lives is a store that one process after the other has, each of which dies.
type lives struct {
	*rapid.T
	clock *clock
	disk  *crashtest.Disk
	temp  func() string // makes a directory
	dir   string
	max   int

	s       *Store
	open    []*store.Ticket // calls at work
	settled []*store.Ticket
	faulty  bool   // the disk
	off     bool   // nothing is written
	secrets int    // how many there have been
	during  func() // is done while the store looks at the clock, if it is not nil

	counts map[store.Entity]*history[counts]
	limits map[store.Entity]*history[map[string]int64]
	keys   map[string]*history[store.Key] // the zero value is none
	month  map[store.Entity]int64         // what was used, in the plainest form
}

// seeds are those of all stores: what is written is the same each time.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

var (
	perMonth = everyKind[4]
	entities = []store.Entity{app(0), app(1), app(2), {Instance: "tokens"}, {Instance: "usd", Consumer: "app 0"}}
	keyNames = []string{"a", "b", "c"}
)

func newLives(r *rapid.T, temp func() string) *lives {
	l := &lives{
		T: r, clock: newClock(), disk: crashtest.New(), temp: temp, dir: temp(), max: rapid.IntRange(2, 9).Draw(r, "max"),
		counts: make(map[store.Entity]*history[counts]), limits: make(map[store.Entity]*history[map[string]int64]),
		keys: make(map[string]*history[store.Key]), month: make(map[store.Entity]int64),
	}
	for _, e := range entities {
		l.counts[e] = &history[counts]{states: [][]counts{{counts{}}}}
		l.limits[e] = &history[map[string]int64]{states: [][]map[string]int64{{{}}}}
	}
	for _, id := range keyNames {
		l.keys[id] = &history[store.Key]{states: [][]store.Key{{{}}}}
	}
	return l
}

func (l *lives) now() int64 { return l.clock.Now().UnixMilli() }

// tell is the clock that stores have. What is to be done meanwhile is, once.
func (l *lives) tell() time.Time {
	if f := l.during; f != nil {
		l.during = nil
		f()
		l.during = f
	}
	return l.clock.Now()
}

// free tells whether nobody has the shard of an entity locked.
func (l *lives) free(e store.Entity) bool {
	_, sh := l.s.shard(e)
	if !sh.mu.TryLock() {
		return false
	}
	sh.mu.Unlock()
	return true
}

// pause has the store write only when it is told to.
func (l *lives) pause() {
	if j := l.s.journal; j != nil {
		j.halt()
		j.stop, j.done = make(chan struct{}), make(chan struct{})
		close(j.done) // it can be halted again
	}
}

// limitsOf are the limits that an entity has of its own.
func (s *Store) limitsOf(e store.Entity) map[string]int64 {
	_, sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return maps.Clone(sh.own.of(e))
}

// keyOfID is a key that the store has, the zero value for none.
func (s *Store) keyOfID(id string) store.Key {
	s.keys.mu.RLock()
	defer s.keys.mu.RUnlock()
	if k := s.keys.byID[id]; k != nil {
		return copied(k)
	}
	return store.Key{}
}

func equalKeys(a, b store.Key) bool {
	return a.Revision == b.Revision && bytes.Equal(a.Record(), b.Record())
}

func revisions(states [][]store.Key) (all []int64) {
	for _, s := range states {
		all = append(all, s[0].Revision)
	}
	return all
}

// note notes what an entity's counts have become. Its shard must not be locked.
func (l *lives) note(e store.Entity) {
	h, now := l.counts[e], l.now()
	is := l.s.countsOf(e).at(now, false)
	forms := &h.states[h.now()]
	last := (*forms)[len(*forms)-1]
	switch {
	case maps.Equal(last, is):
	case maps.Equal(last.at(now, false), is):
		*forms = append(*forms, is)
	default:
		h.states = append(h.states, []counts{is})
	}
}

// noteAll notes all, once a step is done.
func (l *lives) noteAll() {
	for _, e := range entities {
		l.note(e)
		own := l.s.limitsOf(e)
		if h := l.limits[e]; !maps.Equal(h.states[h.now()][0], own) {
			h.states = append(h.states, []map[string]int64{own})
		}
	}
	for _, id := range keyNames {
		k := l.s.keyOfID(id)
		if h := l.keys[id]; !equalKeys(h.states[h.now()][0], k) {
			h.states = append(h.states, []store.Key{k})
		}
	}
}

// marks are places in all histories.
type marks struct {
	counts, limits map[store.Entity]int
	keys           map[string]int
}

func (l *lives) marks() marks {
	m := marks{make(map[store.Entity]int), make(map[store.Entity]int), make(map[string]int)}
	for _, e := range entities {
		m.counts[e], m.limits[e] = l.counts[e].now(), l.limits[e].now()
	}
	for _, id := range keyNames {
		m.keys[id] = l.keys[id].now()
	}
	return m
}

func (l *lives) countsCertain(m marks) {
	if l.off {
		return
	}
	for _, e := range entities {
		l.counts[e].certain(m.counts[e])
		l.limits[e].certain(m.limits[e])
	}
}

func (l *lives) keysCertain(m marks) {
	if l.off {
		return
	}
	for _, id := range keyNames {
		l.keys[id].certain(m.keys[id])
	}
}

// fails is an error that must have a reason.
func (l *lives) fails(what string, err error) bool {
	if err != nil && !l.faulty && !l.disk.Dead() {
		l.Fatalf("%s: %v", what, err)
	}
	return err != nil
}

// begin starts a process, which finds what the one before has left.
func (l *lives) begin() (err error) {
	l.s = New(Options{Now: l.tell, MaxEntities: l.max})
	l.s.disk, l.s.seeds, l.s.apart = l.disk, seeds, 0
	l.open, l.settled, l.off = nil, nil, false
	_, err = l.s.Persist(l.dir)
	l.pause()
	return err
}

// end leaves a process where it is.
func (l *lives) end() {
	l.disk.Kill(0)
	if j := l.s.journal; j != nil {
		j.halt()
		_ = j.close()
	}
}

// check compares what a process has found with what it may have.
func (l *lives) check(cut bool) {
	now := l.now()
	for _, e := range entities {
		h, is := l.counts[e], l.s.countsOf(e).at(now, false)
		if !h.find(cut, func(c counts) bool { return maps.Equal(c.at(now, true), is) }) {
			l.Fatalf("%+v has %v, and had one of %v from %d on, %d for a power cut", e, is, h.states, h.killed, h.cut)
		}
		h.states[h.now()] = append(h.states[h.now()], is)
		l.month[e] = is[perMonth.ID].Used

		results := make([]store.Result, len(everyKind))
		if err := l.s.Read(l.Context(), e, everyKind, results); err != nil {
			l.Fatal(err)
		}
		for i := range results {
			if results[i].Held != 0 {
				l.Fatalf("%+v: %+v is held by nobody", e, results[i])
			}
		}
		own := l.s.limitsOf(e)
		lim := l.limits[e]
		if !lim.find(cut, func(m map[string]int64) bool { return maps.Equal(m, own) }) {
			l.Fatalf("%+v has the limits %v, and had one of %v from %d on, %d for a power cut", e, own, lim.states, lim.killed, lim.cut)
		}
	}
	secrets := make(map[store.KeyHash]string)
	for _, id := range keyNames {
		h, is := l.keys[id], l.s.keyOfID(id)
		if !h.find(cut, func(k store.Key) bool { return equalKeys(k, is) }) {
			l.Fatalf("the key %q has revision %d, and had one of %v from %d on, %d for a power cut", id, is.Revision, revisions(h.states), h.killed, h.cut)
		}
		for _, hash := range is.Hashes() {
			if is.ID != "" {
				secrets[hash] = id
			}
		}
	}
	if !maps.Equal(secrets, l.s.secrets()) {
		l.Fatalf("the secrets lead to %v, want %v", l.s.secrets(), secrets)
	}
}

// secrets say which keys all secrets lead to.
func (s *Store) secrets() map[store.KeyHash]string {
	s.keys.mu.RLock()
	defer s.keys.mu.RUnlock()
	all := make(map[store.KeyHash]string)
	for hash, k := range s.keys.byHash {
		all[hash] = k.ID
	}
	return all
}

// former writes the file of counts as a version before this one did.
func (l *lives) former(version byte) {
	d, err := appendlog.LockOn(l.disk, l.dir)
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	log, _, err := d.OpenSince(logName, version, version, func([]byte) error { return nil })
	if err != nil {
		l.Fatal(err)
	}
	for _, e := range entities[:rapid.IntRange(0, len(entities)).Draw(l.T, "entities")] {
		used := entityOf(e.Consumer, used(perMonth, 7), used(everyKind[0], 3))
		used.instance = entityOf("").instance
		if e.Instance != "tokens" {
			continue
		}
		record, _ := used.appendRecord(nil, l.now())
		if err := log.Append(record); err != nil {
			l.Fatal(err)
		}
		is := counts{perMonth.ID: used.counters[0].State, everyKind[0].ID: used.counters[1].State}
		l.counts[e].states = [][]counts{{is}}
		if version < 2 {
			continue
		}
		var o overrides
		limit := int64(9)
		o.set(e, perMonth.ID, &limit)
		if err := log.Append(o.appendRecord(nil, e)); err != nil {
			l.Fatal(err)
		}
		l.limits[e].states = [][]map[string]int64{{{perMonth.ID: limit}}}
	}
	if err := log.Close(); err != nil {
		l.Fatal(err)
	}
}

// step is how far the clock goes at once.
func (l *lives) step(least, most time.Duration) {
	l.clock.step(time.Duration(rapid.Int64Range(int64(least), int64(most)).Draw(l.T, "step")))
}
