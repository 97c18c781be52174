package memory

import (
	"context"
	"slices"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// expireBatch is how many keys are forgotten in one write.
const expireBatch = 1000

// Expire implements store.Keys.
func (k *Keys) Expire(ctx context.Context) (ids []string, err error) {
	if err := k.s.gate.pass(ctx); err != nil {
		return nil, err
	}
	for batch := range slices.Chunk(k.due(), expireBatch) {
		if ctx.Err() != nil {
			return ids, context.Cause(ctx)
		}
		gone, err := k.expire(batch)
		ids = append(ids, gone...)
		if err != nil {
			return ids, err
		}
	}
	return ids, nil
}

// due are the ids of keys that have expired long enough ago, sorted.
func (k *Keys) due() (ids []string) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for id := range k.byID {
		if k.over(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// over tells whether there is a key that has expired long enough ago. mu is locked.
func (k *Keys) over(id string) bool {
	key := k.byID[id]
	return key != nil && !key.Expires.IsZero() && !k.s.now().Before(key.Expires.Add(store.KeepExpired))
}

// expire forgets those of some keys that are over still.
func (k *Keys) expire(ids []string) (gone []string, err error) {
	k.writing.Lock()
	defer k.writing.Unlock()
	for _, id := range ids {
		if k.remove(id, k.over) {
			gone = append(gone, id)
		}
	}
	return gone, k.write(gone...)
}
