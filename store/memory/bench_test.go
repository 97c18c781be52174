package memory

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// takes returns n takes as a limiter makes them: one of requests, the others of
// tokens, with limits that are never reached.
func takes(n int) []store.Take {
	units := []string{"minute", "hour", "day", "week", "month"}
	takes := make([]store.Take, n)
	for i := range takes {
		w := must(store.Calendar(units[i%len(units)], time.UTC))
		takes[i] = store.Take{Rule: &store.Rule{ID: fmt.Sprint("tokens per ", i), Window: w}, Limit: 1 << 60, Need: 100, Hold: 100}
	}
	takes[0].Need, takes[0].Charge, takes[0].Hold = 1, 1, 0
	return takes
}

// pair reserves and settles one call.
func pair(b *testing.B, s *Store, r *store.Reservation, results []store.Result, actual []int64) {
	k, err := s.Reserve(b.Context(), r, results)
	if err != nil || k == nil {
		b.Fatal(k, err)
	}
	s.Settle(k, actual)
}

func actuals(n int) []int64 {
	actual := make([]int64, n)
	for i := range actual {
		actual[i] = 1
	}
	return actual
}

func BenchmarkReserveSettle(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			s := New(Options{})
			r := &store.Reservation{Entity: app(0), Takes: takes(n), Lease: time.Minute}
			results, actual := make([]store.Result, n), actuals(n)
			b.ReportAllocs()
			for b.Loop() {
				pair(b, s, r, results, actual)
			}
		})
	}
}

// In a store with as many calls under way on the one key, as a shared counter of
// long streams has.
func BenchmarkReserveSettleAmongStreams(b *testing.B) {
	for _, streams := range []int{100, 10_000} {
		b.Run(fmt.Sprint("streams=", streams), func(b *testing.B) {
			s := New(Options{})
			r := &store.Reservation{Entity: app(0), Takes: takes(3), Lease: time.Hour}
			results, actual := make([]store.Result, 3), actuals(3)
			for range streams {
				if k, err := s.Reserve(b.Context(), r, results); err != nil || k == nil {
					b.Fatal(k, err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				pair(b, s, r, results, actual)
			}
		})
	}
}

func BenchmarkReserveSettleHotKeyParallel(b *testing.B) {
	s := New(Options{})
	takes := takes(3)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := &store.Reservation{Entity: app(0), Takes: takes, Lease: time.Minute}
		results, actual := make([]store.Result, 3), actuals(3)
		for pb.Next() {
			pair(b, s, r, results, actual)
		}
	})
}

func BenchmarkReserveSettleUniformParallel(b *testing.B) {
	const n = 1_000_000
	s := New(Options{MaxEntities: n})
	takes, entities := takes(3), make([]store.Entity, n)
	for i := range entities {
		entities[i] = app(i)
		pair(b, s, &store.Reservation{Entity: entities[i], Takes: takes, Lease: time.Minute}, make([]store.Result, 3), actuals(3))
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := &store.Reservation{Takes: takes, Lease: time.Minute}
		results, actual := make([]store.Result, 3), actuals(3)
		for pb.Next() {
			r.Entity = entities[rand.IntN(n)]
			pair(b, s, r, results, actual)
		}
	})
}

// What noting changes and writing them in the background costs calls.
func BenchmarkReserveSettlePersisted(b *testing.B) {
	s := New(Options{})
	if _, err := s.Persist(b.TempDir()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r := &store.Reservation{Entity: app(0), Takes: takes(3), Lease: time.Minute}
	results, actual := make([]store.Result, 3), actuals(3)
	b.ReportAllocs()
	for b.Loop() {
		pair(b, s, r, results, actual)
	}
}

// A million entities with three windows: written once, rewritten, and read.
func BenchmarkPersist(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	s := New(Options{})
	if _, err := s.Persist(dir); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		for _, r := range []*store.Rule{hourly, daily, monthly} {
			if err := s.Adjust(b.Context(), app(i), store.Amount{Rule: r, Amount: 5_000}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := s.Sync(); err != nil {
		b.Fatal(err)
	}
	b.Run("rewrite", func(b *testing.B) {
		for b.Loop() {
			if err := s.journal.rewrite(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(s.journal.log.Size())/n, "B/entity")
	})
	b.Run("flush=10000", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			for i := range 10_000 {
				if err := s.Adjust(b.Context(), app(i), store.Amount{Rule: hourly, Amount: 1}); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
			if err := s.journal.flush(); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			s := New(Options{})
			found, err := s.Persist(dir)
			if err != nil || found.Entities != n {
				b.Fatal(found, err)
			}
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// What a flood of new consumers costs a store that is full.
func BenchmarkRefuseWhenFull(b *testing.B) {
	s := New(Options{MaxEntities: 1000})
	takes := takes(3)
	results := make([]store.Result, 3)
	for i := range 1000 {
		pair(b, s, &store.Reservation{Entity: app(i), Takes: takes, Lease: time.Minute}, results, actuals(3))
	}
	r := &store.Reservation{Entity: app(1000), Takes: takes, Lease: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		if k, err := s.Reserve(b.Context(), r, results); err == nil || k != nil {
			b.Fatal(k, err)
		}
	}
}

func BenchmarkEntities(b *testing.B) {
	const n = 100_000
	s := New(Options{MaxEntities: n})
	for i := range n {
		if err := s.Adjust(b.Context(), app(i), store.Amount{Rule: monthly, Amount: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Entities(b.Context(), "tokens", "", 100); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint("entities=", n), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(bytesPerEntity(b, n), "B/entity")
			}
		})
	}
}
