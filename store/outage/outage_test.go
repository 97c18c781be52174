package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

func TestConformance(t *testing.T) {
	open := func(t *testing.T, now func() time.Time) store.Counters {
		c, _ := setup(t, newServer(now), Options{Now: now})
		return c
	}
	storetest.Run(t, open)
	t.Run("in time", func(t *testing.T) { storetest.RunClock(t, open) })
}

func TestOpensAfterFailuresAndClosesByPing(t *testing.T) {
	opened, closed := make(chan error, 10), make(chan time.Duration, 10)
	c, f := setup(t, newServer(nil), Options{
		OnOpen: func(err error) { opened <- err }, OnClose: func(d time.Duration) { closed <- d },
	})
	use(t, c, day, 1)
	f.set(errGone, false)
	for range defaultFailures {
		use(t, c, day, 1) // counted here
	}
	if err := <-opened; !errors.Is(err, errGone) {
		t.Errorf("opened because of %v, want %v", err, errGone)
	}
	before := f.calls.Load()
	for range 100 {
		use(t, c, day, 1)
	}
	if n := f.calls.Load(); n != before {
		t.Errorf("%d calls reached a remote that was known to be away", n-before)
	}
	if s := c.Status(); !s.Open || s.Since.IsZero() || s.LastError != errGone.Error() || s.Pending == 0 {
		t.Errorf("status %+v", s)
	}
	heal(t, c, f)
	<-closed
	if n := used(t, f.server, day); n != 104 {
		t.Errorf("%d charged in the end, want 104", n)
	}
	select {
	case err := <-opened:
		t.Errorf("opened again: %v", err)
	default:
	}
}

func TestClientsThatGiveUpDoNotOpen(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{})
	f.timeout = time.Minute
	f.set(nil, true)
	for range 3 * defaultFailures {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		r := store.Reservation{Entity: entity, Takes: []store.Take{take(day, 10, 1)}, Lease: time.Hour}
		if k, err := c.Reserve(ctx, &r, make([]store.Result, 1)); err == nil {
			t.Fatalf("got %v, want an error", k)
		}
	}
	if s := c.Status(); s.Open || s.Pending != 0 || s.Outstanding != 0 {
		t.Errorf("status %+v, want nothing of an outage", s)
	}
}

func TestHungRemoteCostsOneTimeoutAtMost(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{})
	use(t, c, day, 1)
	f.set(nil, true)
	var wg sync.WaitGroup
	var slow atomic.Int64
	start := time.Now()
	for range 16 {
		wg.Go(func() {
			for range 50 {
				use(t, c, day, 1)
				slow.Add(1)
			}
		})
	}
	wg.Wait()
	// 800 calls, one after the other, would wait for 40 s.
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("%d calls took %s", slow.Load(), d)
	}
	heal(t, c, f)
	if n := used(t, f.server, day); n != 801 {
		t.Errorf("%d charged in the end, want 801", n)
	}
}

func TestPolicies(t *testing.T) {
	for _, tt := range []struct {
		name        string
		policy      Policy
		replicas    int
		strict      bool
		admitted    int  // of 10 calls for 1, when 4 of 10 were used before
		unavailable bool // the others fail, instead of being refused
	}{
		{"local counts on from what was used", Local, 0, false, 6, false},
		{"local takes a part of what is left", Local, 3, false, 2, false},
		{"one replica takes all", Local, 1, false, 6, false},
		{"more replicas than what is left", Local, 20, false, 0, false},
		{"allow admits all", Allow, 0, false, 10, false},
		{"deny admits none", Deny, 0, false, 0, true},
		{"strict without replicas", Local, 0, true, 0, true},
		{"strict with replicas", Local, 2, true, 3, false},
		{"strict is not allowed to pass", Allow, 0, true, 0, true},
		{"strict counts where others pass", Allow, 2, true, 3, false},
		{"strict is denied", Deny, 2, true, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now, _ := midday()
			c, f := setup(t, newServer(now), Options{Policy: tt.policy, Replicas: tt.replicas, Now: now})
			for range 4 {
				c.Settle(admit(t, c, take(day, 10, 1)), []int64{1})
			}
			cut(t, c, f)
			admitted := 0
			for range 10 {
				k, results, err := reserve(c, tt.strict, take(day, 10, 1))
				switch {
				case (err != nil) != tt.unavailable && k == nil, err != nil && !errors.Is(err, store.ErrUnavailable):
					t.Fatalf("got %v", err)
				case err != nil:
				case k == nil && (!results[0].Exceeded || results[0].RetryAfter <= 0 || results[0].Remaining() != 0 || results[0].Limit != 10):
					t.Errorf("refused with %+v", results[0])
				case k != nil:
					admitted++
					c.Settle(k, []int64{1})
				}
			}
			if admitted != tt.admitted {
				t.Errorf("admitted %d, want %d", admitted, tt.admitted)
			}
			heal(t, c, f)
			if n := used(t, f.server, day); n != int64(4+tt.admitted) {
				t.Errorf("%d charged in the end, want %d", n, 4+tt.admitted)
			}
		})
	}
}

func TestChargesKeepTheirTime(t *testing.T) {
	now, step := midday()
	c, f := setup(t, newServer(now), Options{Now: now})
	c.Start()
	cut(t, c, f)
	start := now()
	long := admit(t, c, take(minute, 100, 1), hold(day, 1000, 10))
	c.Settle(admit(t, c, take(minute, 100, 1), hold(day, 1000, 10)), []int64{0, 7}) // was given back
	step(70 * time.Second)
	c.Settle(long, []int64{1, 20})
	heal(t, c, f)

	byMinute, total := make(map[time.Duration]int64), int64(0)
	for _, b := range f.applied {
		for _, a := range b.Lines {
			if a.Rule == minute {
				byMinute[b.At.Sub(start).Truncate(time.Minute)] += a.Amount
			} else {
				total += a.Amount
			}
		}
	}
	if len(byMinute) != 1 || byMinute[0] != 1 || total != 27 {
		t.Errorf("charged %v a minute and %d in all, want 1 in the first and 27", byMinute, total)
	}
}

func TestNextCallFindsWhatTheOutageUsed(t *testing.T) {
	now, _ := midday()
	c, f := setup(t, newServer(now), Options{Now: now})
	cut(t, c, f)
	k := admit(t, c, hold(day, 100, 1))
	heal(t, c, f)
	c.Settle(k, []int64{100})
	if k, results, err := reserve(c, false, hold(day, 100, 1)); k != nil || err != nil {
		t.Errorf("admitted beyond the limit: %v, %+v", err, results)
	}
}

func TestRenewKeepsHoldsHere(t *testing.T) {
	now, step := midday()
	c, f := setup(t, newServer(now), Options{Now: now})
	there := admit(t, c, hold(flight, 1, 1))
	c.Settle(there, nil)
	cut(t, c, f)
	k := admit(t, c, hold(flight, 1, 1))
	step(50 * time.Minute)
	if err := c.Renew(t.Context(), []*store.Ticket{k, there}, time.Hour); err != nil {
		t.Fatal(err)
	}
	step(50 * time.Minute)
	if k, _, _ := reserve(c, false, hold(flight, 1, 1)); k != nil {
		t.Error("a hold lapsed that was renewed")
	}
	if got, want := time.UnixMilli(k.Deadline), now().Add(10*time.Minute); !got.Equal(want) {
		t.Errorf("deadline %s, want %s", got, want)
	}
}

func TestReadAndEntitiesInAnOutage(t *testing.T) {
	for _, p := range []Policy{Local, Allow, Deny} {
		c, f := setup(t, newServer(nil), Options{Policy: p})
		use(t, c, day, 5)
		cut(t, c, f)
		var results [1]store.Result
		err := c.Read(t.Context(), entity, []*store.Rule{day}, results[:])
		if p == Local && (err != nil || results[0].Used < 5) || p != Local && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("policy %d: read %+v, %v", p, results, err)
		}
		readings := []store.Reading{
			{Entity: entity, Rules: []*store.Rule{day}, Results: make([]store.Result, 1)},
			{Entity: store.Entity{Instance: entity.Instance, Consumer: "nobody"}, Rules: []*store.Rule{day}, Results: make([]store.Result, 1)},
		}
		err = c.ReadAll(t.Context(), readings)
		if p == Local && (err != nil || readings[0].Results[0] != results[0] || readings[1].Results[0].Used != 0) || p != Local && !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("policy %d: read %+v, %v", p, readings, err)
		}
		if err := c.Adjust(t.Context(), entity, store.Amount{Rule: day, Amount: 1}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("policy %d: adjusting: %v", p, err)
		}
	}
}

func TestReadTellsWhatIsCurrent(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{Policy: Local})
	read := func() (current bool, used int64) {
		t.Helper()
		var results [1]store.Result
		current, err := c.ReadKnown(t.Context(), entity, []*store.Rule{day}, results[:])
		if err != nil {
			t.Fatal(err)
		}
		return current, results[0].Used
	}
	use(t, c, day, 5)
	var all [1]store.Result
	if err := c.ReadAll(t.Context(), []store.Reading{{Entity: entity, Rules: []*store.Rule{day}, Results: all[:]}}); err != nil || all[0].Used != 5 {
		t.Errorf("of many: got %+v, %v", all, err)
	}
	if current, used := read(); !current || used != 5 {
		t.Errorf("of the remote: used %d, current %t", used, current)
	}
	cut(t, c, f)
	use(t, c, day, 7)
	if current, used := read(); current || used < 12 {
		t.Errorf("in an outage: used %d, current %t", used, current)
	}
	heal(t, c, f)
	wait(t, "what is current", func() bool { current, used := read(); return current && used >= 12 })
}

// Whatever comes and goes, all that was used is charged once.
func TestNothingIsLostOrDoubled(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now, step := midday()
		dir := t.TempDir()
		s := newServer(now)
		policy := rapid.SampledFrom([]Policy{Local, Allow}).Draw(rt, "policy")
		start := func() (*Counters, *fake) {
			c, f := setup(t, s, Options{Policy: policy, Now: now, Dir: dir})
			rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
			f.lose = func() bool { return rnd.IntN(3) == 0 }
			c.Start()
			return c, f
		}
		c, f := start()
		var want int64
		var open []*store.Ticket
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0:
				cut(t, c, f)
			case 1:
				heal(t, c, f)
			case 2:
				step(time.Duration(rapid.IntRange(1, 100).Draw(rt, "seconds")) * time.Second)
			case 3: // a restart, once all calls have ended
				for _, k := range open {
					c.Settle(k, []int64{3})
					want += 3
				}
				open = nil
				if err := c.Close(t.Context()); err != nil {
					rt.Fatal(err)
				}
				c, f = start()
			case 4:
				if len(open) > 0 {
					n := rapid.Int64Range(0, 9).Draw(rt, "actual")
					c.Settle(open[0], []int64{n})
					want += n
					open = open[1:]
				}
			default:
				open = append(open, admit(t, c, store.Take{Rule: day, Limit: 1 << 50, Need: 1, Charge: 2, Hold: 1}))
			}
		}
		for _, k := range open {
			c.Settle(k, []int64{3})
			want += 3
		}
		heal(t, c, f)
		if n := used(t, s, day); n != want {
			rt.Fatalf("%d charged, want %d", n, want)
		}
		if err := c.Close(t.Context()); err != nil {
			rt.Fatal(err)
		}
	})
}
