package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

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
			if ch.Last < r.since || ch.Last == 0 && len(r.keys) > 0 {
				t.Fatalf("the last revision is %d, and there is %d", ch.Last, r.since)
			}
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
				if there && bytes.Equal(old.Record(), k.Record()) {
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
