// Package keyring holds all API keys of a store in memory, so that no call waits for
// the store: neither one with a key that there is, nor one with a key that there is not.
//
// One goroutine asks the store four times a second what has changed. Whether anything
// was missed, as after the store has lost its latest changes, the sum over all keys
// tells; then all of them are read again.
package keyring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

const (
	// defaultEvery is how often the store is asked.
	defaultEvery = 250 * time.Millisecond
	// leastApart is how long it is left alone, at least, whoever wants to know more.
	leastApart = 100 * time.Millisecond
	// page is how many keys are read at a time. Where that fails, it is a quarter, and no
	// less than leastPage.
	page      = 1000
	leastPage = 16
	// backoffMost is how many times the interval doubles while all keys have to be read
	// and cannot be.
	backoffMost = 3
	// patience bounds the reading of a page, beyond what the store allows itself.
	patience = 10 * time.Second
	// rereadApart is how long it takes, at least, from one time that all keys are read
	// because something was missed to the next.
	rereadApart = 10 * time.Second
)

// Options say how a ring is made. The zero value is usable.
type Options struct {
	// Every is how often the store is asked. The default is 250ms.
	Every time.Duration
	// Now is the clock. The default is time.Now.
	Now func() time.Time
	// OnAway is told that the store does not answer any more, and OnBack that it does
	// again. OnLost is told that it does answer, but has lost keys, by ErrEmptied or
	// ErrPartial, and how many the ring goes on to have; it is away as long. OnBad is told
	// once of a key that cannot be used, OnReread that all keys were read again and how
	// many times in a row. One goroutine calls them. Nil is nobody.
	OnAway   func(error)
	OnBack   func(away time.Duration)
	OnLost   func(err error, keys int)
	OnBad    func(id string, err error)
	OnReread func(times int)
}

// Entry is what a secret leads to.
type Entry[T any] struct {
	// Value is what was made of the key.
	Value T
	// Until is when this secret, which is the key's previous one, stops working, in Unix
	// milliseconds; 0 for the current one.
	Until int64
}

// Ring holds keys, each in a form of the user's. It is safe for use by many goroutines.
type Ring[T comparable] struct {
	compile func(*store.Key) (T, error)
	o       Options

	state   atomic.Pointer[state[T]] // nil until all keys have been read
	synced  atomic.Pointer[time.Time]
	began   atomic.Pointer[time.Time] // when it began to follow the store
	away    atomic.Bool
	emptied atomic.Bool

	start    sync.Once
	wake     chan struct{}
	stop     context.CancelFunc
	stopping context.Context
	done     chan struct{}

	mu   sync.Mutex
	next *round // the next time that the store is asked

	// What follows is the goroutine's that follows the store.
	partial *state[T]        // as far as all keys have been read, nil if they are not being read
	page    int              // how many are read at a time
	failed  int              // how many times in a row nothing could be read of all
	reread  time.Time        // when all keys were read again last, of the wall clock
	rereads int              // how many times in a row
	told    map[string]int64 // revisions of the keys that OnBad was told of last
}

// round is one time that the store is asked.
type round struct {
	done chan struct{}
	err  error // once done is closed
}

func newRound() *round { return &round{done: make(chan struct{})} }

// New returns a ring that knows nothing yet. compile makes of a key what Find returns,
// another value each time, and must not keep the key; one of which it cannot make
// anything is left out.
func New[T comparable](compile func(*store.Key) (T, error), o Options) *Ring[T] {
	o.Every = cmp.Or(o.Every, defaultEvery)
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Ring[T]{compile: compile, o: o, wake: make(chan struct{}, 1), done: make(chan struct{}), next: newRound(), page: page, told: make(map[string]int64)}
	r.stopping, r.stop = context.WithCancel(context.Background())
	return r
}

// Start begins to follow the store, the first time that it is called.
func (r *Ring[T]) Start(keys store.Keys) {
	r.start.Do(func() {
		now := r.o.Now()
		r.began.Store(&now)
		go r.run(keys)
	})
}

// Seed has the ring begin with what another knows of the same store, as old as that is,
// where it has not started. It goes on from there.
func (r *Ring[T]) Seed(from *Ring[T]) {
	at := from.synced.Load() // before the state, or that might be older than it says
	st := from.state.Load()
	if st == nil || at == nil {
		return
	}
	if r.state.CompareAndSwap(nil, st.clone()) {
		r.synced.CompareAndSwap(nil, at)
	}
}

// Close ends that.
func (r *Ring[T]) Close() {
	r.stop()
	r.start.Do(func() { close(r.done) })
	<-r.done
}

// Context ends when the ring is closed.
func (r *Ring[T]) Context() context.Context { return r.stopping }

// Loaded tells whether all keys have been read once.
func (r *Ring[T]) Loaded() bool { return r.state.Load() != nil }

// Away tells whether the ring could not be made like the store the last time that it
// was asked: it did not answer, or has lost all keys.
func (r *Ring[T]) Away() bool { return r.away.Load() }

// Emptied tells whether the store has lost all keys, which the ring still has. It has
// not if they were deleted.
func (r *Ring[T]) Emptied() bool { return r.emptied.Load() }

// Age is how long ago the ring was like the store, at most.
func (r *Ring[T]) Age() time.Duration {
	at := r.synced.Load()
	if at == nil {
		return 1<<63 - 1
	}
	return r.o.Now().Sub(*at)
}

// Behind is Age for those who watch: of a ring that was never like the store it is how
// long it has followed it, and 0 where it does not.
func (r *Ring[T]) Behind() time.Duration {
	for _, at := range []*time.Time{r.synced.Load(), r.began.Load()} {
		if at != nil {
			return r.o.Now().Sub(*at)
		}
	}
	return 0
}

// Find returns what a secret leads to.
func (r *Ring[T]) Find(h store.KeyHash) (Entry[T], bool) {
	st := r.state.Load()
	if st == nil {
		return Entry[T]{}, false
	}
	return st.find(h)
}

// Len is how many keys there are.
func (r *Ring[T]) Len() int {
	st := r.state.Load()
	if st == nil {
		return 0
	}
	return int(st.count.Load())
}

// Unusable is how many of these cannot be used.
func (r *Ring[T]) Unusable() int {
	st := r.state.Load()
	if st == nil {
		return 0
	}
	return int(st.bad.Load())
}

// Refresh returns when the ring knows all that was changed before the call, or why it
// does not. However many ask for it, the store is asked ten times a second at most.
func (r *Ring[T]) Refresh(ctx context.Context) error {
	r.mu.Lock()
	rd := r.next
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // it is to wake anyway
	}
	select {
	case <-rd.done:
		return rd.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.done:
		return errClosed
	}
}

// ErrEmptied means that the store has lost all keys, as a server that restarts without
// what it had written down.
var ErrEmptied = fmt.Errorf("the store has lost all keys: %w", store.ErrUnavailable)

// ErrPartial means that the store has lost a part of what it keeps, and cannot say which
// keys there are.
var ErrPartial = fmt.Errorf("the store has lost a part of its keys: %w", store.ErrUnavailable)

var errClosed = errors.New("keys are not followed any more")
