//go:build unix

package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// kill leaves a store as a process does that is killed: what it has sent may still be
// run, and nothing more is sent.
func kill(s *Store) {
	s.closed.Store(true)
	s.work.stop()
	_ = s.client.Close()
}

// span is the least and the most of a counter that may be charged for a call.
type span struct{ least, now, most int64 }

func (s *span) set(n int64) { s.now, s.least, s.most = n, min(s.least, n), max(s.most, n) }

// tally is what a call has used, of tokens and requests. A record of its store that is
// kept leaves no doubt of what was before.
type tally struct {
	e      store.Entity
	ticket *store.Ticket
	spans  [2]span
}

// crashes are processes that are killed, one after the other, before one server.
type crashes struct {
	t       *testing.T
	rnd     *rand.Rand
	server  *redistest.Server
	o       Options
	stopped bool

	s        *Store
	exported [][]byte
	mu       sync.Mutex // of the tallies, which calls under way change
	calls    []*tally
	wg       sync.WaitGroup
	ended    []*tally
	old      []*Store // that go on to send what they have
	errors   atomic.Int64
}

// leaseOfTests is long enough for a call, and over soon.
const leaseOfTests = time.Second

func (c *crashes) call() {
	h := &tally{e: store.Entity{Instance: "crash", Consumer: fmt.Sprint("app-", c.rnd.IntN(2))}}
	charge, most := 20*c.rnd.Int64N(2), 60*c.rnd.Int64N(2)
	s := c.s
	c.mu.Lock()
	c.calls = append(c.calls, h)
	c.mu.Unlock()
	c.wg.Go(func() {
		r := store.Reservation{Entity: h.e, Lease: leaseOfTests, Takes: []store.Take{
			{Rule: tokens, Limit: 1 << 50, Need: 1, Charge: charge, Hold: 50, HoldMost: most},
			{Rule: requests, Limit: 1 << 50, Need: 1, Charge: 1},
			{Rule: inFlight, Limit: 1 << 50, Need: 1, Hold: 1},
		}}
		k, err := s.Reserve(context.Background(), &r, make([]store.Result, 3))
		c.mu.Lock()
		defer c.mu.Unlock()
		if h.ticket = k; err == nil {
			h.spans[0].set(charge)
			h.spans[1].set(1)
			return
		}
		c.errors.Add(1)
		h.spans[0].most, h.spans[1].most = charge, 1 // it is to be given back, unless nobody knows of it
	})
}

func (c *crashes) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.rnd.Perm(len(c.calls)) {
		if h := c.calls[i]; h.ticket != nil {
			used, called := 10*c.rnd.Int64N(10), c.rnd.Int64N(3)
			c.s.Settle(h.ticket, []int64{used, called})
			h.ticket = nil
			h.spans[0].set(used)
			h.spans[1].set(called)
			return
		}
	}
}

func (c *crashes) export() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.calls {
		for i := range h.spans {
			h.spans[i] = span{h.spans[i].now, h.spans[i].now, h.spans[i].now}
		}
	}
	c.exported = c.s.Export()
}

// die has another process go on with what the last one has kept. That may live on, but
// has a number of its own then.
func (c *crashes) die() {
	before, o := c.s, c.o
	if goesOn := c.rnd.IntN(3) == 0; goesOn {
		c.wg.Wait()
		c.export()
		c.old = append(c.old, before)
	} else {
		o.Identity = before.Identity()
		kill(before)
	}
	c.wg.Wait()
	c.ended, c.calls = append(c.ended, c.calls...), nil
	c.s = New(o)
	if err := c.s.Restore(c.exported); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crashes) stop() {
	if !c.stopped {
		c.server.Stop()
	}
	c.stopped = true
}

func (c *crashes) goOn() {
	if c.stopped {
		c.server.Continue()
	}
	c.stopped = false
}

func (c *crashes) step() {
	switch n := c.rnd.IntN(40); {
	case n < 14:
		c.call()
	case n < 15:
		c.wg.Wait()
	case n < 16: // what is tried again meanwhile differs, and what is right does not
		time.Sleep(time.Duration(c.rnd.IntN(60)) * time.Millisecond)
	case n < 24:
		c.settle()
	case n < 29:
		c.export()
	case n < 32:
		c.die()
	case n < 35:
		c.stop()
	case n < 38:
		c.goOn()
	case n < 39:
		c.goOn()
		_ = c.server.Client().Do(c.t.Context(), "client", "kill", "type", "normal").Err() // which ends this one, too
	default:
		c.wg.Wait()
		c.goOn()
		c.server.Restart()
	}
}

// agree checks that in the end all that calls have used is charged, and nothing else.
func (c *crashes) agree() {
	c.goOn()
	c.wg.Wait()
	for len(c.calls) > 0 && c.settled() {
		c.settle()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for _, s := range append(c.old, c.s) {
		if err := s.Close(ctx); err != nil {
			c.t.Fatal(err)
		}
	}
	c.export() // nothing is in doubt any more
	reader := open(c.t, Options{Addresses: c.o.Addresses, Prefix: c.o.Prefix})
	for i := range 2 {
		e := store.Entity{Instance: "crash", Consumer: fmt.Sprint("app-", i)}
		var least, most [2]int64
		for _, h := range append(c.ended, c.calls...) {
			for i := range h.spans {
				if h.e == e {
					least[i], most[i] = least[i]+h.spans[i].least, most[i]+h.spans[i].most
				}
			}
		}
		var got [3]store.Result
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if err := reader.Read(ctx, e, []*store.Rule{tokens, requests, inFlight}, got[:]); err != nil {
				c.t.Fatal(err)
			}
			if got[0].Held+got[2].Held == 0 || time.Now().After(end) { // those of the dead lapse
				break
			}
		}
		for i, what := range []string{"tokens", "requests"} {
			if n := got[i].Used; n < least[i] || n > most[i] {
				c.t.Errorf("%s: %d %s charged, want %d to %d", e.Consumer, n, what, least[i], most[i])
			}
		}
		if got[0].Held+got[2].Held != 0 {
			c.t.Errorf("%s: held %d and %d", e.Consumer, got[0].Held, got[2].Held)
		}
	}
}

func (c *crashes) settled() bool {
	for _, h := range c.calls {
		if h.ticket != nil {
			return true
		}
	}
	return false
}

// Whatever becomes of processes, connections and the server: what was kept of a process is
// charged once, and what it gave up not at all.
func TestProcessesThatAreKilled(t *testing.T) {
	server := redistest.Start(t, redistest.Persistent())
	const steps = 40
	for _, seed := range []uint64{16, 41, 64, 109} { // which have found something before
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := &crashes{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), server: server}
			c.o = Options{
				Addresses: []string{server.Addr()}, Prefix: fmt.Sprint(seed, ":"), Timeout: 40 * time.Millisecond,
				OnError: func(err error) { t.Errorf("told %v", err) },
			}
			c.s = New(c.o)
			for range steps {
				c.step()
			}
			c.agree()
		})
	}
}
