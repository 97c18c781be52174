// Package memory is the store that keeps its counters in the process.
//
// Entities are spread over shards, each with a lock of its own, so that all
// counters of one are checked and changed at one instant. Holds lapse, and
// counters that are over are dropped, when a later call comes by: there are no
// goroutines, but for the one of a store that has a directory. There the counts
// outlive the process; see Persist.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// DefaultMaxEntities is how many entities a store keeps where nothing else is
// said, some 20 MB with three windows each.
const DefaultMaxEntities = 100_000

const (
	shardBits = 6
	shards    = 1 << shardBits
)

// errFull is made once: a flood must not cost allocations.
var errFull = fmt.Errorf("counting another consumer: %w", store.ErrFull)

// Options say how a store is made. The zero value is usable.
type Options struct {
	// MaxEntities is how many consumers' counters are kept, each counted once in
	// every instance. At that number, a consumer that is new and not known is
	// refused. The default is DefaultMaxEntities.
	MaxEntities int
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// AwaitPersist holds back calls that come before Persist has read what was used
	// before, or has found that it cannot, for at most 10 seconds.
	AwaitPersist bool
	// Report is told, once, when the file of counts can no longer be written, or be
	// made smaller, and with nil when it can again. The counts stay right, and are
	// written later. Nil is nobody. It must not call the store.
	Report func(error)
}

// Store keeps counters in the process. Only one with a directory has to be closed.
type Store struct {
	now    func() time.Time
	report func(error)
	seeds  [2]maphash.Seed
	mark   []byte // of this process, in files
	gate   gate

	max    atomic.Int64
	count  atomic.Int64
	search atomic.Uint32 // the shard where room is looked for first

	shards [shards]shard
	keys   Keys

	persisting sync.Mutex // guards what follows
	journal    *journal   // nil where counts are in memory only
	restored   bool       // what an earlier process left has been read
	disk       appendlog.Disk
	// apart is how long changes may wait for a rewrite to go on. Tests make it less.
	apart time.Duration
}

// New returns an empty store. It does no I/O.
func New(o Options) *Store {
	s := &Store{
		now: o.Now, report: o.Report, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, mark: newMark(),
		disk: appendlog.System{}, apart: flushEvery,
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.report == nil {
		s.report = func(error) {}
	}
	if o.AwaitPersist {
		s.gate.shut()
	}
	s.SetMaxEntities(o.MaxEntities)
	s.keys.init(s)
	for i := range s.shards {
		s.shards[i].next.Store(math.MaxInt64)
	}
	return s
}

// SetMaxEntities changes how many consumers' counters are kept; zero or less
// means DefaultMaxEntities. Counters above a smaller number stay until they are
// over.
func (s *Store) SetMaxEntities(n int) {
	if n <= 0 {
		n = DefaultMaxEntities
	}
	s.max.Store(int64(n))
}

// Len returns how many entities are kept, some of which may be over.
func (s *Store) Len() int { return int(s.count.Load()) }

// shard returns the hash of an entity, and the shard it is in.
func (s *Store) shard(name store.Entity) (uint64, *shard) {
	// Two seeds, so that no name of one kind stands for one of the other.
	h := maphash.String(s.seeds[0], name.Instance) + maphash.String(s.seeds[1], name.Consumer)
	return h, &s.shards[h>>(64-shardBits)]
}

// Reserve implements store.Counters. The only error is store.ErrFull, and with
// AwaitPersist store.ErrUnavailable.
func (s *Store) Reserve(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	if err := s.gate.pass(ctx); err != nil {
		return nil, err
	}
	hash, sh := s.shard(r.Entity)
	for {
		t, room := s.reserve(sh, hash, r, results)
		if room {
			return t, nil
		}
		if !s.makeRoom() {
			return nil, errFull
		}
	}
}

// reserve returns false if the call would be admitted but there is no room for
// its entity.
func (s *Store) reserve(sh *shard, hash uint64, r *store.Reservation, results []store.Result) (*store.Ticket, bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now().UnixMilli()
	s.sweep(sh, now, sweepCall)

	e := sh.find(hash, r.Entity)
	if e != nil {
		e.lapse(now)
	}
	own := sh.own.of(r.Entity)
	admitted := true
	for i := range r.Takes {
		t := &r.Takes[i]
		c, held := e.peek(t.Rule, i, now)
		if limit, ok := own[t.Rule.ID]; ok {
			counter.CheckOwn(c, t, limit, held, now, &results[i])
		} else {
			counter.Check(c, t, held, now, &results[i])
		}
		admitted = admitted && (t.Shadow || !results[i].Exceeded)
	}
	if !admitted {
		if e != nil {
			sh.close(e)
		}
		return nil, true
	}
	if e == nil {
		if !s.claim(r.Known || r.Entity.Consumer == "" || own != nil) {
			return nil, false
		}
		e = sh.insert(hash, r.Entity, len(r.Takes))
	}
	t := newTicket(r, hash, now)
	sh.open(e)
	charged := false
	for i := range r.Takes {
		commit(e, &r.Takes[i], i, now, &results[i], &t.Lines[i])
		charged = charged || t.Lines[i].Charged != 0
	}
	e.holds.tickets.push(t)
	if charged {
		sh.touch(e)
	}
	if e.expires == math.MaxInt64 {
		sh.settled(e, now)
	}
	return (*store.Ticket)(t), true
}

// Settle implements store.Counters.
func (s *Store) Settle(t *store.Ticket, actual []int64) {
	k, ok := t.Private.(*ticket)
	if !ok {
		return
	}
	sh := &s.shards[k.Mark.Hash>>(64-shardBits)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if k.Mark.Settled {
		return
	}
	k.Mark.Settled = true
	now := s.now().UnixMilli()

	e := sh.find(k.Mark.Hash, k.Entity)
	if e == nil {
		// The ticket has lapsed and all else is over. What it cost still counts,
		// whether there is room or not.
		s.count.Add(1)
		e = sh.insert(k.Mark.Hash, k.Entity, len(k.Lines))
	}
	e.lapse(now)
	if k.Mark.Place >= 0 {
		e.release(k)
	}
	for i := range k.Lines {
		l := &k.Lines[i]
		var amount int64
		if i < len(actual) {
			amount = max(0, actual[i])
		}
		if amount != l.Charged {
			c := &e.counters[e.counter(l.Rule, i, now)]
			c.Settle(l.Rule, l.Charged, l.ChargedIn, amount)
			sh.touch(e)
		}
	}
	sh.settled(e, now)
}

// Renew implements store.Counters. It never fails.
func (s *Store) Renew(_ context.Context, tickets []*store.Ticket, lease time.Duration) error {
	for _, t := range tickets {
		if k, ok := t.Private.(*ticket); ok {
			s.renew(k, lease)
		}
	}
	return nil
}

func (s *Store) renew(k *ticket, lease time.Duration) {
	sh := &s.shards[k.Mark.Hash>>(64-shardBits)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if k.Mark.Settled {
		return
	}
	now := s.now().UnixMilli()
	e := sh.find(k.Mark.Hash, k.Entity)
	if e == nil {
		s.count.Add(1)
		e = sh.insert(k.Mark.Hash, k.Entity, len(k.Lines))
	}
	e.lapse(now)
	k.Deadline = now + counter.CeilMilli(lease)
	if k.Mark.Place >= 0 {
		e.holds.tickets.fix(int(k.Mark.Place))
	} else {
		sh.open(e)
		e.take(k, now)
	}
	sh.settled(e, now)
}

// Read implements store.Counters. It fails as Reserve does where counts are being read.
func (s *Store) Read(ctx context.Context, name store.Entity, rules []*store.Rule, results []store.Result) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	hash, sh := s.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now().UnixMilli()
	e := sh.find(hash, name)
	if e != nil {
		e.lapse(now)
	}
	own := sh.own.of(name)
	for i, r := range rules {
		c, held := e.peek(r, i, now)
		results[i] = store.Result{Held: held}
		results[i].Limit, results[i].Overridden = own[r.ID]
		counter.Fill(&results[i], &c, r, now)
	}
	return nil
}

// Adjust implements store.Counters. It fails as Reserve does where counts are being read.
func (s *Store) Adjust(ctx context.Context, name store.Entity, amounts ...store.Amount) error {
	if !slices.ContainsFunc(amounts, func(a store.Amount) bool { return a.Amount != 0 }) {
		return nil
	}
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	hash, sh := s.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now().UnixMilli()
	e := sh.find(hash, name)
	if e == nil {
		s.count.Add(1)
		e = sh.insert(hash, name, len(amounts))
	}
	e.lapse(now)
	for i, a := range amounts {
		if a.Amount != 0 {
			e.counters[e.counter(a.Rule, i, now)].Charge(a.Rule, a.Amount)
		}
	}
	sh.touch(e)
	sh.settled(e, now)
	return nil
}

// Clear implements store.Counters. It fails as Reserve does where counts are being read.
func (s *Store) Clear(ctx context.Context, name store.Entity) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	hash, sh := s.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.find(hash, name)
	if e == nil {
		return nil
	}
	now := s.now().UnixMilli()
	e.lapse(now)
	for i := range e.counters {
		c := &e.counters[i]
		r := c.rule.Value()
		c.Roll(&r, now)
		c.Used, c.Prev = 0, 0
	}
	sh.touch(e)
	sh.settled(e, now)
	return nil
}

// Interface guard
var _ store.Counters = (*Store)(nil)
