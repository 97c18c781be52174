package keyring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

var errDown = fmt.Errorf("down: %w", store.ErrUnavailable)

// backend is a store that may be away, slow or forgetful, and counts what it is asked.
type backend struct {
	store.Keys
	down      atomic.Bool
	asked     atomic.Int64
	loseNow   atomic.Bool // changes that are asked for now are lost
	closed    atomic.Bool
	partial   atomic.Bool // a part is lost
	failWhole atomic.Bool // keys can be followed and not be read from the start
}

func (b *backend) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	b.asked.Add(1)
	if b.closed.Load() {
		return store.KeyChanges{}, store.ErrKeysClosed
	}
	if b.down.Load() || since == 0 && b.failWhole.Load() {
		return store.KeyChanges{}, errDown
	}
	ch, err := b.Keys.Changes(ctx, since, n)
	if b.partial.Load() {
		ch.Partial = true
		ch.Keys = slices.DeleteFunc(ch.Keys, func(k store.Key) bool { return !k.Deleted })
	}
	if b.loseNow.Load() && since > 0 {
		ch.Keys = nil
	}
	return ch, err
}

func newBackend() *backend { return &backend{Keys: memory.New(memory.Options{}).Keys()} }

// value is what tests make of a key.
type value struct{ id, group string }

func valueOf(k *store.Key) (*value, error) {
	if k.Group == "bad" {
		return nil, errors.New("bad group")
	}
	return &value{k.ID, k.Group}, nil
}

func follow(b *backend, o Options) *Ring[*value] {
	r := New(valueOf, o)
	r.Start(b)
	return r
}

func refresh(t testing.TB, r *Ring[*value]) {
	t.Helper()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, keys store.Keys, k store.Key) store.Key {
	t.Helper()
	revision, err := keys.Put(context.Background(), k)
	if err != nil {
		t.Fatal(err)
	}
	k.Revision = revision
	return k
}

func key(id string) store.Key { return store.Key{ID: id, Hash: apikey.Hash(id)} }

// leads fails the test unless a secret leads to a key, or nowhere.
func leads(t testing.TB, r *Ring[*value], secret, id string) Entry[*value] {
	t.Helper()
	e, ok := r.Find(apikey.Hash(secret))
	switch {
	case ok != (id != ""):
		t.Errorf("%q is found: %t, want %q", secret, ok, id)
	case ok && e.Value.id != id:
		t.Errorf("%q leads to %q, want %q", secret, e.Value.id, id)
	}
	return e
}

func TestKeysAreFoundWithoutAskingTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		for i := range 2*page + 10 { // some pages
			put(t, b, key(fmt.Sprint(i)))
		}
		r := follow(b, Options{})
		defer r.Close()
		refresh(t, r)
		asked := b.asked.Load()
		for i := range 2*page + 10 {
			leads(t, r, fmt.Sprint(i), fmt.Sprint(i))
			leads(t, r, fmt.Sprint("no ", i), "")
		}
		if n := b.asked.Load() - asked; n != 0 || r.Len() != 2*page+10 || !r.Loaded() {
			t.Errorf("asked %d times, %d keys", n, r.Len())
		}
	})
}

func TestChangesActWithinTheIntervalWithoutBeingAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		k := put(t, b, key("a"))
		r := follow(b, Options{})
		defer r.Close()
		refresh(t, r)

		until := time.Now().Add(time.Hour)
		k.Previous, k.Until, k.Hash = k.Hash, until, apikey.Hash("new")
		put(t, b, k)
		put(t, b, key("b"))
		time.Sleep(defaultEvery)
		synctest.Wait()
		leads(t, r, "new", "a")
		leads(t, r, "b", "b")
		if e := leads(t, r, "a", "a"); e.Until != until.UnixMilli() {
			t.Errorf("the previous secret works until %d, want %d", e.Until, until.UnixMilli())
		}
		if e := leads(t, r, "new", "a"); e.Until != 0 {
			t.Errorf("the current secret works until %d", e.Until)
		}

		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(defaultEvery)
		synctest.Wait()
		leads(t, r, "new", "")
		leads(t, r, "a", "")
		leads(t, r, "b", "b")
		if r.Len() != 1 {
			t.Errorf("%d keys", r.Len())
		}
	})
}

func TestASecretThatChangesHandsStaysWithItsNewKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		a := put(t, b, key("a"))
		r := follow(b, Options{})
		defer r.Close()
		refresh(t, r)
		secret := a.Hash
		a.Hash = apikey.Hash("other")
		a = put(t, b, a)
		put(t, b, store.Key{ID: "b", Hash: secret})
		a.Group = "later than b"
		put(t, b, a)
		refresh(t, r)
		leads(t, r, "a", "b")
		leads(t, r, "other", "a")
	})
}

func TestAFloodOfQuestionsAsksTheStoreTenTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		r := follow(b, Options{})
		defer r.Close()
		refresh(t, r)
		asked := b.asked.Load()
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				for range 20 {
					if err := r.Refresh(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		began := time.Now()
		wg.Wait()
		took := time.Since(began)
		if n := b.asked.Load() - asked; float64(n) > took.Seconds()*10+1 || took > 3*time.Second {
			t.Errorf("asked %d times in %s", n, took)
		}
	})
}

func TestAnAwayStoreIsToldOnceAndKeysStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away, back atomic.Int64
		b := newBackend()
		put(t, b, key("a"))
		r := follow(b, Options{
			OnAway: func(err error) {
				if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("away: %v", err)
				}
				away.Add(1)
			},
			OnBack: func(d time.Duration) {
				if d < 59*time.Second || d > 61*time.Second {
					t.Errorf("back after %s", d)
				}
				back.Add(1)
			},
		})
		defer r.Close()
		refresh(t, r)
		b.down.Store(true)
		if err := r.Refresh(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("refreshing: %v", err)
		}
		time.Sleep(time.Minute)
		leads(t, r, "a", "a")
		if !r.Away() || r.Age() < time.Minute || r.Age() > time.Minute+defaultEvery || away.Load() != 1 || back.Load() != 0 {
			t.Errorf("away %t for %s, told %d and %d times", r.Away(), r.Age(), away.Load(), back.Load())
		}
		b.down.Store(false)
		refresh(t, r)
		synctest.Wait()
		if r.Away() || r.Age() > defaultEvery || away.Load() != 1 || back.Load() != 1 {
			t.Errorf("away %t for %s, told %d and %d times", r.Away(), r.Age(), away.Load(), back.Load())
		}
	})
}

func TestAStoreThatIsAwayFromTheStartIsFollowedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		put(t, b, key("a"))
		b.down.Store(true)
		r := follow(b, Options{})
		defer r.Close()
		synctest.Wait()
		leads(t, r, "a", "")
		if !r.Away() || r.Loaded() || r.Age() < time.Hour || r.Len() != 0 {
			t.Errorf("away %t, loaded %t, age %s", r.Away(), r.Loaded(), r.Age())
		}
		b.down.Store(false)
		time.Sleep(2 * defaultEvery)
		synctest.Wait()
		leads(t, r, "a", "a")
	})
}

// slow is a store that can tell some keys at a time in the time that it has, and fails
// every third time all the same.
type slow struct {
	store.Keys
	most        int
	asked, told atomic.Int64
}

func (s *slow) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	if asked := s.asked.Add(1); n > s.most || asked%3 == 0 {
		return store.KeyChanges{}, errDown
	}
	ch, err := s.Keys.Changes(ctx, since, n)
	s.told.Add(int64(len(ch.Keys)))
	return ch, err
}

func TestReadingAllKeysGoesOnWhereItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		b := &slow{Keys: memory.New(memory.Options{}).Keys(), most: 200}
		for i := range n {
			put(t, b, key(fmt.Sprint(i)))
		}
		r := New(valueOf, Options{})
		r.Start(b)
		defer r.Close()
		for range 600 { // a minute, at most twice the work
			if r.Loaded() {
				break
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if !r.Loaded() || r.Len() != n || b.told.Load() != n {
			t.Errorf("loaded %t, %d keys, told %d", r.Loaded(), r.Len(), b.told.Load())
		}
	})
}

func TestWhatIsDeletedWhileAllKeysAreReadIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		b := &slow{Keys: memory.New(memory.Options{Now: func() time.Time { return now }}).Keys(), most: 100}
		for i := range 500 {
			put(t, b, key(fmt.Sprint(i)))
		}
		r := New(valueOf, Options{})
		defer r.Close()
		for !r.sawSome() {
			_, _ = r.sync(b)
		}
		if err := b.Delete(t.Context(), "0"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(2 * time.Hour) // the deletion is told no more
		put(t, b, key("late"))
		for !r.Loaded() {
			_, _ = r.sync(b)
		}
		leads(t, r, "0", "")
		leads(t, r, "late", "late")
		if r.Len() != 500 {
			t.Errorf("%d keys", r.Len())
		}
	})
}

// sawSome tells whether some keys have been read and not all.
func (r *Ring[T]) sawSome() bool { return r.partial != nil && r.partial.count.Load() > 0 }

func TestManyThatCannotReadAllKeysAskLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		b.down.Store(true)
		r := follow(b, Options{})
		defer r.Close()
		time.Sleep(time.Minute)
		if n := b.asked.Load(); n < 20 || n > 35 {
			t.Errorf("asked %d times in a minute", n)
		}
	})
}

// A store that goes back in time, as after a failover, is read anew.
func TestWhatTheStoreHasLostIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rereads atomic.Int64
		b := newBackend()
		put(t, b, key("lost"))
		put(t, b, key("kept"))
		r := follow(b, Options{OnReread: func(int) { rereads.Add(1) }})
		defer r.Close()
		refresh(t, r)
		// the other server never heard of the first key, and has another since
		time.Sleep(time.Millisecond) // no two changes have one revision
		other := memory.New(memory.Options{}).Keys()
		put(t, other, key("kept"))
		put(t, other, key("new"))
		b.Keys = other
		refresh(t, r)
		leads(t, r, "lost", "")
		leads(t, r, "kept", "kept")
		leads(t, r, "new", "new")
		if rereads.Load() != 1 {
			t.Errorf("read anew %d times", rereads.Load())
		}
	})
}

// A store that has never had a key has lost those that the ring has: they go on to work,
// and nobody can say whose others are.
func TestAnEmptiedStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told, away, back atomic.Int64
		b := newBackend()
		put(t, b, key("a"))
		put(t, b, key("b"))
		r := follow(b, Options{
			OnLost: func(err error, keys int) {
				if !errors.Is(err, ErrEmptied) {
					t.Errorf("told of %v", err)
				}
				told.Add(int64(keys))
			},
			OnAway: func(error) { away.Add(1) },
			OnBack: func(time.Duration) { back.Add(1) },
		})
		defer r.Close()
		refresh(t, r)
		b.down.Store(true) // it restarts
		time.Sleep(time.Second)
		full := b.Keys
		b.Keys = memory.New(memory.Options{}).Keys()
		b.down.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		leads(t, r, "a", "a")
		if err := r.Refresh(t.Context()); !errors.Is(err, ErrEmptied) || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("refreshing: %v", err)
		}
		if !r.Emptied() || !r.Away() || r.Age() < time.Minute || told.Load() != 2 || away.Load() != 1 || back.Load() != 0 {
			t.Errorf("emptied %t, away %t for %s, told of %d keys, %d times away, %d back", r.Emptied(), r.Away(), r.Age(), told.Load(), away.Load(), back.Load())
		}
		// what it had is restored
		b.Keys = full
		refresh(t, r)
		synctest.Wait()
		leads(t, r, "a", "a")
		if r.Emptied() || r.Away() || back.Load() != 1 {
			t.Errorf("emptied %t, away %t, %d times back", r.Emptied(), r.Away(), back.Load())
		}
		// or it starts anew
		time.Sleep(time.Millisecond)
		b.Keys = memory.New(memory.Options{}).Keys()
		if err := r.Refresh(t.Context()); !errors.Is(err, ErrEmptied) {
			t.Errorf("refreshing: %v", err)
		}
		put(t, b, key("new"))
		refresh(t, r)
		leads(t, r, "a", "")
		leads(t, r, "new", "new")
	})
}

func TestTheLastKeyCanBeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		put(t, b, key("a"))
		r := follow(b, Options{})
		defer r.Close()
		refresh(t, r)
		b.down.Store(true) // and the deletion is told no more when it is back
		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		gone := put(t, b.Keys, key("b"))
		if err := b.Delete(t.Context(), gone.ID); err != nil {
			t.Fatal(err)
		}
		b.down.Store(false)
		refresh(t, r)
		leads(t, r, "a", "")
		if r.Emptied() || r.Len() != 0 {
			t.Errorf("emptied %t, %d keys", r.Emptied(), r.Len())
		}
	})
}

// A store that has lost a part of what it keeps ends no key, but for those that it knows
// to be deleted.
func TestAStoreThatHasLostAPartIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		b := newBackend()
		put(t, b, key("a"))
		put(t, b, key("b"))
		r := follow(b, Options{OnLost: func(err error, _ int) {
			if !errors.Is(err, ErrPartial) {
				t.Errorf("told of %v", err)
			}
			told.Add(1)
		}})
		defer r.Close()
		refresh(t, r)
		b.partial.Store(true)
		if err := b.Delete(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := r.Refresh(t.Context()); !errors.Is(err, ErrPartial) {
				t.Errorf("refreshing: %v", err)
			}
		}
		leads(t, r, "a", "a")
		leads(t, r, "b", "")
		if !r.Away() || r.Emptied() || told.Load() != 1 {
			t.Errorf("away %t, emptied %t, told %d times", r.Away(), r.Emptied(), told.Load())
		}
		b.partial.Store(false)
		refresh(t, r)
		leads(t, r, "a", "a")
	})
}

func TestAMissedChangeIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		put(t, b, key("a"))
		r := follow(b, Options{})
		defer r.Close()
		refresh(t, r)
		b.loseNow.Store(true)
		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		refresh(t, r)
		leads(t, r, "a", "")
	})
}

// What was missed is not known as long as the keys cannot be read again.
func TestKeysThatCannotBeReadAgainAreNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rereads atomic.Int64
		b := newBackend()
		put(t, b, key("a"))
		r := follow(b, Options{OnReread: func(int) { rereads.Add(1) }})
		defer r.Close()
		refresh(t, r)
		b.failWhole.Store(true)
		b.loseNow.Store(true)
		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !r.Away() || r.Age() < 4*time.Second || rereads.Load() != 0 {
			t.Errorf("away %t for %s, read again %d times", r.Away(), r.Age(), rereads.Load())
		}
		b.failWhole.Store(false)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		leads(t, r, "a", "")
		if r.Away() || r.Age() > defaultEvery || rereads.Load() != 1 {
			t.Errorf("away %t for %s, read again %d times", r.Away(), r.Age(), rereads.Load())
		}
	})
}

func TestAStoreThatDisagreesWithItselfIsNotReadAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &wrongSum{Keys: memory.New(memory.Options{}).Keys()}
		for i := range 10 {
			put(t, b, key(fmt.Sprint(i)))
		}
		r := New(valueOf, Options{})
		r.Start(b)
		defer r.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		leads(t, r, "3", "3")
		if n := b.whole.Load(); n > 8 {
			t.Errorf("read as a whole %d times in a minute", n)
		}
		if r.Away() || r.Age() > rereadApart+defaultEvery {
			t.Errorf("away %t for %s", r.Away(), r.Age())
		}
	})
}

type wrongSum struct {
	store.Keys
	whole atomic.Int64
}

func (w *wrongSum) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	if since == 0 {
		w.whole.Add(1)
	}
	ch, err := w.Keys.Changes(ctx, since, n)
	ch.Sum++
	return ch, err
}

func TestAKeyThatCannotBeUsedIsToldAndLeadsNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var bad atomic.Value
		b := newBackend()
		k := put(t, b, key("a"))
		r := follow(b, Options{OnBad: func(id string, _ error) { bad.Store(id) }})
		defer r.Close()
		refresh(t, r)
		k.Group = "bad"
		k = put(t, b, k)
		refresh(t, r)
		leads(t, r, "a", "")
		if bad.Load() != "a" {
			t.Errorf("told of %v", bad.Load())
		}
		k.Group = "good"
		put(t, b, k)
		refresh(t, r)
		leads(t, r, "a", "a")
	})
}

// damaging is a store in which some records cannot be read.
type damaging struct {
	store.Keys
	id atomic.Pointer[string]
}

func (d *damaging) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	ch, err := d.Keys.Changes(ctx, since, n)
	for i := range ch.Keys {
		if k := &ch.Keys[i]; k.ID == *d.id.Load() && !k.Deleted {
			*k = store.Key{ID: k.ID, Revision: k.Revision, Disabled: true, Damaged: true}
		}
	}
	return ch, err
}

func TestADamagedKeyIsToldOnceAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		d := &damaging{Keys: b}
		id := "a"
		d.id.Store(&id)
		put(t, b, key("a"))
		put(t, b, key("b"))
		var told []string
		r := New(valueOf, Options{OnBad: func(id string, err error) {
			if !errors.Is(err, store.ErrDamaged) {
				t.Errorf("told %v", err)
			}
			told = append(told, id)
		}})
		r.Start(d)
		defer r.Close()
		refresh(t, r)
		leads(t, r, "a", "")
		leads(t, r, "b", "b")
		if r.Len() != 2 || r.Unusable() != 1 {
			t.Errorf("%d keys, %d unusable", r.Len(), r.Unusable())
		}
		b.loseNow.Store(true) // all are read again, and nobody is told again
		put(t, b, key("c"))
		refresh(t, r)
		b.loseNow.Store(false)
		time.Sleep(2 * rereadApart)
		refresh(t, r)
		if !slices.Equal(told, []string{"a"}) || r.Unusable() != 1 || r.Len() != 3 {
			t.Errorf("told of %q, %d of %d unusable", told, r.Unusable(), r.Len())
		}
		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		refresh(t, r)
		if r.Unusable() != 0 {
			t.Errorf("%d unusable", r.Unusable())
		}
	})
}

func TestASeededRingGoesOnFromTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		put(t, b, key("a"))
		put(t, b, key("b"))
		old := follow(b, Options{})
		defer old.Close()
		refresh(t, old)
		b.down.Store(true)
		time.Sleep(time.Minute)
		r := New(valueOf, Options{})
		r.Seed(New(valueOf, Options{})) // which knows nothing
		if r.Loaded() {
			t.Error("it is loaded")
		}
		r.Seed(old)
		r.Start(b)
		defer r.Close()
		synctest.Wait()
		leads(t, r, "a", "a")
		if !r.Away() || r.Age() < time.Minute {
			t.Errorf("away %t for %s", r.Away(), r.Age())
		}
		b.down.Store(false)
		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		refresh(t, r)
		leads(t, r, "a", "")
		leads(t, r, "b", "b")
		if r.Away() || r.rereads > 0 {
			t.Errorf("away %t, read again %d times", r.Away(), r.rereads)
		}
		refresh(t, old)
		leads(t, old, "a", "")
		leads(t, old, "b", "b")
	})
}

// A store that is closed first, as when the process ends, is not told to be away.
func TestAClosedStoreIsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackend()
		put(t, b, key("a"))
		r := follow(b, Options{OnAway: func(err error) { t.Errorf("away: %v", err) }})
		refresh(t, r)
		b.closed.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		leads(t, r, "a", "a")
		if err := r.Refresh(t.Context()); err == nil || !r.Away() {
			t.Errorf("refreshing: %v, away %t", err, r.Away())
		}
		r.Close()
	})
}

func TestClosing(t *testing.T) {
	New(valueOf, Options{}).Close()
	synctest.Test(t, func(t *testing.T) {
		r := follow(newBackend(), Options{})
		refresh(t, r)
		r.Close()
		r.Close()
		if err := r.Refresh(t.Context()); err == nil {
			t.Error("refreshed after the end")
		}
	})
}

func TestRefreshEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(valueOf, Options{}).Refresh(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
