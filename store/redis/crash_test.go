//go:build unix

package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
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

// A record that is kept while a call waits says nothing of what the call wants. If the
// server did admit it, its answer is understood all the same.
func TestCallThatWaitedWhenItsProcessWasKilled(t *testing.T) {
	server, o := single(t)
	o.Timeout = 10 * time.Second
	first := New(o)
	e := store.Entity{Instance: "crash", Consumer: "app"}
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{
		{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 50, HoldMost: 70}, {Rule: requests, Limit: 1 << 50, Need: 1, Charge: 1},
	}}
	k, err := first.Reserve(t.Context(), &r, make([]store.Result, 2))
	if err != nil {
		t.Fatal(err)
	}
	first.work.stop() // what is settled goes with the call
	server.Stop()
	first.Settle(k, []int64{300, 1})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = first.Reserve(context.Background(), &r, make([]store.Result, 2))
	}()
	sh := first.shard(e)
	var exported [][]byte
	for end := time.Now().Add(10 * time.Second); len(exported) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		sh.mu.Lock()
		q := sh.queues[e]
		sent := q != nil && q.batch != nil && len(q.batch.calls) == 1
		sh.mu.Unlock()
		if sent {
			time.Sleep(20 * time.Millisecond) // for the connection to take it
			exported = first.Export()
		}
	}
	if len(exported) != 1 {
		t.Fatalf("%d records", len(exported))
	}
	first.closed.Store(true)
	_ = first.client.Close()
	<-ended
	server.Continue()
	o.Identity = first.Identity()
	o.OnError = func(err error) { t.Errorf("told %v", err) }
	second := open(t, o)
	if err := second.Restore(exported); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := second.drain(ctx); err != nil {
		t.Fatal(err)
	}
	var got [2]store.Result
	if err := second.Read(t.Context(), e, []*store.Rule{tokens, requests}, got[:]); err != nil {
		t.Fatal(err)
	}
	// A call under way costs its request, where the server came to admit it.
	if got[0].Used != 300 || got[1].Used < 1 || got[1].Used > 2 {
		t.Errorf("%d tokens and %d requests charged, want 300, and 1 or 2", got[0].Used, got[1].Used)
	}
}

// What was exported on its way, and turns out not to have been sent, keeps its number: who
// restores it may send it, too.
func TestExportedOnItsWayIsChargedOnce(t *testing.T) {
	_, o := single(t)
	var blocked atomic.Bool
	dialled, fail := make(chan struct{}, 100), make(chan struct{})
	o.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if blocked.Load() {
			dialled <- struct{}{}
			<-fail
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	first := New(o)
	e := store.Entity{Instance: "crash", Consumer: "app"}
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 5}}}
	k, err := first.Reserve(t.Context(), &r, make([]store.Result, 1))
	if err != nil {
		t.Fatal(err)
	}
	blocked.Store(true)
	for end := time.Now().Add(10 * time.Second); first.client.PoolStats().TotalConns > 0 && time.Now().Before(end); {
		_ = first.client.Do(t.Context(), "quit").Err() // the server ends it
	}
	first.Settle(k, []int64{300})
	<-dialled
	exported := first.Export()
	blocked.Store(false)
	close(fail)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := first.drain(ctx); err != nil || len(exported) != 1 {
		t.Fatalf("%d records, %v", len(exported), err)
	}
	kill(first)
	o.Identity, o.dialer = first.Identity(), nil
	second := open(t, o)
	if err := second.Restore(exported); err != nil {
		t.Fatal(err)
	}
	if err := second.drain(ctx); err != nil {
		t.Fatal(err)
	}
	var got [1]store.Result
	if err := second.Read(t.Context(), e, []*store.Rule{tokens}, got[:]); err != nil || got[0].Used != 300 || got[0].Held != 0 {
		t.Errorf("%d tokens charged, %d held, %v, want 300", got[0].Used, got[0].Held, err)
	}
}

// Where the server's clock was put back, a process may come to a number that the one
// before it has used.
func TestNumberOfAFormerProcess(t *testing.T) {
	_, o := single(t)
	first := New(o)
	e := store.Entity{Instance: "crash", Consumer: "app"}
	add := store.Amount{Rule: tokens, Amount: 7}
	if err := first.Adjust(t.Context(), e, add); err != nil {
		t.Fatal(err)
	}
	last := first.replicas.current.Load().last.Load()
	kill(first)
	o.Identity = first.Identity()
	second := open(t, o)
	if err := second.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, behind := range []int64{0, 1, 1e9} {
		r := second.replicas.current.Load()
		r.base, r.at = 0, time.Now()
		r.last.Store(last - 1 - behind)
		if err := second.Adjust(t.Context(), e, add); err != nil {
			t.Fatal(err)
		}
		last = r.last.Load()
	}
	var got [1]store.Result
	if err := second.Read(t.Context(), e, []*store.Rule{tokens}, got[:]); err != nil || got[0].Used != 28 {
		t.Errorf("used %d, %v, want 28", got[0].Used, err)
	}
}

// A call that was given up may be one that is charged by a batch. So that is not sent
// before what the call may have taken is given back: the process may die in between.
func TestChargesComeAfterWhatIsGivenBack(t *testing.T) {
	server, o := single(t)
	o.Timeout = 100 * time.Millisecond
	s := New(o)
	e := store.Entity{Instance: "crash", Consumer: "app"}
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: requests, Limit: 1 << 50, Need: 1, Charge: 1}}}
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	reader := open(t, Options{Addresses: o.Addresses})
	for n := range int64(5) {
		server.Stop()
		if _, err := s.Reserve(t.Context(), &r, make([]store.Result, 1)); err == nil {
			t.Fatal("a stopped server answers")
		}
		server.Continue()
		b := store.Batch{Entity: e, Origin: "0123456789abcdef", Seq: n + 1, At: time.Now(), Lines: []store.Amount{{Rule: requests, Amount: 1}}}
		for end := time.Now().Add(10 * time.Second); s.Charge(t.Context(), []store.Batch{b})[0] != nil; {
			if time.Now().After(end) {
				t.Fatal("it is not charged")
			}
		}
		var got [1]store.Result
		if err := reader.Read(t.Context(), e, []*store.Rule{requests}, got[:]); err != nil || got[0].Used != n+1 {
			t.Errorf("%d requests charged, %v, want %d", got[0].Used, err, n+1)
		}
	}
	kill(s)
}

// While the server answers, what it does not take of one entity is kept, and of others
// nothing is.
func TestStuckIsWhatTheServerDoesNotTake(t *testing.T) {
	server, o := single(t)
	s := New(o)
	var tickets []*store.Ticket
	for _, consumer := range []string{"odd", "even"} {
		e := store.Entity{Instance: "crash", Consumer: consumer}
		r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 5}}}
		k, err := s.Reserve(t.Context(), &r, make([]store.Result, 1))
		if err != nil {
			t.Fatal(err)
		}
		tickets = append(tickets, k)
	}
	key := s.key(tickets[0].Entity)
	if err := errors.Join(server.Client().Del(t.Context(), key).Err(), server.Client().Set(t.Context(), key, "x", 0).Err()); err != nil {
		t.Fatal(err)
	}
	if n := len(s.Stuck()); n != 0 {
		t.Errorf("%d records before anything is settled", n)
	}
	for _, k := range tickets {
		s.Settle(k, []int64{300})
	}
	for end := time.Now().Add(10 * time.Second); s.Pending() > 1 || len(s.Stuck()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d pending, %d stuck", s.Pending(), len(s.Stuck()))
		}
	}
	if stuck := s.Stuck(); len(stuck) != 1 || !strings.Contains(string(stuck[0]), `"odd"`) {
		t.Errorf("stuck: %s", stuck)
	}
	kill(s)
}
