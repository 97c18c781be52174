package keyring

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// run follows the store until the ring is closed.
func (r *Ring[T]) run(keys store.Keys) {
	defer close(r.done)
	var t teller
	for {
		began := time.Now()
		err := r.round(keys)
		if r.stopping.Err() != nil || errors.Is(err, store.ErrKeysClosed) {
			return // a store that is closed is no outage
		}
		t.tell(&r.o, began, err, r.Len())
		if !r.pause(began) {
			return
		}
	}
}

// teller tells of a store that is away, once.
type teller struct {
	since time.Time // the store is away since
	lost  error     // that was told last
}

func (t *teller) tell(o *Options, began time.Time, err error, keys int) {
	if err == nil {
		if !t.since.IsZero() && o.OnBack != nil {
			o.OnBack(time.Since(t.since))
		}
		*t = teller{}
		return
	}
	first := t.since.IsZero()
	if first {
		t.since = began
	}
	switch {
	case errors.Is(err, ErrEmptied), errors.Is(err, ErrPartial):
		if !errors.Is(err, t.lost) && o.OnLost != nil {
			o.OnLost(err, keys)
		}
		t.lost = err
	case first && o.OnAway != nil:
		o.OnAway(err)
	}
}

// pause waits until the store is to be asked again. It returns false if it is not.
func (r *Ring[T]) pause(began time.Time) bool {
	every := r.o.Every
	if r.failed > 0 {
		// Many gateways that start together are not to ask for all keys together.
		every <<= min(r.failed-1, backoffMost)
		every += rand.N(every/4 + 1)
	}
	timer := time.NewTimer(every)
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
	var synced bool
	synced, rd.err = r.sync(keys)
	r.emptied.Store(errors.Is(rd.err, ErrEmptied))
	r.away.Store(rd.err != nil)
	if synced {
		r.synced.Store(&at)
	}
	close(rd.done)
	return rd.err
}

// sync makes the ring like the store. synced tells whether it is.
func (r *Ring[T]) sync(keys store.Keys) (synced bool, err error) {
	st := r.state.Load()
	if st != nil {
		seen, err := r.catchUp(keys, st)
		switch {
		case err != nil:
			return false, err
		case seen.Sum == st.sum:
			r.rereads = 0
			return true, nil
		case st.lost(seen):
			return false, ErrEmptied
		}
		// What was missed may be a key that works no more. But a store that disagrees
		// with itself must not be read all the time.
		if r.rereads > 0 && time.Since(r.reread) < rereadApart {
			return false, nil
		}
	}
	whole, seen, err := r.readAll(keys)
	switch {
	case err != nil:
		return false, err
	case st != nil && st.lost(seen):
		return false, ErrEmptied
	}
	r.failed = 0
	r.state.Store(whole)
	if st != nil {
		r.reread = time.Now()
		r.rereads++
		if r.o.OnReread != nil {
			r.o.OnReread(r.rereads)
		}
	}
	return true, nil
}

// readAll reads all keys. What an earlier attempt has read needs not be read again.
func (r *Ring[T]) readAll(keys store.Keys) (whole *state[T], seen store.KeyChanges, err error) {
	for {
		resumed := r.partial != nil
		if whole = r.partial; !resumed {
			whole = newState[T]()
		}
		since := whole.since
		seen, err = r.catchUp(keys, whole)
		if r.partial = nil; err != nil {
			if !errors.Is(err, ErrPartial) { // which has told less than all
				r.partial = whole
			}
			if r.failed++; whole.since > since {
				r.failed = 1 // it gets on
			}
			return nil, seen, err
		}
		if !resumed || seen.Sum == whole.sum {
			return whole, seen, nil
		}
		// The store has forgotten meanwhile what it had told.
	}
}

// lost tells whether a store that says so has lost all keys, of which there were some.
func (st *state[T]) lost(seen store.KeyChanges) bool {
	return seen.Last == 0 && st.count.Load() > 0
}

// catchUp takes in all that has changed, and returns what the store said last. If the
// state has the same keys then, it has the same sum.
func (r *Ring[T]) catchUp(keys store.Keys, st *state[T]) (seen store.KeyChanges, err error) {
	for {
		n := r.page
		ch, err := r.changes(keys, st.since, n)
		if err != nil {
			r.page = max(n/4, leastPage) // it may have been too much at a time
			return ch, err
		}
		r.page = min(2*n, page)
		r.take(st, ch.Keys)
		switch {
		case ch.Partial:
			return ch, ErrPartial
		case len(ch.Keys) < n:
			return ch, nil
		}
	}
}

// take takes changes in.
func (r *Ring[T]) take(st *state[T], changed []store.Key) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i := range changed {
		k := &changed[i]
		if err := st.apply(k, r.compile); err != nil && r.o.OnBad != nil {
			r.o.OnBad(k.ID, err)
		}
	}
}

func (r *Ring[T]) changes(keys store.Keys, since int64, n int) (store.KeyChanges, error) {
	ctx, cancel := context.WithTimeout(r.stopping, patience)
	defer cancel()
	return keys.Changes(ctx, since, n)
}
