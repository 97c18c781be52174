//go:build unix

package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

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
	var refused, blocked atomic.Bool
	dialled, fail := make(chan struct{}, 100), make(chan struct{})
	o.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !refused.Load() {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		if blocked.Load() {
			dialled <- struct{}{}
			<-fail
		}
		return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
	}
	first := New(o)
	e := store.Entity{Instance: "crash", Consumer: "app"}
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 5}}}
	k, err := first.Reserve(t.Context(), &r, make([]store.Result, 1))
	if err != nil {
		t.Fatal(err)
	}
	refused.Store(true)
	for end := time.Now().Add(10 * time.Second); first.client.PoolStats().TotalConns > 0 && time.Now().Before(end); {
		_ = first.client.Do(t.Context(), "quit").Err() // the server ends it, and there is no other
	}
	blocked.Store(true)
	first.Settle(k, []int64{300})
	<-dialled
	exported := first.Export()
	refused.Store(false)
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
