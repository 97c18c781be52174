package memory

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/llmlimits/caddy-llm-limits/store"
)

const (
	// sweepCall is how many entities whose end may have come every call looks at.
	// Two, since a call adds one at most.
	sweepCall = 2
	// sweepFull is how many a call looks at in each shard when there is no room.
	sweepFull = 16
	// spares is how many unused holds a shard keeps.
	spares = 16
)

// shard is a part of the entities, under one lock.
type shard struct {
	mu     sync.Mutex
	byHash map[uint64]*entity
	// ends has all entities, those that may have come to their end first.
	ends heap[*entity]
	// next is when the first of them does. It is read without the lock.
	next atomic.Int64
	// spare holds are empty. Only entities point at holds, so no ticket can touch
	// those that are used again.
	spare []*holds
	// dirty are the entities that have changed since they were last written, those
	// that were dropped too. It is kept only if tracked, as where counts are to
	// outlive the process.
	dirty   []*entity
	tracked bool
	// own are the limits that entities have of their own.
	own overrides

	_ [64]byte // keeps the locks of two shards out of one cache line
}

func (sh *shard) find(hash uint64, name store.Entity) *entity {
	e := sh.byHash[hash]
	for e != nil && !e.is(name) {
		e = e.next
	}
	return e
}

// insert makes an entity that is not there yet, with room for n counters.
func (sh *shard) insert(hash uint64, name store.Entity, n int) *entity {
	e := &entity{
		instance: unique.Make(name.Instance),
		consumer: strings.Clone(name.Consumer), // or the request it is part of would stay
		counters: make([]ruleCounter, 0, n),
		next:     sh.byHash[hash],
	}
	if sh.byHash == nil {
		sh.byHash = make(map[uint64]*entity)
	}
	sh.byHash[hash] = e
	e.expires = math.MaxInt64 // until it has counters
	sh.ends.push(e)
	return e
}

// drop forgets an entity.
func (sh *shard) drop(hash uint64, e *entity) {
	sh.ends.remove(int(e.place))
	head := sh.byHash[hash]
	if head != e {
		for head.next != e {
			head = head.next
		}
		head.next = e.next
		return
	}
	if e.next == nil {
		delete(sh.byHash, hash)
		return
	}
	sh.byHash[hash] = e.next
}

// open gives the entity holds, if it has none.
func (sh *shard) open(e *entity) {
	if e.holds != nil {
		return
	}
	if n := len(sh.spare); n > 0 {
		e.holds, sh.spare = sh.spare[n-1], sh.spare[:n-1]
		return
	}
	e.holds = new(holds)
}

// close takes the entity's holds away, if there are no calls under way.
func (sh *shard) close(e *entity) {
	h := e.holds
	if h == nil || len(h.tickets) > 0 {
		return
	}
	e.holds = nil
	clear(h.amounts)
	h.amounts = h.amounts[:0]
	// A burst of calls need not be remembered.
	if len(sh.spare) < spares && cap(h.tickets) <= 64 {
		sh.spare = append(sh.spare, h)
	}
}

// touch notes that what the entity counts has changed.
func (sh *shard) touch(e *entity) {
	if sh.tracked && !e.dirty {
		e.dirty = true
		sh.dirty = append(sh.dirty, e)
	}
}

// settled notes when the entity ends, after what it counts has changed.
func (sh *shard) settled(e *entity, now int64) {
	sh.close(e)
	if end := e.end(now); end < e.expires {
		e.expires = end
		sh.ends.fix(int(e.place))
	}
	sh.note()
}

// note makes it known when the first entity may end.
func (sh *shard) note() {
	next := int64(math.MaxInt64)
	if len(sh.ends) > 0 {
		next = sh.ends[0].expires
	}
	if sh.next.Load() != next {
		sh.next.Store(next)
	}
}

// ended tells whether the entity says nothing any more, and if not, notes when
// that may be.
func (sh *shard) ended(e *entity, now int64) bool {
	e.lapse(now)
	sh.close(e)
	e.expires = e.end(now)
	sh.ends.fix(int(e.place))
	return e.expires <= now
}
