package memory

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// remembered is how long a deletion is told to those who ask for changes. Whoever asks
// less often reads all keys again.
const remembered = time.Hour

// pruneEvery is how often deletions that are older are looked for.
const pruneEvery = time.Minute

// Keys are the API keys of a store. Those of one with a directory are on the disk when
// a change returns.
type Keys struct {
	s *Store

	writing sync.Mutex // held by who changes something, before mu
	log     *appendlog.Log
	records int // in the log
	// lacking tells that the log lacks what was taken in from a directory that could not be used
	// after all, and is to be written anew.
	lacking bool

	mu      sync.RWMutex // guards what follows; never held during I/O
	byID    map[string]*store.Key
	byHash  map[store.KeyHash]*store.Key
	gone    map[string]gone   // deletions that are told
	damaged map[string][]byte // records that cannot be read, of such keys
	buried  map[string]int64  // by which revision others were deleted; see prune
	order   []change          // by revision, with some that are over
	ids     []string          // sorted, nil if they have to be sorted again
	last    int64             // the highest revision
	sum     int64
	pruned  int64 // when deletions were forgotten last, Unix milliseconds
}

// gone is a key that was deleted.
type gone struct {
	revision int64
	at       int64 // Unix milliseconds
}

// change says which key a revision was of.
type change struct {
	revision int64
	id       string
}

// Keys are the keys that are kept beside the counters.
func (s *Store) Keys() store.Keys { return &s.keys }

func (k *Keys) init(s *Store) {
	k.s = s
	k.byID = make(map[string]*store.Key)
	k.byHash = make(map[store.KeyHash]*store.Key)
	k.gone = make(map[string]gone)
	k.damaged = make(map[string][]byte)
	k.buried = make(map[string]int64)
}

// Durable tells whether keys outlive the process.
func (k *Keys) Durable() bool {
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.log != nil
}

// Get implements store.Keys.
func (k *Keys) Get(ctx context.Context, id string) (store.Key, error) {
	return k.one(ctx, func() *store.Key { return k.byID[id] })
}

// Find implements store.Keys.
func (k *Keys) Find(ctx context.Context, hash store.KeyHash) (store.Key, error) {
	return k.one(ctx, func() *store.Key { return k.byHash[hash] })
}

func (k *Keys) one(ctx context.Context, find func() *store.Key) (store.Key, error) {
	if err := k.s.gate.pass(ctx); err != nil {
		return store.Key{}, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	key := find()
	if key == nil {
		return store.Key{}, fmt.Errorf("reading a key: %w", store.ErrNoKey)
	}
	if key.Damaged {
		return store.Key{}, fmt.Errorf("reading the key %q: %w", key.ID, store.ErrDamaged)
	}
	return copied(key), nil
}

// copied shares nothing with the store's own.
func copied(k *store.Key) store.Key {
	c := *k
	c.Models = slices.Clone(k.Models)
	return c
}

// Put implements store.Keys.
func (k *Keys) Put(ctx context.Context, key store.Key) (int64, error) {
	if err := k.s.gate.pass(ctx); err != nil {
		return 0, err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	revision, err := k.put(key)
	if err != nil {
		return 0, fmt.Errorf("storing the key %q: %w", key.ID, err)
	}
	return revision, k.write(key.ID)
}

func (k *Keys) put(key store.Key) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	old := k.byID[key.ID]
	expected := key.Revision
	key.Deleted = false
	switch {
	case old != nil && bytes.Equal(old.Record(), key.Record()):
		return old.Revision, nil
	case expected == 0 && old != nil:
		return 0, store.ErrKeyTaken
	case expected != 0 && (old == nil || old.Revision != expected):
		return 0, store.ErrKeyChanged
	}
	for _, h := range key.Hashes() {
		if other := k.byHash[h]; other != nil && other != old {
			return 0, store.ErrKeyTaken
		}
	}
	key = copied(&key)
	key.Revision = k.next()
	k.set(&key)
	k.prune()
	return key.Revision, nil
}

// Delete implements store.Keys.
func (k *Keys) Delete(ctx context.Context, id string) error {
	if err := k.s.gate.pass(ctx); err != nil {
		return err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if !k.remove(id, k.has) {
		// Who has deleted it may have been told that the disk did not take that, and asks
		// again: that there is no such key is to be true after a crash, too.
		if err := k.sync(); err != nil {
			return fmt.Errorf("deleting a key: %w: %w", store.ErrUnavailable, err)
		}
		return fmt.Errorf("deleting a key: %w", store.ErrNoKey)
	}
	return k.write(id)
}

func (k *Keys) has(id string) bool { return k.byID[id] != nil }

// remove forgets a key if it is one to be forgotten.
func (k *Keys) remove(id string, due func(id string) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !due(id) {
		return false
	}
	k.bury(id, gone{k.next(), k.s.now().UnixMilli()})
	k.prune()
	return true
}

// next returns a revision above all before.
func (k *Keys) next() int64 { return max(k.last+1, k.s.now().UnixMicro()) }

// set takes a key in, in the place of the one of its id. mu is locked.
func (k *Keys) set(key *store.Key) {
	old := k.drop(key.ID)
	k.byID[key.ID] = key
	for _, h := range key.Hashes() {
		k.byHash[h] = key
	}
	delete(k.gone, key.ID)
	delete(k.buried, key.ID)
	if old == 0 {
		k.ids = nil
	}
	k.sum = store.AddRevision(k.sum, old, key.Revision)
	k.note(key.Revision, key.ID)
}

// bury takes a key out. mu is locked.
func (k *Keys) bury(id string, g gone) {
	if old := k.drop(id); old != 0 {
		k.ids = nil
		k.sum = store.AddRevision(k.sum, old, 0)
	}
	k.gone[id] = g
	k.note(g.revision, id)
}

// drop forgets a key, and returns the revision that it had.
func (k *Keys) drop(id string) int64 {
	old := k.byID[id]
	if old == nil {
		return 0
	}
	for _, h := range old.Hashes() {
		delete(k.byHash, h)
	}
	delete(k.byID, id)
	delete(k.damaged, id)
	return old.Revision
}

// note puts a change at the end of the order.
func (k *Keys) note(revision int64, id string) {
	k.last = max(k.last, revision)
	k.order = append(k.order, change{revision, id})
	if len(k.order) > 2*(len(k.byID)+len(k.gone))+64 {
		k.order = slices.DeleteFunc(k.order, func(c change) bool { return k.revision(c.id) != c.revision })
	}
}

// revision is the last one of an id, 0 for none.
func (k *Keys) revision(id string) int64 {
	if key := k.byID[id]; key != nil {
		return key.Revision
	}
	return k.gone[id].revision
}

// prune tells deletions no more that have been told for long enough. They stay known
// while the process lasts, each by its id and revision: a directory that is read later,
// which was not in use meanwhile or is a copy from before, may have the key.
func (k *Keys) prune() {
	now := k.s.now().UnixMilli()
	if now-k.pruned < pruneEvery.Milliseconds() && now >= k.pruned {
		return
	}
	k.pruned = now
	past := now - remembered.Milliseconds()
	for id, g := range k.gone {
		if g.at < past {
			k.buried[id] = g.revision
			delete(k.gone, id)
		}
	}
}

// List implements store.Keys.
func (k *Keys) List(ctx context.Context, after string, n int) ([]store.Key, error) {
	if err := k.s.gate.pass(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil {
		k.ids = make([]string, 0, len(k.byID))
		for id := range k.byID {
			k.ids = append(k.ids, id)
		}
		slices.Sort(k.ids)
	}
	i, found := slices.BinarySearch(k.ids, after)
	if found {
		i++
	}
	ids := k.ids[i:]
	ids = ids[:min(max(n, 0), len(ids))]
	list := make([]store.Key, len(ids))
	for i, id := range ids {
		list[i] = copied(k.byID[id])
	}
	return list, nil
}

// Changes implements store.Keys.
func (k *Keys) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	if err := k.s.gate.pass(ctx); err != nil {
		return store.KeyChanges{}, err
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	ch := store.KeyChanges{Sum: k.sum, Last: k.last}
	i, _ := slices.BinarySearchFunc(k.order, since+1, func(c change, r int64) int { return cmp.Compare(c.revision, r) })
	for _, c := range k.order[i:] {
		if len(ch.Keys) >= n {
			break
		}
		switch key := k.byID[c.id]; {
		case key != nil && key.Revision == c.revision:
			ch.Keys = append(ch.Keys, copied(key))
		case key == nil && k.gone[c.id].revision == c.revision:
			ch.Keys = append(ch.Keys, store.Key{ID: c.id, Revision: c.revision, Deleted: true})
		}
	}
	return ch, nil
}

// Interface guard
var _ store.Keys = (*Keys)(nil)
