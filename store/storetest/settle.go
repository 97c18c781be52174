package storetest

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func testSettle(f *fixture) {
	for _, tt := range []struct {
		name   string
		actual []int64
		want   int64
	}{
		{"less than held", []int64{3}, 3},
		{"all that is held", []int64{40}, 40},
		{"more than held", []int64{70}, 70},
		{"past the limit", []int64{5000}, 5000},
		{"nothing", []int64{0}, 0},
		{"no amounts", nil, 0},
		{"a negative amount", []int64{-5}, 0},
	} {
		for _, r := range []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1)} {
			e := f.consumer(tt.name)
			k, _ := f.admit(e, hold(r, 100, 40))
			f.expect(e, r, 0, 40)
			f.store.Settle(k, tt.actual)
			f.expect(e, r, tt.want, 0)
			if tt.want >= 100 {
				f.refuse(e, charge(r, 100, 1))
			}
		}
	}
}

func testCharged(f *fixture) {
	for _, tt := range []struct {
		name   string
		actual []int64
		want   int64
	}{
		{"cancelled", []int64{0}, 50},
		{"cancelled without amounts", nil, 50},
		{"a negative amount", []int64{-5}, 50},
		{"a part", []int64{4}, 54},
		{"as charged", []int64{10}, 60},
		{"more", []int64{17}, 67},
	} {
		for _, r := range []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1)} {
			e := f.consumer(tt.name)
			f.adjust(e, r, 50)
			k, results := f.admit(e, charge(r, 100, 10))
			if results[0].Used != 60 || k.Lines[0].Charged != 10 {
				f.Errorf("%s, %s: used %d, line %+v", r.ID, tt.name, results[0].Used, k.Lines[0])
			}
			f.store.Settle(k, tt.actual)
			f.expect(e, r, tt.want, 0)
		}
	}
	// Charged and held of the same counter.
	e, r := f.consumer("both"), f.fixed("fixed", decade)
	k, _ := f.admit(e, store.Take{Rule: r, Limit: 100, Need: 30, Charge: 10, Hold: 20})
	f.expect(e, r, 10, 20)
	f.store.Settle(k, []int64{25})
	f.expect(e, r, 25, 0)
}

func testSettleTwice(f *fixture) {
	e, r, requests := f.consumer("app"), f.fixed("tokens", decade), f.fixed("requests", decade)
	k, _ := f.admit(e, hold(r, 100, 10), charge(requests, 100, 1))
	f.admit(e, hold(r, 100, 10), charge(requests, 100, 1))
	f.store.Settle(k, []int64{7, 0})
	f.store.Settle(k, []int64{9, 0})
	f.store.Settle(k, nil)
	f.expect(e, r, 7, 10)
	f.expect(e, requests, 1, 0)
}

func testRenewIgnoresSettled(f *fixture) {
	e, r := f.consumer("app"), f.fixed("tokens", decade)
	k, _ := f.admit(e, hold(r, 100, 10))
	l, _ := f.admit(e, hold(r, 100, 20))
	f.renew(lease, k, l)
	f.expect(e, r, 0, 30)
	f.store.Settle(k, []int64{1})
	f.renew(lease, k, l)
	f.renew(lease)
	f.expect(e, r, 1, 20)
}

func testSettleWhileRenewed(f *fixture) {
	e, r := f.consumer("app"), f.fixed("tokens", decade)
	var tickets [workers / 2]*store.Ticket
	for i := range tickets {
		tickets[i], _ = f.admit(e, hold(r, 1000, 1))
	}
	together(func(w int) {
		if w%2 == 0 {
			f.store.Settle(tickets[w/2], []int64{2})
			return
		}
		if err := f.store.Renew(context.Background(), tickets[:], lease); err != nil {
			f.Errorf("renewing: %v", err)
		}
	})
	f.expect(e, r, workers, 0)
}

// workers is how many goroutines stand behind a barrier.
const workers = 64

// together runs do in as many goroutines, at once.
func together(do func(worker int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(workers)
	for w := range workers {
		done.Go(func() {
			ready.Done()
			<-start
			do(w)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// worker is the tester of one of them: it ends alone, which the test may not.
type worker struct{ *testing.T }

// Fatalf implements testing.TB.
func (w worker) Fatalf(format string, args ...any) {
	w.Helper()
	w.Errorf(format, args...)
	runtime.Goexit()
}

func testContention(f *fixture) {
	const limit, worst, rounds = 10_000, 100, 40
	e := f.consumer("app")
	r, calls := f.fixed("tokens", decade), f.none("calls")
	var admitted, charged, inFlight, mostInFlight atomic.Int64
	together(func(w int) {
		for i := range rounds {
			k, results := reserve(worker{f.T}, f.store, store.Reservation{
				Entity: e, Takes: []store.Take{hold(r, limit, worst), hold(calls, 16, 1)}, Lease: lease,
			})
			if got := results[0]; got.Used+got.Held > limit {
				f.Errorf("used %d and held %d of %d", got.Used, got.Held, limit)
			}
			if k == nil {
				continue
			}
			admitted.Add(1)
			if n := inFlight.Add(1); n > mostInFlight.Load() {
				mostInFlight.Store(n)
			}
			actual := int64((w*rounds + i) % (worst + 1))
			charged.Add(actual)
			inFlight.Add(-1)
			f.store.Settle(k, []int64{actual, 0})
		}
	})
	if n := mostInFlight.Load(); n > 16 {
		f.Errorf("%d calls in flight of 16", n)
	}
	if charged.Load() > limit {
		f.Errorf("charged %d of %d", charged.Load(), limit)
	}
	if admitted.Load() == 0 {
		f.Error("no call was admitted")
	}
	f.expect(e, r, charged.Load(), 0)
	f.expect(e, calls, 0, 0)
}

func testRequestContention(f *fixture) {
	const limit = 1000
	e, r, other := store.Entity{Instance: f.instance}, f.fixed("requests", decade), f.fixed("more requests", decade)
	var admitted, cancelled atomic.Int64
	together(func(int) {
		for i := range 30 {
			k, _ := reserve(worker{f.T}, f.store, store.Reservation{
				Entity: e, Takes: []store.Take{charge(r, limit, 1), charge(other, limit-1, 1)}, Lease: lease,
			})
			if k == nil {
				continue
			}
			admitted.Add(1)
			if i%5 == 0 {
				cancelled.Add(1)
				f.store.Settle(k, nil)
				continue
			}
			f.store.Settle(k, []int64{1, 1})
		}
	})
	kept := admitted.Load() - cancelled.Load()
	if kept > limit-1 {
		f.Errorf("%d requests passed a limit of %d", kept, limit-1)
	}
	f.expect(e, r, kept, 0)
	f.expect(e, other, kept, 0)
}

func testLargeAmounts(f *fixture) {
	const million = 1_000_000_000_000_000_000 // dollars, in picodollars
	e := f.consumer("app")
	for _, r := range []*store.Rule{f.fixed("fixed", decade), f.rolling("rolling", decade), f.bucket("bucket", decade, 1)} {
		f.adjust(e, r, million-3)
		k, _ := f.admit(e, charge(r, million, 1))
		f.admit(e, hold(r, million, 2))
		f.refuse(e, hold(r, million, 1))
		f.expect(e, r, million-2, 2)
		f.store.Settle(k, nil)
		f.expect(e, r, million-3, 2)
		f.adjust(e, r, -(million - 3))
		f.expect(e, r, 0, 2)

		k, _ = f.admit(e, hold(r, million, 999_999_999_999_999_997))
		f.expect(e, r, 0, 999_999_999_999_999_999)
		f.store.Settle(k, []int64{2*million + 1})
		f.expect(e, r, 2*million+1, 2)
		f.refuse(e, store.Take{Rule: r, Limit: 2*million + 3, Need: 1})
		f.admit(e, store.Take{Rule: r, Limit: 2*million + 4, Need: 1})
		// A sum past int64 is refused, not wrapped around.
		f.refuse(e, store.Take{Rule: r, Limit: million, Need: math.MaxInt64})
	}
}

func testSettleAcrossEdge(f *fixture) {
	e, r := f.consumer("app"), f.fixed("tokens", time.Minute)
	var tickets [workers]*store.Ticket
	for i := range tickets {
		tickets[i], _ = f.admit(e, hold(r, 1_000_000, 100))
	}
	f.clock.set(f.clock.now().Truncate(time.Minute).Add(time.Minute - time.Millisecond))
	var before, after atomic.Int64
	edge := f.clock.now().Add(time.Millisecond)
	for i := range workers / 2 {
		f.store.Settle(tickets[i], []int64{int64(i)})
		before.Add(int64(i))
	}
	f.expect(e, r, before.Load(), workers/2*100)
	f.clock.set(edge)
	together(func(w int) {
		if w >= workers/2 {
			f.store.Settle(tickets[w], []int64{int64(w)})
			after.Add(int64(w))
		}
	})
	f.expect(e, r, after.Load(), 0)
}
