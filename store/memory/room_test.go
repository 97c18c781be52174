package memory

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// world is a store with a clock that is stepped by hand.
type world struct {
	*testing.T
	*Store
	at time.Time
}

func newWorld(t *testing.T, maxEntities int) *world {
	w := &world{T: t, at: time.UnixMilli(1_700_000_000_000).Truncate(time.Hour)}
	w.Store = New(Options{MaxEntities: maxEntities, Now: func() time.Time { return w.at }})
	return w
}

var (
	hourly   = &store.Rule{ID: "hour", Window: must(store.Fixed(time.Hour))}
	daily    = &store.Rule{ID: "day", Window: must(store.Fixed(24 * time.Hour))}
	monthly  = &store.Rule{ID: "month", Window: must(store.Calendar("month", time.UTC))}
	inFlight = &store.Rule{ID: "calls", Window: store.None()}
)

func app(i int) store.Entity {
	return store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app ", i)}
}

// call reserves one of a hundred.
func (w *world) call(e store.Entity, known bool, rules ...*store.Rule) (*store.Ticket, error) {
	w.Helper()
	r := store.Reservation{Entity: e, Known: known, Lease: time.Minute}
	for _, rule := range rules {
		r.Takes = append(r.Takes, store.Take{Rule: rule, Limit: 100, Need: 1, Charge: 1})
	}
	k, err := w.Reserve(w.Context(), &r, make([]store.Result, len(rules)))
	if err == nil && k == nil {
		w.Fatalf("%+v is refused", e)
	}
	return k, err
}

func (w *world) used(e store.Entity, r *store.Rule) int64 {
	w.Helper()
	var results [1]store.Result
	if err := w.Read(w.Context(), e, []*store.Rule{r}, results[:]); err != nil {
		w.Fatal(err)
	}
	return results[0].Used
}

func (w *world) fill(n int, rules ...*store.Rule) {
	w.Helper()
	for i := range n {
		k, err := w.call(app(i), false, rules...)
		if err != nil {
			w.Fatalf("consumer %d of %d: %v", i+1, n, err)
		}
		one := make([]int64, len(rules))
		for j := range one {
			one[j] = 1
		}
		w.Settle(k, one)
	}
}

func TestFullStoreRefusesOnlyNewUnknownConsumers(t *testing.T) {
	const n = 100
	w := newWorld(t, n)
	w.fill(n, hourly)
	if k, err := w.call(app(n), false, hourly); !errors.Is(err, store.ErrFull) || k != nil {
		t.Fatalf("got %v, %v, want store full", k, err)
	}
	for range 10_000 { // a flood displaces nobody
		if _, err := w.call(app(n+1), false, hourly); !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
	}
	if _, err := w.call(app(n+2), true, hourly); err != nil {
		t.Errorf("a known consumer: %v", err)
	}
	if _, err := w.call(store.Entity{Instance: "shared"}, false, hourly); err != nil {
		t.Errorf("the counter all share: %v", err)
	}
	if err := w.Adjust(t.Context(), app(n+3), store.Amount{Rule: hourly, Amount: 5}); err != nil {
		t.Errorf("adjusting: %v", err)
	}
	for i := range n {
		if _, err := w.call(app(i), false, hourly); err != nil {
			t.Fatalf("consumer %d, who has been here: %v", i, err)
		}
		if used := w.used(app(i), hourly); used != 2 {
			t.Fatalf("consumer %d: used %d, want 2", i, used)
		}
	}
	if used := w.used(app(n+3), hourly); used != 5 {
		t.Errorf("adjusted: used %d", used)
	}
	if w.Len() != n+3 {
		t.Errorf("%d entities, want %d", w.Len(), n+3)
	}
}

func TestRoomIsMadeFromWhatIsOver(t *testing.T) {
	for _, n := range []int{1, 5, 200} {
		w := newWorld(t, n)
		w.fill(n, hourly)
		w.at = w.at.Add(time.Hour - time.Millisecond)
		if _, err := w.call(app(n), false, hourly); !errors.Is(err, store.ErrFull) {
			t.Fatalf("%d: got %v before any window was over", n, err)
		}
		w.at = w.at.Add(time.Millisecond)
		for i := range n {
			if _, err := w.call(app(n+i), false, hourly); err != nil {
				t.Fatalf("%d: got %v after all windows were over", n, err)
			}
		}
		if w.Len() != n {
			t.Errorf("%d entities, want %d", w.Len(), n)
		}
		if _, err := w.call(app(2*n), false, hourly); !errors.Is(err, store.ErrFull) {
			t.Errorf("%d: got %v once it was full again", n, err)
		}
	}
}

func TestRoomIsMadeThoughSomeAreUsedAgain(t *testing.T) {
	w := newWorld(t, 50)
	w.fill(50, hourly)
	w.at = w.at.Add(time.Hour)
	for i := range 49 { // all but one start another window
		if _, err := w.call(app(i), false, hourly); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		_, err := w.call(app(50+i), false, hourly)
		if full := errors.Is(err, store.ErrFull); full != (i == 1) {
			t.Errorf("consumer %d beyond: %v", i+1, err)
		}
	}
}

func TestCallsUnderWayKeepTheirPlace(t *testing.T) {
	w := newWorld(t, 3)
	take := []store.Take{{Rule: hourly, Limit: 100, Need: 1}} // admits by what is used, and takes nothing
	var tickets []*store.Ticket
	for i := range 3 {
		k, err := w.Reserve(t.Context(), &store.Reservation{Entity: app(i), Takes: take, Lease: time.Minute}, make([]store.Result, 1))
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, k)
	}
	if _, err := w.call(app(3), false, hourly); !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v while three calls are under way", err)
	}
	w.Settle(tickets[0], []int64{7})
	w.Settle(tickets[1], []int64{0}) // says no more than an entity that is not there
	if _, err := w.call(app(3), false, hourly); err != nil {
		t.Errorf("got %v after a call that cost nothing", err)
	}
	if used := w.used(app(0), hourly); used != 7 {
		t.Errorf("used %d, want 7", used)
	}
	if _, err := w.call(app(4), false, hourly); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v", err)
	}
	w.at = w.at.Add(time.Minute) // and the last has lapsed
	if _, err := w.call(app(4), false, hourly); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestLateSettlesAreChargedThoughAllWasDropped(t *testing.T) {
	w := newWorld(t, 1)
	k, err := w.call(app(0), false, hourly, monthly)
	if err != nil {
		t.Fatal(err)
	}
	w.at = w.at.AddDate(0, 2, 0)
	if _, err := w.call(app(1), false, hourly); err != nil {
		t.Fatal(err) // in the place of the first
	}
	w.Settle(k, []int64{3, 0})
	w.Settle(k, []int64{3, 0})
	if used := w.used(app(0), hourly); used != 2 { // one of three was charged in time
		t.Errorf("used %d, want 2", used)
	}
	if used := w.used(app(0), monthly); used != 0 {
		t.Errorf("used %d of another month", used)
	}
	if used := w.used(app(1), hourly); used != 1 {
		t.Errorf("the other used %d", used)
	}
}

func TestRefusedConsumersTakeNoRoom(t *testing.T) {
	w := newWorld(t, 10)
	take := []store.Take{{Rule: hourly, Limit: 0, Need: 1, Charge: 1}}
	for i := range 1000 {
		k, err := w.Reserve(t.Context(), &store.Reservation{Entity: app(i), Takes: take}, make([]store.Result, 1))
		if k != nil || err != nil {
			t.Fatalf("got %v, %v", k, err)
		}
	}
	if w.Len() != 0 {
		t.Errorf("%d entities", w.Len())
	}
}

func TestSettledCallsInFlightLeaveNothing(t *testing.T) {
	w := newWorld(t, 10)
	for i := range 1000 {
		r := store.Reservation{Entity: app(i), Lease: time.Hour, Takes: []store.Take{{Rule: inFlight, Limit: 1, Need: 1, Hold: 1}}}
		k, err := w.Reserve(t.Context(), &r, make([]store.Result, 1))
		if err != nil {
			t.Fatal(err)
		}
		w.Settle(k, nil)
	}
}

func TestMaxEntitiesChangesAtRunTime(t *testing.T) {
	w := newWorld(t, 0)
	w.fill(20, hourly)
	w.SetMaxEntities(10)
	if _, err := w.call(app(20), false, hourly); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v at 20 of 10", err)
	}
	if used := w.used(app(0), hourly); used != 1 {
		t.Errorf("used %d: counters above the number must stay", used)
	}
	w.SetMaxEntities(21)
	if _, err := w.call(app(20), false, hourly); err != nil {
		t.Errorf("got %v at 20 of 21", err)
	}
	w.SetMaxEntities(-1)
	if n := w.max.Load(); n != DefaultMaxEntities {
		t.Errorf("got %d", n)
	}
}

// What is over is dropped by calls that come by, not by walking.
func TestTrafficDropsWhatIsOver(t *testing.T) {
	const n = 5000
	w := newWorld(t, 10*n)
	w.fill(n, hourly, daily)
	w.at = w.at.Add(24 * time.Hour)
	for i := range n {
		if _, err := w.call(app(n+i), true, hourly); err != nil {
			t.Fatal(err)
		}
	}
	// The last may be in shards that no call came by.
	if w.Len() > n+n/20 {
		t.Errorf("%d entities, want hardly more than %d", w.Len(), n)
	}
	names, err := w.Entities(t.Context(), "tokens", "", 3*n)
	if err != nil || len(names) != n {
		t.Errorf("lists %d, %v, want those %d that are not over", len(names), err, n)
	}
}

func TestCountersOfOldRulesGoFirst(t *testing.T) {
	w := newWorld(t, 0)
	e := store.Entity{Instance: "shared"}
	hold, err := w.Reserve(t.Context(), &store.Reservation{
		Entity: e, Lease: 1000 * time.Hour, Takes: []store.Take{{Rule: inFlight, Limit: 5, Need: 1, Hold: 1}},
	}, make([]store.Result, 1))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 500 { // a config that is edited every hour
		r := &store.Rule{ID: fmt.Sprint("rule ", i), Window: hourly.Window}
		if _, err := w.call(e, false, r, daily); err != nil {
			t.Fatal(err)
		}
		if got := w.used(e, r); got != 1 {
			t.Fatalf("rule %d: used %d", i, got)
		}
		w.at = w.at.Add(time.Hour)
	}
	hash, sh := w.shard(e)
	if n := len(sh.find(hash, e).counters); n > 8 {
		t.Errorf("%d counters are kept", n)
	}
	var results [1]store.Result
	if err := w.Read(t.Context(), e, []*store.Rule{inFlight}, results[:]); err != nil || results[0].Held != 1 {
		t.Errorf("got %+v, %v, want one call in flight", results[0], err)
	}
	w.Settle(hold, nil)
}

func TestEqualHashesAreToldApart(t *testing.T) {
	w := newWorld(t, 0)
	var sh shard
	const hash = 42
	for round := range 3 {
		var all []*entity
		for i := range 5 {
			all = append(all, sh.insert(hash, app(i), 1))
		}
		for i := range all {
			victim := (i + round) % len(all)
			sh.drop(hash, all[victim])
			if sh.find(hash, app(victim)) != nil {
				t.Errorf("entity %d was dropped, but is found", victim)
			}
			all[victim] = nil
			for j, e := range all {
				if sh.find(hash, app(j)) != e {
					t.Errorf("entity %d is not found, after %d was dropped", j, victim)
				}
			}
		}
		if len(sh.byHash) != 0 || len(sh.ends) != 0 {
			t.Errorf("%d and %d entities are left", len(sh.byHash), len(sh.ends))
		}
	}
	if w.Len() != 0 {
		t.Errorf("%d entities", w.Len())
	}
}

func TestForeignTicketsAreIgnored(t *testing.T) {
	w := newWorld(t, 0)
	k := &store.Ticket{Entity: app(0), Lines: []store.Line{{Rule: hourly}}}
	w.Settle(k, []int64{5})
	if err := w.Renew(t.Context(), []*store.Ticket{k}, time.Minute); err != nil || w.Len() != 0 {
		t.Errorf("got %v, %d entities", err, w.Len())
	}
}

func TestEntitiesAreSmall(t *testing.T) {
	if got := bytesPerEntity(t, 100_000); got > 220 {
		t.Errorf("%.0f bytes an entity with three windows", got)
	}
}

// bytesPerEntity returns what an entity with three windows takes, without the
// text of its key.
func bytesPerEntity(t testing.TB, n int) float64 {
	const text = 16 // what the allocator gives for it
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("consumer-%07d", i)
	}
	s := New(Options{MaxEntities: n})
	results := make([]store.Result, 3)
	takes := []store.Take{
		{Rule: hourly, Limit: 100, Need: 1, Charge: 1},
		{Rule: daily, Limit: 100, Need: 1, Hold: 10},
		{Rule: monthly, Limit: 100, Need: 1, Hold: 10},
	}
	before := heapBytes()
	for _, name := range names {
		k, err := s.Reserve(t.Context(), &store.Reservation{
			Entity: store.Entity{Instance: "tokens", Consumer: name}, Takes: takes, Lease: time.Minute,
		}, results)
		if err != nil {
			t.Fatal(err)
		}
		s.Settle(k, []int64{1, 7, 7})
	}
	bytes := heapBytes() - before
	runtime.KeepAlive(names)
	runtime.KeepAlive(s)
	return float64(bytes)/float64(n) - text
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
