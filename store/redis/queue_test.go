//go:build unix

package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// waitingCall returns a call that waits in a queue.
func waitingCall() *call {
	return &call{
		takes:   []store.Take{{Rule: tokens, Limit: 10, Need: 1, Hold: 1}},
		results: make([]store.Result, 1), done: make(chan struct{}), lease: time.Minute,
	}
}

// held returns tickets of an entity with holds of so many rules.
func held(e store.Entity, n, rules int) []*store.Ticket {
	out := make([]*store.Ticket, n)
	for i := range out {
		k := &ticket{deadline: 1000}
		k.Entity, k.Private = e, k
		for j := range rules {
			k.Lines = append(k.Lines, store.Line{Rule: &store.Rule{ID: fmt.Sprint("r", j), Window: tokens.Window}, Held: 1})
		}
		out[i] = &k.Ticket
	}
	return out
}

// However many streams are renewed, a new call waits for one batch at most, and
// however many calls come, each batch renews some.
func TestRenewalsAndCallsDoNotWaitForEachOther(t *testing.T) {
	s := unreachable(t)
	e := store.Entity{Instance: "i"}
	s.work.stopped = true // batches are built here
	const streams = 6000
	s.queueRenewals(held(e, streams, 4), time.Minute)
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := s.queue(sh, e)
	r := s.replicas.former.Load()
	renewed := func(b *batch) (n int) {
		for _, o := range b.ops {
			n += len(o.tickets)
		}
		if rules := 4 * n; rules > rulesMost {
			t.Errorf("%d holds are renewed at once", rules)
		}
		return n
	}
	if n := renewed(s.build(q, r)); n < rulesMost/8 {
		t.Errorf("%d streams are renewed where nobody waits", n)
	}
	for range 5 {
		for range 2 * callsMost {
			q.calls = append(q.calls, waitingCall())
		}
		s.push(q, &op{kind: settling, lines: []line{{rule: tokens, used: 1}}})
		b := s.build(q, r)
		if len(b.calls) != callsMost || b.ops[0].kind != settling || renewed(b) == 0 {
			t.Errorf("%d calls, %d changes, %d streams renewed", len(b.calls), len(b.ops), renewed(b))
		}
	}
}

// A server that is far takes so many calls of a consumer in a moment and no more.
// That is no outage, and those that come too many are told so.
func TestCallsThatWaitHereTooLongAreNotTheServersFault(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server, 1)
	s := open(t, Options{Addresses: []string{proxy.Addr()}, Timeout: 2 * time.Second})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Set(redistest.Faults{Delay: 200 * time.Millisecond})
	var busy, down atomic.Int64
	var wg sync.WaitGroup
	for range waitMost + 2000 {
		wg.Go(func() {
			r := store.Reservation{Entity: store.Entity{Instance: "i"}, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 1}}}
			_, err := s.Reserve(context.Background(), &r, make([]store.Result, 1))
			switch {
			case errors.Is(err, store.ErrBusy):
				if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%v is not one of those that wrap store.ErrUnavailable", err)
				}
				busy.Add(1)
			case err != nil:
				down.Add(1)
			}
		})
	}
	wg.Wait()
	if busy.Load() == 0 || down.Load() > 0 {
		t.Errorf("%d calls are told to be too many, %d of an outage", busy.Load(), down.Load())
	}
	proxy.Set(redistest.Faults{})
}

// But where the server is silent all the while, it is the server's.
func TestCallsThatWaitForSilenceAreTheServersFault(t *testing.T) {
	server := redistest.Start(t)
	s := open(t, Options{Addresses: []string{server.Addr()}, Timeout: 300 * time.Millisecond})
	served(t, func() error { return s.Ping(t.Context()) })
	server.Stop()
	defer server.Continue()
	var wg sync.WaitGroup
	for range 3 * callsMost {
		wg.Go(func() {
			r := store.Reservation{Entity: store.Entity{Instance: "i"}, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 1}}}
			_, err := s.Reserve(context.Background(), &r, make([]store.Result, 1))
			if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrBusy) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
}

// What must be settled first and cannot be sent costs a call one attempt, and no time.
func TestCallsBehindSettlementsAreToldAtOnce(t *testing.T) {
	s := unreachable(t)
	s.timeout = time.Hour
	s.work.stopped = true
	s.replicas.current.Store(s.replicas.former.Load())
	e := store.Entity{Instance: "i"}
	settled(s, e, tokens, time.UnixMilli(1), 1, 1)
	s.Export() // its batch stands before all others then
	for range 3 {
		r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 10, Need: 1}}}
		if _, err := s.Reserve(t.Context(), &r, make([]store.Result, 1)); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v", err)
		}
	}
	if n := s.Pending(); n != 1 {
		t.Errorf("%d pending", n)
	}
}

// A batch in doubt is sent again by the call that it stands before.
func TestCallsDoNotWaitForTheWorkerBehindWhatIsInDoubt(t *testing.T) {
	_, o := single(t)
	s := open(t, o)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := store.Entity{Instance: "loss", Consumer: "app-0"}
	sh := s.shard(e)
	sh.mu.Lock()
	q := s.queue(sh, e)
	s.push(q, &op{kind: settling, lines: []line{{rule: tokens, used: 7}}, at: time.Now()})
	b := s.build(q, s.replicas.current.Load())
	b.flying, b.doubt = false, true // and nobody is to send it
	s.pending.Add(1)
	s.doubts.Add(1)
	sh.mu.Unlock()
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 10, Need: 1}}}
	var got [1]store.Result
	if _, err := s.Reserve(t.Context(), &r, got[:]); err != nil || got[0].Used != 7 {
		t.Errorf("used %d, %v", got[0].Used, err)
	}
}

// A circuit that a ping closes must find the way free.
func TestPingsDeliverWhatIsInDoubt(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server, 1)
	s := open(t, Options{Addresses: []string{proxy.Addr()}, Timeout: time.Second})
	ledgers := make([]ledger, 5)
	work(t, s, ledgers, 1)
	proxy.Set(redistest.Faults{Requests: 1, Hang: true})
	work(t, s, ledgers, 1)
	if s.doubts.Load() == 0 {
		t.Fatal("nothing is in doubt")
	}
	// The next attempts of workers are far off.
	for end := time.Now().Add(10 * time.Second); s.doubts.Load() > 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		s.work.mu.Lock()
		failures := s.work.failures
		s.work.mu.Unlock()
		if failures > 2 {
			break
		}
	}
	proxy.Set(redistest.Faults{})
	if err := s.Ping(t.Context()); err != nil || s.doubts.Load() != 0 {
		t.Errorf("%d are in doubt after a ping, %v", s.doubts.Load(), err)
	}
	agree(t, s, ledgers)
}
