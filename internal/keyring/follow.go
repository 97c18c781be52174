package keyring

import (
	"context"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// run follows the store until the ring is closed.
func (r *Ring[T]) run(keys store.Keys) {
	defer close(r.done)
	var since time.Time // the store is away since
	for {
		began := time.Now()
		err := r.round(keys)
		if r.stopping.Err() != nil {
			return
		}
		switch away := err != nil; {
		case away && since.IsZero():
			since = began
			if r.o.OnAway != nil {
				r.o.OnAway(err)
			}
		case !away && !since.IsZero():
			if r.o.OnBack != nil {
				r.o.OnBack(time.Since(since))
			}
			since = time.Time{}
		}
		if !r.pause(began) {
			return
		}
	}
}

// pause waits until the store is to be asked again. It returns false if it is not.
func (r *Ring[T]) pause(began time.Time) bool {
	timer := time.NewTimer(r.o.Every)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.wake:
	case <-r.stopping.Done():
		return false
	}
	timer.Reset(time.Until(began.Add(min(leastApart, r.o.Every))))
	select {
	case <-timer.C:
		return true
	case <-r.stopping.Done():
		return false
	}
}

// round asks the store once, and tells those who wait for it.
func (r *Ring[T]) round(keys store.Keys) error {
	r.mu.Lock()
	rd := r.next
	r.next = newRound()
	r.mu.Unlock()
	at := r.o.Now()
	rd.err = r.sync(keys)
	r.away.Store(rd.err != nil)
	if rd.err == nil {
		r.synced.Store(&at)
	}
	close(rd.done)
	return rd.err
}

// sync makes the ring like the store.
func (r *Ring[T]) sync(keys store.Keys) error {
	if st := r.state.Load(); st != nil {
		same, err := r.catchUp(keys, st)
		if err != nil || same {
			if same {
				r.rereads = 0
			}
			return err
		}
		// What was missed may be a key that works no more. But a store that disagrees
		// with itself must not be read all the time.
		if r.rereads > 0 && time.Since(r.reread) < rereadApart {
			return nil
		}
		r.reread = time.Now()
		r.rereads++
		if r.o.OnReread != nil {
			r.o.OnReread(r.rereads)
		}
	}
	// What a slow store has told before it failed needs not be read again.
	if r.partial == nil {
		r.partial = newState[T]()
	}
	if _, err := r.catchUp(keys, r.partial); err != nil {
		return err
	}
	r.state.Store(r.partial)
	r.partial = nil
	return nil
}

// catchUp takes in all that has changed, and tells whether the state has the same keys
// then as the store.
func (r *Ring[T]) catchUp(keys store.Keys, st *state[T]) (same bool, err error) {
	for {
		ch, err := r.changes(keys, st.since)
		if err != nil {
			return false, err
		}
		for i := range ch.Keys {
			k := &ch.Keys[i]
			if err := st.apply(k, r.compile); err != nil && r.o.OnBad != nil {
				r.o.OnBad(k.ID, err)
			}
		}
		if len(ch.Keys) < page {
			return st.sum == ch.Sum, nil
		}
	}
}

func (r *Ring[T]) changes(keys store.Keys, since int64) (store.KeyChanges, error) {
	ctx, cancel := context.WithTimeout(r.stopping, patience)
	defer cancel()
	return keys.Changes(ctx, since, page)
}
