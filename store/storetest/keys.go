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

	"pgregory.net/rapid"

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

// instants are whole milliseconds, as far as a store tells them apart.
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
	if ch, err := f.keys.Changes(f.Context(), 0, 10); len(ch.Keys) != 0 || ch.Sum != 0 || err != nil {
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

// reader keeps up with a store as a replica does.
type reader struct {
	keys  map[string]store.Key
	since int64
	sum   int64
}

// read catches up in pages and returns whether it has the sum of the store.
func (r *reader) read(t tester, keys store.Keys, n int) bool {
	t.Helper()
	for {
		ch, err := keys.Changes(context.Background(), r.since, n)
		if err != nil {
			t.Fatalf("reading changes: %v", err)
		}
		if len(ch.Keys) > n {
			t.Fatalf("a page of %d has %d", n, len(ch.Keys))
		}
		for _, k := range ch.Keys {
			if k.Revision <= r.since {
				t.Fatalf("revision %d follows %d", k.Revision, r.since)
			}
			r.since = k.Revision
			from := r.keys[k.ID].Revision
			if k.Deleted {
				r.sum = store.AddRevision(r.sum, from, 0)
				delete(r.keys, k.ID)
				continue
			}
			r.sum = store.AddRevision(r.sum, from, k.Revision)
			r.keys[k.ID] = k
		}
		if len(ch.Keys) < n {
			return r.sum == ch.Sum
		}
	}
}

func testKeyChanges(f *keysFixture) {
	r := &reader{keys: make(map[string]store.Key)}
	want := make(map[string]store.Key)
	for round := range 4 {
		for i := range 5 {
			k := f.put(plainKey(fmt.Sprintf("%d-%d", round, i)))
			want[k.ID] = k
		}
		if round > 0 {
			id := fmt.Sprintf("%d-0", round-1)
			f.delete(id)
			delete(want, id)
			k := want[fmt.Sprintf("%d-1", round-1)]
			k.Group = "gold"
			want[k.ID] = f.put(k)
		}
		if !r.read(f, f.keys, 1+round) {
			f.Error("the sums differ")
		}
		if !reflect.DeepEqual(r.keys, want) {
			f.Fatalf("round %d: got %+v\nwant %+v", round, r.keys, want)
		}
	}
	late := &reader{keys: make(map[string]store.Key)}
	if !late.read(f, f.keys, 3) || !reflect.DeepEqual(late.keys, want) {
		f.Errorf("from the start: got %+v\nwant %+v", late.keys, want)
	}
	// one who has missed a deletion finds out
	missed := &reader{keys: map[string]store.Key{"ghost": {ID: "ghost", Revision: 7}}, since: r.since, sum: store.AddRevision(r.sum, 0, 7)}
	if missed.read(f, f.keys, 10) {
		f.Error("one key more has the same sum")
	}
}

func testChangesMeanwhile(f *keysFixture) {
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("%d-%d", w, i%7)
				k, err := f.keys.Get(context.Background(), id)
				switch {
				case errors.Is(err, store.ErrNoKey):
					_, err = f.keys.Put(context.Background(), store.Key{ID: id, Hash: secret(fmt.Sprint(w, i))})
				case i%3 == 0:
					err = f.keys.Delete(context.Background(), id)
				default:
					k.Group = fmt.Sprint("g", i)
					_, err = f.keys.Put(context.Background(), k)
				}
				if err != nil {
					f.Errorf("changing %s: %v", id, err)
				}
			}
		})
	}
	r := &reader{keys: make(map[string]store.Key)}
	for range 10 {
		if !r.read(f, f.keys, 5) {
			f.Error("the sums differ while keys are changed")
		}
	}
	wg.Wait()
	if !r.read(f, f.keys, 5) {
		f.Error("the sums differ in the end")
	}
	list, err := f.keys.List(f.Context(), "", 100)
	if err != nil || len(list) != len(r.keys) {
		f.Fatalf("%d keys are listed, %d were told, %v", len(list), len(r.keys), err)
	}
	for _, k := range list {
		if !reflect.DeepEqual(k, r.keys[k.ID]) {
			f.Errorf("got %+v, want %+v", r.keys[k.ID], k)
		}
	}
}

// testKeysTrace compares random changes with a map.
func testKeysTrace(f *keysFixture) {
	run := 0
	rapid.Check(f.T, func(t *rapid.T) {
		run++
		prefix := fmt.Sprintf("%d-", run)
		ctx := context.Background()
		model := make(map[string]store.Key)
		taken := func(h store.KeyHash, but string) bool {
			for id, k := range model {
				if id != but && slices.Contains(k.Hashes(), h) {
					return true
				}
			}
			return false
		}
		r := &reader{keys: make(map[string]store.Key)}
		r.read(t, f.keys, 100)
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			id := prefix + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			old, there := model[id]
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				err := f.keys.Delete(ctx, id)
				if (err == nil) != there {
					t.Fatalf("deleting %s, there is %t: %v", id, there, err)
				}
				delete(model, id)
			case 1: // from what may be an older state
				k := store.Key{ID: id, Hash: secret(prefix + rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "secret"))}
				var want error
				switch {
				case there:
					want = store.ErrKeyTaken
				case taken(k.Hash, id):
					want = store.ErrKeyTaken
				}
				revision, err := f.keys.Put(ctx, k)
				if there && string(old.Record()) == string(k.Record()) {
					want = nil
				}
				if !errors.Is(err, want) {
					t.Fatalf("putting a new %s: %v, want %v", id, err, want)
				}
				if err == nil {
					k.Revision = revision
					model[id] = k
				}
			default:
				k := old
				k.ID = id
				k.Previous, k.Until, k.Hash = old.Hash, expiry, secret(prefix+rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "next"))
				if k.Revision == 0 {
					k.Revision = 1
				}
				var want error
				switch {
				case !there:
					want = store.ErrKeyChanged
				case taken(k.Hash, id):
					want = store.ErrKeyTaken
				}
				revision, err := f.keys.Put(ctx, k)
				if !errors.Is(err, want) {
					t.Fatalf("rotating %s: %v, want %v", id, err, want)
				}
				if err == nil {
					k.Revision = revision
					model[id] = k
				}
			}
			if !r.read(t, f.keys, 2) {
				t.Fatal("the sums differ")
			}
			for id, k := range model {
				if !reflect.DeepEqual(r.keys[id], k) {
					t.Fatalf("got %+v, want %+v", r.keys[id], k)
				}
			}
		}
	})
}
