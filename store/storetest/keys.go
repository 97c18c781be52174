package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// OpenKeys returns a store of keys without any. A store that has no clock of its own
// must use the one it is given.
type OpenKeys = func(t *testing.T, now func() time.Time) store.Keys

// RunKeys holds a store to every sentence of store.Keys.
func RunKeys(t *testing.T, open OpenKeys) {
	for _, tt := range []struct {
		name string
		run  func(f *keysFixture)
	}{
		{"gives keys back as they were put", testKeyFields},
		{"what there is not", testNoKey},
		{"ids and secrets are one key's", testKeyTaken},
		{"who changes a key must know it", testKeyChanged},
		{"of many who rotate at once one wins", testRotateAtOnce},
		{"putting again is putting once", testPutAgain},
		{"a secret that is rotated out leads nowhere", testRotatedOut},
		{"deleted keys leave nothing", testDeleteKey},
		{"keys that expired long ago are forgotten", testExpire},
		{"lists keys in pages", testListKeys},
		{"tells changes in pages", testKeyChanges},
		{"changes add up while keys are changed", testChangesMeanwhile},
		{"agrees with the model", testKeysTrace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &clock{at: time.Now()}
			tt.run(&keysFixture{t, c, open(t, c.now)})
		})
	}
}

type keysFixture struct {
	*testing.T
	clock *clock
	keys  store.Keys
}

// secret is the hash of a made-up secret.
func secret(name string) store.KeyHash { return sha256.Sum256([]byte(name)) }

// plainKey is a key that says no more than it must.
func plainKey(id string) store.Key { return store.Key{ID: id, Hash: secret(id)} }

func (f *keysFixture) put(k store.Key) store.Key {
	f.Helper()
	revision, err := f.keys.Put(f.Context(), k)
	if err != nil {
		f.Fatalf("putting %q: %v", k.ID, err)
	}
	k.Revision = revision
	return k
}

func (f *keysFixture) refuses(k store.Key, want error) {
	f.Helper()
	if revision, err := f.keys.Put(f.Context(), k); !errors.Is(err, want) || revision != 0 {
		f.Errorf("putting %q: got %d, %v, want %v", k.ID, revision, err, want)
	}
}

func (f *keysFixture) delete(id string) {
	f.Helper()
	if err := f.keys.Delete(f.Context(), id); err != nil {
		f.Fatalf("deleting %q: %v", id, err)
	}
}

// has fails the test unless the key is found as it is, by its id and its secrets.
func (f *keysFixture) has(want store.Key) {
	f.Helper()
	got, err := f.keys.Get(f.Context(), want.ID)
	if err != nil || !reflect.DeepEqual(got, want) {
		f.Errorf("by id: got %+v, %v\nwant %+v", got, err, want)
	}
	for _, h := range want.Hashes() {
		if got, err := f.keys.Find(f.Context(), h); err != nil || !reflect.DeepEqual(got, want) {
			f.Errorf("by secret: got %+v, %v\nwant %+v", got, err, want)
		}
	}
}

func (f *keysFixture) lacks(hashes ...store.KeyHash) {
	f.Helper()
	for _, h := range hashes {
		if got, err := f.keys.Find(f.Context(), h); !errors.Is(err, store.ErrNoKey) {
			f.Errorf("a secret leads to %+v, %v", got, err)
		}
	}
}

// expiry is an instant in whole milliseconds, finer than which no store tells them apart.
var expiry = time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC)

func testKeyFields(f *keysFixture) {
	full := store.Key{
		ID: "full", Hash: secret("new"), Application: `a"b{c}€`, Group: "gold", Models: []string{"gpt-*", "o3"},
		Expires: expiry, Disabled: true, Previous: secret("old"), Until: expiry.Add(-time.Hour), Created: expiry.Add(-time.Minute),
	}
	none := plainKey("none")
	none.Models = []string{}
	var last int64
	for _, k := range []store.Key{plainKey("plain"), full, none} {
		k = f.put(k)
		if k.Revision <= last || k.Revision >= 1<<52 {
			f.Errorf("revision %d follows %d", k.Revision, last)
		}
		last = k.Revision
		f.has(k)
	}
	full, err := f.keys.Get(f.Context(), "full")
	if err != nil {
		f.Fatal(err)
	}
	full.Disabled, full.Until, full.Previous, full.Models = false, time.Time{}, store.KeyHash{}, nil
	f.has(f.put(full))
	f.lacks(secret("old"))
}

func testNoKey(f *keysFixture) {
	f.lacks(secret("nobody"), store.KeyHash{})
	if got, err := f.keys.Get(f.Context(), "nobody"); !errors.Is(err, store.ErrNoKey) {
		f.Errorf("got %+v, %v", got, err)
	}
	if err := f.keys.Delete(f.Context(), "nobody"); !errors.Is(err, store.ErrNoKey) {
		f.Errorf("deleting: %v", err)
	}
	if list, err := f.keys.List(f.Context(), "", 10); len(list) != 0 || err != nil {
		f.Errorf("got %+v, %v", list, err)
	}
	if ch, err := f.keys.Changes(f.Context(), 0, 10); len(ch.Keys) != 0 || ch.Sum != 0 || ch.Last != 0 || err != nil {
		f.Errorf("got %+v, %v", ch, err)
	}
}

func testKeyTaken(f *keysFixture) {
	a := plainKey("a")
	a.Previous, a.Until = secret("a before"), expiry
	a = f.put(a)
	b := f.put(plainKey("b"))
	other := plainKey("a")
	other.Hash = secret("other")
	f.refuses(other, store.ErrKeyTaken)
	for _, h := range a.Hashes() {
		f.refuses(store.Key{ID: "c", Hash: h}, store.ErrKeyTaken)
		f.refuses(store.Key{ID: "c", Hash: secret("c"), Previous: h, Until: expiry}, store.ErrKeyTaken)
		stolen := b
		stolen.Hash = h
		f.refuses(stolen, store.ErrKeyTaken)
	}
	f.lacks(secret("c"), secret("other"))
	f.has(a)
	f.has(b)
}

func testKeyChanged(f *keysFixture) {
	k := f.put(plainKey("k"))
	later := k
	later.Group = "gold"
	later = f.put(later)
	if later.Revision <= k.Revision {
		f.Errorf("revision %d follows %d", later.Revision, k.Revision)
	}
	k.Group = "silver"
	f.refuses(k, store.ErrKeyChanged)
	f.has(later)
	unknown := plainKey("unknown")
	unknown.Revision = k.Revision
	f.refuses(unknown, store.ErrKeyChanged)
	f.lacks(unknown.Hash)
}

func testRotateAtOnce(f *keysFixture) {
	k := f.put(plainKey("k"))
	var (
		wg   sync.WaitGroup
		wins atomic.Int64
		won  atomic.Pointer[store.Key]
	)
	for i := range 8 {
		wg.Go(func() {
			mine := k
			mine.Hash, mine.Previous, mine.Until = secret(fmt.Sprint("new ", i)), k.Hash, expiry
			revision, err := f.keys.Put(context.Background(), mine)
			switch {
			case err == nil:
				mine.Revision = revision
				wins.Add(1)
				won.Store(&mine)
			case !errors.Is(err, store.ErrKeyChanged):
				f.Errorf("rotating: %v", err)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		f.Fatalf("%d of 8 have rotated", wins.Load())
	}
	f.has(*won.Load())
	for i := range 8 {
		if h := secret(fmt.Sprint("new ", i)); h != won.Load().Hash {
			f.lacks(h)
		}
	}
}

func testPutAgain(f *keysFixture) {
	k := f.put(plainKey("k"))
	again := k
	again.Revision = 0 // as of one whose answer was lost
	if got := f.put(again); got.Revision != k.Revision {
		f.Errorf("revision %d has become %d", k.Revision, got.Revision)
	}
	before := k
	k.Group = "gold"
	k = f.put(k)
	before.Group = "gold"
	if got := f.put(before); got.Revision != k.Revision {
		f.Errorf("revision %d has become %d", k.Revision, got.Revision)
	}
	f.has(k)
}

func testRotatedOut(f *keysFixture) {
	k := f.put(plainKey("k"))
	for i := range 3 {
		first := k.Previous
		k.Previous, k.Until = k.Hash, expiry
		k.Hash = secret(fmt.Sprint("secret ", i))
		k = f.put(k)
		f.has(k)
		f.lacks(first)
	}
	f.put(store.Key{ID: "other", Hash: secret("k")}) // nobody's any more
}

func testDeleteKey(f *keysFixture) {
	k := plainKey("k")
	k.Previous, k.Until = secret("before"), expiry
	k = f.put(k)
	f.delete("k")
	f.lacks(k.Hashes()...)
	f.refuses(k, store.ErrKeyChanged)
	if err := f.keys.Delete(f.Context(), "k"); !errors.Is(err, store.ErrNoKey) {
		f.Errorf("deleting again: %v", err)
	}
	again := f.put(store.Key{ID: "k", Hash: secret("before")})
	if again.Revision <= k.Revision {
		f.Errorf("revision %d follows %d", again.Revision, k.Revision)
	}
	f.has(again)
}

func testExpire(f *keysFixture) {
	now := f.clock.now().UTC().Truncate(time.Millisecond)
	keyUntil := func(id string, expires time.Time) store.Key {
		k := plainKey(id)
		k.Application, k.Expires = "app", expires
		return f.put(k)
	}
	r := &reader{keys: make(map[string]store.Key)}
	never := f.put(plainKey("never"))
	soon := keyUntil("soon", now.Add(time.Hour))
	lately := keyUntil("lately", now.Add(time.Hour-store.KeepExpired))
	want := map[string]store.Key{"never": never, "soon": soon, "lately": lately}
	var due []string
	for i := range 450 { // more than are looked at in one go
		k := keyUntil(fmt.Sprintf("k%03d", i), now.Add(-store.KeepExpired-time.Duration(i)*time.Minute))
		due = append(due, k.ID)
		if i == 0 {
			k.Previous, k.Until, k.Hash = k.Hash, now.Add(time.Hour), secret("next")
			f.put(k)
		}
	}
	if !r.read(f, f.keys, 100) || len(r.keys) != len(due)+len(want) {
		f.Fatalf("%d keys", len(r.keys))
	}
	for _, ids := range [][]string{due, nil} {
		got, err := f.keys.Expire(f.Context())
		if slices.Sort(got); err != nil || !slices.Equal(got, ids) {
			f.Errorf("got %q, %v", got, err)
		}
	}
	// who follows the store hears of it, and who begins anew
	for _, r := range []*reader{r, {keys: make(map[string]store.Key)}} {
		if !r.read(f, f.keys, 100) || !reflect.DeepEqual(r.keys, want) {
			f.Errorf("got %+v", r.keys)
		}
	}
	for _, k := range want {
		f.has(k)
	}
	f.lacks(secret("k000"), secret("next"), secret("k449"))
	f.put(plainKey("k000")) // whose id is free
}

func testListKeys(f *keysFixture) {
	ids := []string{"B", "a", "a b", "a-1", "a_", "ab", "b", "[", "(a", "€", "z"}
	for _, id := range ids {
		f.put(plainKey(id))
	}
	slices.Sort(ids)
	for n := 1; n <= len(ids)+1; n++ {
		var got []string
		for after := ""; ; {
			page, err := f.keys.List(f.Context(), after, n)
			if err != nil || len(page) > n {
				f.Fatalf("a page of %d has %d, %v", n, len(page), err)
			}
			for _, k := range page {
				got = append(got, k.ID)
				if k.Hash != secret(k.ID) || k.Revision == 0 {
					f.Errorf("got %+v", k)
				}
			}
			if len(page) < n {
				break
			}
			after = page[n-1].ID
		}
		if !slices.Equal(got, ids) {
			f.Errorf("in pages of %d: got %q, want %q", n, got, ids)
		}
	}
	if page, err := f.keys.List(f.Context(), "aa", 1); err != nil || len(page) != 1 || page[0].ID != "ab" {
		f.Errorf("after an id that there is not: %+v, %v", page, err)
	}
}
