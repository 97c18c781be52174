package memory

import "github.com/llmlimits/caddy-llm-limits/store"

// The store is bounded without ever forgetting what counts: only entities that
// say nothing any more are dropped, by calls that come by, a few at a time. A
// flood of new consumers finds the store full; it displaces nobody.

// claim counts an entity that is to be made, and tells whether there is room for
// it. For one that is owed room there always is.
func (s *Store) claim(owed bool) bool {
	if owed {
		s.count.Add(1)
		return true
	}
	for {
		n := s.count.Load()
		if n >= s.max.Load() {
			return false
		}
		if s.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// sweep drops entities that say nothing any more, of the first n that may. It
// returns how many.
func (s *Store) sweep(sh *shard, now int64, n int) (dropped int) {
	if len(sh.ends) == 0 || sh.ends[0].expires > now {
		return 0
	}
	for ; n > 0 && len(sh.ends) > 0 && sh.ends[0].expires <= now; n-- {
		e := sh.ends[0]
		if !sh.ended(e, now) {
			continue
		}
		hash, _ := s.shard(store.Entity{Instance: e.instance.Value(), Consumer: e.consumer})
		sh.drop(hash, e)
		s.count.Add(-1)
		dropped++
	}
	sh.note()
	return dropped
}

// makeRoom drops entities that say nothing any more, in whatever shard there are
// any, and tells whether there is room now. It holds no lock when called. If
// nothing can be dropped it reads one number a shard: refusing a flood is cheap.
func (s *Store) makeRoom() bool {
	now := s.now().UnixMilli()
	first := s.search.Add(1)
	for i := range uint32(shards) {
		sh := &s.shards[(first+i)%shards]
		if sh.next.Load() > now {
			continue
		}
		sh.mu.Lock()
		dropped := s.sweep(sh, now, sweepFull)
		sh.mu.Unlock()
		if dropped > 0 && s.count.Load() < s.max.Load() {
			return true
		}
	}
	return s.count.Load() < s.max.Load()
}
