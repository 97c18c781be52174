package outage

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// A replica remembers what the remote last said of each entity, for an outage to
// start from. It is some hundred bytes an entity, of as many as were called last.
const (
	seenShards = 16
	seenMost   = 100_000 // entities, at least
)

type seen struct {
	seed   maphash.Seed
	shards [seenShards]seenShard
}

// seenShard forgets the older half when the younger is full.
type seenShard struct {
	mu         sync.Mutex
	young, old map[store.Entity]*sight
}

// sight is the last state of an entity's counters, and what limits it has of its own.
type sight struct {
	counters []counter
	own      map[string]int64 // by the IDs of rules; nil for none
	file     filed
}

// filed says what the file has of a sight.
type filed uint8

const (
	fileNone filed = iota
	fileOld        // as it was
	fileIs         // as it is
)

// touch notes that the sight is another now. The lock is held.
func (g *sight) touch() {
	if g.file == fileIs {
		g.file = fileOld
	}
}

// counter is the last state of one. Instants are Unix milliseconds.
type counter struct {
	id         string
	kind       store.Kind
	used, held int64 // of all replicas
	mine       int64 // what was counted here, and charged at the remote since it told used
	own        int64 // of held, that of calls of this replica's which have not ended
	at, reset  int64 // when it was so, and when nothing that was used counts any more
	lapse      int64 // when what others held has been settled, or has lapsed
	// seeded is set once used and mine have been put into the local counter.
	seeded bool
	// untold is set where the remote has not told anything: used is of this process alone.
	untold bool
}

// left is how much of what was used counts still. How a window that slides loses it is
// not known, but that it is gone at its reset.
func (c *counter) left(now int64) int64 { return c.leftOf(c.used, now) }

func (c *counter) leftOf(used, now int64) int64 {
	switch {
	case c.kind == store.KindNone || now >= c.reset:
		return 0
	case c.kind == store.KindCalendar || c.kind == store.KindFixed || now <= c.at:
		return used
	default:
		return int64(float64(used) * float64(c.reset-now) / float64(c.reset-c.at))
	}
}

// silent tells whether the counter says nothing any more.
func (c *counter) silent(now int64) bool {
	return c.left(now) == 0 && c.leftOf(c.mine, now) == 0 && c.holds(now) == 0
}

// holds is how much is held still. Others renew theirs at the remote when that can be
// reached, and not here: what they hold counts for as long as it would have there.
func (c *counter) holds(now int64) int64 {
	if now < c.lapse {
		return max(c.own, c.held)
	}
	return c.own
}

// charge adds what was used in the window that an instant is in, and tells whether the
// local counter, which is of the window now, is to have it too.
func (c *counter) charge(r *store.Rule, amount, in, now int64) (here bool) {
	if c.kind == store.KindNone {
		return false
	}
	c.roll(r, now)
	here = c.seeded                    // else the local counter is set to what is used
	inside := in == now && c.at <= now // as mostly
	if !inside && (c.kind == store.KindCalendar || c.kind == store.KindFixed) {
		was, _ := r.Window.Span(in)
		if seen, _ := r.Window.Span(c.at); seen != was {
			amount = 0
		}
		// The current one is asked for last, since it is kept.
		is, _ := r.Window.Span(now)
		here = here && is == was
	}
	c.used = addUp(c.used, amount)
	return here
}

func newSeen() *seen { return &seen{seed: maphash.MakeSeed()} }

func (s *seen) shard(e store.Entity) *seenShard {
	var h maphash.Hash
	h.SetSeed(s.seed)
	_, _ = h.WriteString(e.Instance)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(e.Consumer)
	return &s.shards[h.Sum64()%seenShards]
}

// find returns the sight of an entity, nil if it is not known. The lock is held.
func (sh *seenShard) find(e store.Entity) *sight {
	if g := sh.young[e]; g != nil {
		return g
	}
	g := sh.old[e]
	if g != nil {
		sh.put(e, g)
	}
	return g
}

func (sh *seenShard) put(e store.Entity, g *sight) {
	if sh.young == nil || len(sh.young) >= seenMost/seenShards {
		sh.young, sh.old = make(map[store.Entity]*sight), sh.young
	}
	sh.young[e] = g
}

// of returns the sight of an entity, or its first one, with room for some counters. The
// lock is held.
func (sh *seenShard) of(e store.Entity, room int) *sight {
	g := sh.find(e)
	if g == nil {
		g = &sight{counters: make([]counter, 0, room)}
		e.Consumer = strings.Clone(e.Consumer) // or the request it is part of would stay
		sh.put(e, g)
	}
	return g
}

// counter returns that of a rule, which is mostly the one it is guessed to be.
func (g *sight) counter(r *store.Rule, guess int) *counter {
	if g == nil {
		return nil
	}
	if guess < len(g.counters) && g.counters[guess].id == r.ID {
		return &g.counters[guess]
	}
	for i := range g.counters {
		if g.counters[i].id == r.ID {
			return &g.counters[i]
		}
	}
	return nil
}

// record remembers what the remote has answered. The ticket is nil if it refused.
func (s *seen) record(r *store.Reservation, t *store.Ticket, results []store.Result, now time.Time) {
	sh := s.shard(r.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.of(r.Entity, len(r.Takes))
	g.touch()
	for i := range r.Takes {
		rule, res := r.Takes[i].Rule, &results[i]
		g.told(rule.ID, res)
		c := g.counter(rule, i)
		if c == nil {
			if t == nil && res.Used == 0 && res.Held == 0 {
				continue // as if it were not known, and there may be any number of them
			}
			g.grow(now.UnixMilli())
			c = &g.counters[len(g.counters)-1]
		}
		// A quarter more than a lease is what a remote may add to it.
		lapse := now.Add(r.Lease + r.Lease/4).UnixMilli()
		*c = counter{id: rule.ID, kind: rule.Window.Kind(), used: res.Used, held: res.Held, own: c.own, at: now.UnixMilli(), lapse: lapse}
		if t != nil && i < len(t.Lines) {
			c.own = addUp(c.own, t.Lines[i].Held)
		}
		if !res.ResetAt.IsZero() {
			c.reset = res.ResetAt.UnixMilli()
		}
	}
}

// grow appends a counter. Those that say nothing any more make room first.
func (g *sight) grow(now int64) {
	if len(g.counters) == cap(g.counters) {
		g.counters = slices.DeleteFunc(g.counters, func(c counter) bool {
			return c.silent(now) && (!c.seeded || now >= c.reset) // or the local counter would be set anew
		})
	}
	g.counters = append(g.counters, counter{})
}

// settled brings it up to what a call of the remote's used in the end.
func (s *seen) settled(t *store.Ticket, actual []int64, now int64, adjust func(r *store.Rule, amount int64)) {
	sh := s.shard(t.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.find(t.Entity)
	if g == nil {
		return
	}
	g.touch()
	for i := range t.Lines {
		l := &t.Lines[i]
		c := g.counter(l.Rule, i)
		if c == nil {
			continue
		}
		c.held, c.own = max(0, c.held-l.Held), max(0, c.own-l.Held)
		used, in := amountAt(actual, i)-l.Charged, now
		if used < 0 && (c.kind == store.KindCalendar || c.kind == store.KindFixed) {
			in = l.ChargedIn
		}
		if used != 0 && c.charge(l.Rule, used, in, now) {
			adjust(l.Rule, used)
		}
	}
}

// taken notes what a call was charged and holds that the remote has admitted before all
// that is pending was charged there, so that its answer says too little.
func (s *seen) taken(t *store.Ticket, at time.Time, adjust func(r *store.Rule, amount int64)) {
	sh := s.shard(t.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.of(t.Entity, 0)
	g.touch()
	now := at.UnixMilli()
	for i := range t.Lines {
		l := &t.Lines[i]
		c := g.known(l.Rule, i, at)
		c.held, c.own = addUp(c.held, l.Held), addUp(c.own, l.Held)
		if c.charge(l.Rule, l.Charged, now, now) {
			adjust(l.Rule, l.Charged)
		}
	}
}

// delivered notes that the remote has taken a batch of what was counted here.
func (s *seen) delivered(b *store.Batch, now time.Time) {
	sh := s.shard(b.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.of(b.Entity, 0)
	g.touch()
	for i, a := range b.Lines {
		if amount := countsStill(a, b.At, now); amount != 0 {
			c := g.known(a.Rule, i, now)
			c.mine = addUp(c.mine, amount)
		}
	}
}

// known returns the counter of a rule, or makes one of what is used here alone.
func (g *sight) known(r *store.Rule, guess int, now time.Time) *counter {
	c := g.counter(r, guess)
	if c == nil {
		g.grow(now.UnixMilli())
		c = &g.counters[len(g.counters)-1]
		*c = counter{id: r.ID, kind: r.Window.Kind(), seeded: true, untold: true}
	}
	c.roll(r, now.UnixMilli())
	return c
}

// roll begins a window that the remote has told nothing of, where the last one is over.
// The local counter has what is used in it.
func (c *counter) roll(r *store.Rule, now int64) {
	if c.kind == store.KindNone || now < c.reset {
		return
	}
	var res store.Result
	setWindow(r, &res, time.UnixMilli(now))
	c.used, c.mine, c.at, c.reset = 0, 0, now, res.ResetAt.UnixMilli()
	c.seeded, c.untold = true, true
}

// adjusted brings it up to what was charged or granted by hand.
func (s *seen) adjusted(e store.Entity, amounts []store.Amount, adjust func(r *store.Rule, amount int64)) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.find(e)
	if g == nil {
		return
	}
	g.touch()
	for i, a := range amounts {
		c := g.counter(a.Rule, i)
		if c == nil {
			continue
		}
		if c.used = addUp(c.used, a.Amount); c.seeded { // with what is pending, which stays
			adjust(a.Rule, a.Amount)
		}
	}
}

// cleared has nothing be used.
func (s *seen) cleared(e store.Entity) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if g := sh.find(e); g != nil {
		g.touch()
		for i := range g.counters {
			c := &g.counters[i]
			c.used, c.mine, c.seeded = 0, 0, false
		}
	}
}

// amountAt is an amount of a settlement; missing and negative ones are zero.
func amountAt(actual []int64, i int) int64 {
	if i >= len(actual) {
		return 0
	}
	return max(0, actual[i])
}
