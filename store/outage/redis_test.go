package outage_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/outage"
	"github.com/llmlimits/caddy-llm-limits/store/redis"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(&logging.VoidLogger{})
	os.Exit(m.Run())
}

const (
	timeout = 250 * time.Millisecond
	// patience is for machines that are busy.
	patience = 60 * time.Second
)

var (
	entity   = store.Entity{Instance: "apps", Consumer: "team-a"}
	requests = &store.Rule{ID: "requests per month", Window: must(store.Calendar("month", nil))}
	tokens   = &store.Rule{ID: "tokens per month", Window: must(store.Calendar("month", nil))}
	rules    = []*store.Rule{requests, tokens}
)

func must(w *store.Window, err error) *store.Window {
	if err != nil {
		panic(err)
	}
	return w
}

// bridge is counters before the Redis at an address.
func bridge(t *testing.T, addr, dir string) *outage.Counters {
	t.Helper()
	return outage.New(func(identity string) outage.Remote {
		return redis.New(redis.Options{Addresses: []string{addr}, Identity: identity, Timeout: timeout})
	}, outage.Options{Dir: dir, Timeout: timeout, OnError: func(err error) { t.Error(err) }})
}

func end(t *testing.T, c *outage.Counters) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// call is a whole call of a request and some tokens, and how long it waited.
func call(t *testing.T, c store.Counters, n int64) time.Duration {
	t.Helper()
	results := make([]store.Result, 2)
	r := store.Reservation{Entity: entity, Known: true, Lease: time.Minute, Takes: []store.Take{
		{Rule: requests, Limit: 1 << 40, Need: 1, Charge: 1},
		{Rule: tokens, Limit: 1 << 40, Need: 1, Hold: 10},
	}}
	start := time.Now()
	k, err := c.Reserve(context.Background(), &r, results)
	d := time.Since(start)
	if err != nil || k == nil {
		t.Errorf("got %v, %v, want a ticket", k, err)
		return d
	}
	c.Settle(k, []int64{1, n})
	return d
}

// total reads what the server has counted.
func total(t *testing.T, addr string) (calls, used int64) {
	t.Helper()
	s := redis.New(redis.Options{Addresses: []string{addr}, Timeout: 10 * time.Second})
	defer s.Close(context.Background())
	var results [2]store.Result
	if err := s.Read(context.Background(), entity, rules, results[:]); err != nil {
		t.Fatal(err)
	}
	return results[0].Used, results[1].Used
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func healed(c *outage.Counters) func() bool {
	return func() bool { s := c.Status(); return !s.Open && s.Pending == 0 && s.Outstanding == 0 }
}

// load is clients that call one after the other.
type load struct {
	calls atomic.Int64
	most  atomic.Int64 // the longest wait
	stop  chan struct{}
	wg    sync.WaitGroup
}

func start(t *testing.T, c store.Counters, clients int) *load {
	l := &load{stop: make(chan struct{})}
	for range clients {
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				d := int64(call(t, c, 3))
				l.calls.Add(1)
				for m := l.most.Load(); d > m; m = l.most.Load() {
					if l.most.CompareAndSwap(m, d) {
						break
					}
				}
				time.Sleep(time.Millisecond) // the machine has other work
			}
		})
	}
	return l
}

func (l *load) end() { close(l.stop); l.wg.Wait() }

func TestOutagesUnderLoad(t *testing.T) {
	losing := redistest.Outage{
		Name: "losing replies",
		Cut:  func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Faults{Requests: 0.5, Replies: 0.5}) },
		Heal: func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Faults{}) },
	}
	for _, tt := range append(redistest.Outages(), losing) {
		t.Run(tt.Name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Persistent())
			proxy := redistest.NewProxy(t, server, 1)
			c := bridge(t, proxy.Addr(), t.TempDir())
			defer end(t, c)
			l := start(t, c, 16)
			wait(t, "calls", func() bool { return l.calls.Load() > 200 })
			goroutines := runtime.NumGoroutine()

			tt.Cut(server, proxy)
			before := l.calls.Load()
			wait(t, "the circuit to open", func() bool { return c.Status().Open })
			n := l.calls.Load()
			wait(t, "calls in the outage", func() bool { return l.calls.Load() > n+500 })
			if now := runtime.NumGoroutine(); now > goroutines+50 {
				t.Errorf("%d goroutines, %d before", now, goroutines)
			}
			added := make([]time.Duration, 500)
			for i := range added {
				added[i] = call(t, c, 3)
			}
			slices.Sort(added)
			// One that asked would wait for all of the timeout.
			if median := added[len(added)/2]; median > timeout/5 {
				t.Errorf("calls waited for %s once it was open, as the median", median)
			}
			tt.Heal(server, proxy)
			wait(t, "the circuit to close", func() bool { return !c.Status().Open })
			n = l.calls.Load()
			wait(t, "calls after the outage", func() bool { return l.calls.Load() > n+200 })
			l.end()
			wait(t, "all to be handed over", healed(c))

			// The rest is what a busy machine may add.
			if most := time.Duration(l.most.Load()); most > timeout+10*time.Second {
				t.Errorf("a call waited for %s", most)
			}
			want := l.calls.Load() + int64(len(added))
			calls, used := total(t, server.Addr())
			if tt.Forgets {
				if least := want - before - 32; calls < least || calls > want || used < 3*least || used > 3*want {
					t.Errorf("%d calls and %d tokens charged, want %d to %d calls", calls, used, least, want)
				}
				return
			}
			if calls != want || used != 3*want {
				t.Errorf("%d calls and %d tokens charged, want %d and %d", calls, used, want, 3*want)
			}
		})
	}
}

func TestKeyOfAnotherTypeIsNoOutage(t *testing.T) {
	server := redistest.Start(t)
	c := bridge(t, server.Addr(), t.TempDir())
	call(t, c, 1)
	name := store.Entity{Instance: "apps", Consumer: "odd"}
	const key = "{odd}apps"
	if err := server.Client().Set(t.Context(), key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r := store.Reservation{Entity: name, Known: true, Lease: time.Minute, Takes: []store.Take{{Rule: requests, Limit: 1 << 40, Need: 1, Charge: 1}}}
		k, err := c.Reserve(t.Context(), &r, make([]store.Result, 1))
		if err != nil || k == nil {
			t.Fatalf("got %v, %v, want a ticket", k, err)
		}
		c.Settle(k, []int64{1})
	}
	wait(t, "the circuit to be closed", func() bool { s := c.Status(); return !s.Open && s.Pending > 0 })
	call(t, c, 1)
	if calls, _ := total(t, server.Addr()); calls != 2 {
		t.Errorf("%d calls of the other consumer are charged, want 2", calls)
	}
	if err := server.Client().Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	wait(t, "all to be handed over", healed(c))
	end(t, c)
}

func TestRestartDuringAnOutage(t *testing.T) {
	server, dir := redistest.Start(t, redistest.Persistent()), t.TempDir()
	c := bridge(t, server.Addr(), dir)
	for range 10 {
		call(t, c, 5)
	}
	server.Stop()
	for range 10 {
		call(t, c, 5)
	}
	end(t, c)

	c = bridge(t, server.Addr(), dir)
	for range 10 {
		call(t, c, 5)
	}
	server.Continue()
	wait(t, "all to be handed over", healed(c))
	for range 10 {
		call(t, c, 5)
	}
	end(t, c)
	if calls, used := total(t, server.Addr()); calls != 40 || used != 200 {
		t.Errorf("%d calls and %d tokens charged, want 40 and 200", calls, used)
	}
}
