package keyring

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// shards is how many parts the secrets are in, each with a lock of its own.
const shards = 32

// state is all keys, as of some revision.
type state[T comparable] struct {
	shards [shards]shard[T]
	count  atomic.Int64
	bad    atomic.Int64 // of these, those that cannot be used

	// What follows is the goroutine's that follows the store, which changes it with mu
	// locked.
	mu       sync.Mutex
	keys     map[string]known[T]
	previous map[string]store.KeyHash // of the keys that have two secrets
	since    int64
	sum      int64
}

type shard[T any] struct {
	mu      sync.RWMutex
	secrets map[store.KeyHash]Entry[T]

	_ [64]byte // keeps the locks of two shards out of one cache line
}

// known is what must be remembered of a key to forget it.
type known[T any] struct {
	revision int64
	hash     store.KeyHash // zero if the key cannot be used
	value    T
}

func newState[T comparable]() *state[T] {
	st := &state[T]{keys: make(map[string]known[T]), previous: make(map[string]store.KeyHash)}
	for i := range st.shards {
		st.shards[i].secrets = make(map[store.KeyHash]Entry[T])
	}
	return st
}

// clone is another state of the same keys.
func (st *state[T]) clone() *state[T] {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := &state[T]{keys: maps.Clone(st.keys), previous: maps.Clone(st.previous), since: st.since, sum: st.sum}
	c.count.Store(st.count.Load())
	c.bad.Store(st.bad.Load())
	for i := range st.shards {
		sh := &st.shards[i]
		sh.mu.RLock()
		c.shards[i].secrets = maps.Clone(sh.secrets)
		sh.mu.RUnlock()
	}
	return c
}

// shard is where a secret is. The hash is as good as random.
func (st *state[T]) shard(h *store.KeyHash) *shard[T] { return &st.shards[h[0]%shards] }

func (st *state[T]) find(h store.KeyHash) (Entry[T], bool) {
	sh := st.shard(&h)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	e, ok := sh.secrets[h]
	return e, ok
}

func (st *state[T]) set(h store.KeyHash, e Entry[T]) {
	sh := st.shard(&h)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.secrets[h] = e
}

// remove forgets a secret, unless it is another key's by now.
func (st *state[T]) remove(h store.KeyHash, value T) {
	sh := st.shard(&h)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.secrets[h].Value == value {
		delete(sh.secrets, h)
	}
}

// apply takes a change in. A key that cannot be used leads nowhere. At no time does a
// secret that works before and after lead nowhere.
func (st *state[T]) apply(k *store.Key, compile func(*store.Key) (T, error)) (err error) {
	before, had := st.keys[k.ID]
	var now known[T]
	former, two := st.previous[k.ID]
	delete(st.previous, k.ID)
	st.since = k.Revision
	if !k.Deleted {
		now.revision = k.Revision
		if k.Damaged {
			err = store.ErrDamaged
		} else {
			now.value, err = compile(k)
		}
		if err == nil {
			now.hash = k.Hash
			st.set(k.Hash, Entry[T]{Value: now.value})
			if !k.Until.IsZero() && k.Previous != k.Hash {
				st.previous[k.ID] = k.Previous
				st.set(k.Previous, Entry[T]{now.value, k.Until.UnixMilli()})
			}
		}
	}
	// What leads to the former value still is no secret of the key any more.
	if before.hash != (store.KeyHash{}) {
		st.remove(before.hash, before.value)
	}
	if two {
		st.remove(former, before.value)
	}
	if had && before.hash == (store.KeyHash{}) {
		st.bad.Add(-1)
	}
	if err != nil {
		st.bad.Add(1)
	}
	st.sum = store.AddRevision(st.sum, before.revision, now.revision)
	if k.Deleted {
		delete(st.keys, k.ID)
	} else {
		st.keys[k.ID] = now
	}
	st.count.Store(int64(len(st.keys)))
	return err
}
