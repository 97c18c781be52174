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
}

// counter is the last state of one. Instants are Unix milliseconds.
type counter struct {
	id         string
	kind       store.Kind
	used, held int64 // of all replicas
	own        int64 // of held, that of calls of this replica's which have not ended
	at, reset  int64 // when it was so, and when nothing that was used counts any more
	lapse      int64 // when what others held has been settled, or has lapsed
	// seeded is set once used has been put into the local counter.
	seeded bool
}

// left is how much of what was used counts still. How a window that slides loses it is
// not known, but that it is gone at its reset.
func (c *counter) left(now int64) int64 {
	switch {
	case c.kind == store.KindNone || now >= c.reset:
		return 0
	case c.kind == store.KindCalendar || c.kind == store.KindFixed || now <= c.at:
		return c.used
	default:
		return int64(float64(c.used) * float64(c.reset-now) / float64(c.reset-c.at))
	}
}

// holds is how much is held still. Others renew theirs at the remote when that can be
// reached, and not here: what they hold counts for as long as it would have there.
func (c *counter) holds(now int64) int64 {
	if now < c.lapse {
		return max(c.own, c.held)
	}
	return c.own
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

// enter puts the first sight of an entity.
func (sh *seenShard) enter(e store.Entity, g *sight) {
	e.Consumer = strings.Clone(e.Consumer) // or the request it is part of would stay
	sh.put(e, g)
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
	g := sh.find(r.Entity)
	if g == nil {
		g = &sight{counters: make([]counter, 0, len(r.Takes))}
		sh.enter(r.Entity, g)
	}
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
			return !c.seeded && c.left(now) == 0 && c.holds(now) == 0
		})
	}
	g.counters = append(g.counters, counter{})
}

// settled brings it up to what a call of the remote's used in the end.
func (s *seen) settled(t *store.Ticket, actual []int64, adjust func(r *store.Rule, amount int64)) {
	sh := s.shard(t.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.find(t.Entity)
	for i := range t.Lines {
		l := &t.Lines[i]
		c := g.counter(l.Rule, i)
		if c == nil {
			continue
		}
		used := amountAt(actual, i) - l.Charged
		c.used, c.held, c.own = addUp(c.used, used), max(0, c.held-l.Held), max(0, c.own-l.Held)
		if c.seeded && c.kind != store.KindNone {
			adjust(l.Rule, used)
		}
	}
}

// adjusted brings it up to what was charged or granted by hand.
func (s *seen) adjusted(e store.Entity, amounts []store.Amount) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.find(e)
	for i, a := range amounts {
		if c := g.counter(a.Rule, i); c != nil {
			c.used, c.seeded = addUp(c.used, a.Amount), false
		}
	}
}

// cleared has nothing be used.
func (s *seen) cleared(e store.Entity) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if g := sh.find(e); g != nil {
		for i := range g.counters {
			g.counters[i].used, g.counters[i].seeded = 0, false
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
