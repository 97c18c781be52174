package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// many is how many keys the benchmarks have.
const many = 100_000

func hashOf(i int) store.KeyHash {
	return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
}

// fill puts many keys into a store.
func fill(b *testing.B, keys store.Keys) {
	b.Helper()
	for i := range many {
		k := store.Key{ID: fmt.Sprintf("key-%016d", i), Hash: hashOf(i), Application: fmt.Sprint("app-", i%1000), Group: "gold"}
		if _, err := keys.Put(context.Background(), k); err != nil {
			b.Fatal(err)
		}
	}
}

func loaded(b *testing.B, keys store.Keys) *Ring[*value] {
	b.Helper()
	r := New(valueOf, Options{})
	if _, err := r.sync(keys); err != nil {
		b.Fatal(err)
	}
	if r.Len() != many {
		b.Fatalf("%d keys", r.Len())
	}
	return r
}

func BenchmarkFind(b *testing.B) {
	keys := memory.New(memory.Options{}).Keys()
	fill(b, keys)
	r := loaded(b, keys)
	for _, tc := range []struct {
		name string
		from int
	}{{"known", 0}, {"unknown", many}} {
		hashes := make([]store.KeyHash, many)
		for i := range hashes {
			hashes[i] = hashOf(tc.from + i)
		}
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					if _, ok := r.Find(hashes[i%many]); ok != (tc.from == 0) {
						b.Fatal(ok)
					}
				}
			})
		})
	}
}

// BenchmarkLoad is what it takes to know all keys of a store, and what it takes to find
// that nothing has changed.
func BenchmarkLoad(b *testing.B) {
	keys := memory.New(memory.Options{}).Keys()
	fill(b, keys)
	benchmarkLoad(b, keys)
}

func benchmarkLoad(b *testing.B, keys store.Keys) {
	b.Run("all", func(b *testing.B) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := loaded(b, keys)
		runtime.GC()
		runtime.ReadMemStats(&after)
		for b.Loop() {
			loaded(b, keys)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many, "B/key")
		runtime.KeepAlive(r)
	})
	b.Run("nothing", func(b *testing.B) {
		r := loaded(b, keys)
		for b.Loop() {
			if _, err := r.sync(keys); err != nil {
				b.Fatal(err)
			}
		}
	})
}
