package limit

import "sync"

// recent remembers what is used, by key. What was not used for long is forgotten: the old
// ones, when there are enough young ones. The zero value is empty.
type recent[K comparable, V any] struct {
	mu         sync.RWMutex
	young, old map[K]V
}

// get returns what is remembered of a key, or what fresh makes of it. At least most keys
// are remembered, and at most twice as many.
func (r *recent[K, V]) get(key K, most int, fresh func(K) V) V {
	r.mu.RLock()
	v, ok := r.young[key]
	r.mu.RUnlock()
	if ok {
		return v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok = r.young[key]; ok {
		return v
	}
	if v, ok = r.old[key]; !ok {
		v = fresh(key)
	}
	if r.young == nil || len(r.young) >= most {
		r.old, r.young = r.young, make(map[K]V)
	}
	r.young[key] = v
	return v
}

// look returns what is remembered of a key, the zero value if nothing is. That does not
// count as use.
func (r *recent[K, V]) look(key K) V {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if v, ok := r.young[key]; ok {
		return v
	}
	return r.old[key]
}
