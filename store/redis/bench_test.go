//go:build unix

package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
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
		takes[i] = store.Take{Rule: &store.Rule{ID: fmt.Sprint("tokens per ", i), Window: w}, Limit: 1_000_000_000_000, Need: 100, Hold: 100}
	}
	takes[0].Need, takes[0].Charge, takes[0].Hold = 1, 1, 0
	return takes
}

func actuals(n int) []int64 {
	actual := make([]int64, n)
	for i := range actual {
		actual[i] = 1
	}
	return actual
}

// median reports the median of what do takes, next to the whole.
func median(b *testing.B, do func()) {
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		at := time.Now()
		do()
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns/op")
}

func BenchmarkPing(b *testing.B) {
	_, o := single(b)
	s := open(b, o)
	median(b, func() {
		if err := s.client.Ping(b.Context()).Err(); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkReserve(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			_, o := single(b)
			s := open(b, o)
			results, takes := make([]store.Result, n), takes(n)
			i := 0
			median(b, func() {
				e := store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app-", i%1000)}
				i++
				k, err := s.Reserve(b.Context(), &store.Reservation{Entity: e, Takes: takes, Lease: time.Minute}, results)
				if err != nil || k == nil {
					b.Fatal(k, err)
				}
			})
		})
	}
}

func BenchmarkReserveSettle(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			_, o := single(b)
			s := open(b, o)
			results, takes, actual := make([]store.Result, n), takes(n), actuals(n)
			median(b, func() {
				e := store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app-", rand.IntN(1000))}
				k, err := s.Reserve(b.Context(), &store.Reservation{Entity: e, Takes: takes, Lease: time.Minute}, results)
				if err != nil || k == nil {
					b.Fatal(k, err)
				}
				s.Settle(k, actual)
			})
		})
	}
}

// What settling costs, of many consumers at once.
func BenchmarkSettle(b *testing.B) {
	_, o := single(b)
	s := open(b, o)
	results, takes, actual := make([]store.Result, 3), takes(3), actuals(3)
	const n = 1000
	for b.Loop() {
		b.StopTimer()
		var tickets []*store.Ticket
		for i := range n {
			e := store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app-", i)}
			k, err := s.Reserve(b.Context(), &store.Reservation{Entity: e, Takes: takes, Lease: time.Minute}, results)
			if err != nil || k == nil {
				b.Fatal(k, err)
			}
			tickets = append(tickets, k)
		}
		b.StartTimer()
		for _, k := range tickets {
			s.Settle(k, actual)
		}
		if err := s.drain(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/settle")
}

// A consumer that many calls at once come from.
func BenchmarkReserveHot(b *testing.B) {
	_, o := single(b)
	s := open(b, o)
	takes := takes(3)
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		results, actual := make([]store.Result, 3), actuals(3)
		for pb.Next() {
			e := store.Entity{Instance: "tokens", Consumer: "app"}
			k, err := s.Reserve(b.Context(), &store.Reservation{Entity: e, Takes: takes, Lease: time.Minute}, results)
			if err != nil || k == nil {
				b.Error(k, err)
				return
			}
			s.Settle(k, actual)
		}
	})
}
