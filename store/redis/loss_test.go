//go:build unix

package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

var (
	tokens   = &store.Rule{ID: "tokens", Window: must(store.Fixed(3650 * 24 * time.Hour))}
	requests = &store.Rule{ID: "requests", Window: must(store.Rolling(3650 * 24 * time.Hour))}
	inFlight = &store.Rule{ID: "calls", Window: store.None()}
)

// mapped is a dialer that goes through the proxies in the servers' stead.
func mapped(proxies map[string]*redistest.Proxy) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if p := proxies[addr]; p != nil {
			addr = p.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
}

// ledger is what calls were told, which the counters must agree with.
type ledger struct{ used, calls atomic.Int64 }

// work makes calls of a few consumers from several goroutines, and notes what each
// has used that was admitted.
func work(t *testing.T, s *Store, ledgers []ledger, n int) {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range n {
				i := rand.IntN(len(ledgers))
				e := store.Entity{Instance: "loss", Consumer: fmt.Sprint("app-", i)}
				r := store.Reservation{Entity: e, Lease: time.Hour, Takes: []store.Take{
					{Rule: tokens, Limit: 1 << 60, Need: 1, Hold: 50},
					{Rule: requests, Limit: 1 << 60, Need: 1, Charge: 1},
					{Rule: inFlight, Limit: 1 << 60, Need: 1, Hold: 1, HoldMost: 3},
				}}
				k, err := s.Reserve(context.Background(), &r, make([]store.Result, 3))
				if err != nil {
					continue // it is to have taken nothing in the end
				}
				used, called := rand.Int64N(1000), rand.Int64N(3)
				ledgers[i].used.Add(used)
				ledgers[i].calls.Add(called)
				s.Settle(k, []int64{used, called})
			}
		})
	}
	wg.Wait()
}

// agree compares the counters with what calls were told, once all is settled.
func agree(t *testing.T, s *Store, ledgers []ledger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := s.drain(ctx); err != nil {
		t.Fatal(err)
	}
	results := make([]store.Result, 3)
	for i := range ledgers {
		e := store.Entity{Instance: "loss", Consumer: fmt.Sprint("app-", i)}
		served(t, func() error { return s.Read(ctx, e, []*store.Rule{tokens, requests, inFlight}, results) })
		used, calls := ledgers[i].used.Load(), ledgers[i].calls.Load()
		if results[0].Used != used || results[1].Used != calls || results[0].Held != 0 || results[2].Held != 0 {
			t.Errorf("%s: used %d of %d, %d calls of %d, held %d and %d", e.Consumer,
				results[0].Used, used, results[1].Used, calls, results[0].Held, results[2].Held)
		}
	}
}

var faults = []struct {
	name string
	redistest.Faults
}{
	{"closed connections", redistest.Faults{Requests: 0.15, Replies: 0.15}},
	{"silence", redistest.Faults{Requests: 0.03, Replies: 0.03, Hang: true}},
}

func TestNothingIsLostNorDoubledWhereMessagesAre(t *testing.T) {
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server, 1)
			s := open(t, Options{Addresses: []string{proxy.Addr()}, Timeout: 100 * time.Millisecond})
			ledgers := make([]ledger, 5)
			work(t, s, ledgers, 1) // it knows its number then
			proxy.Set(tt.Faults)
			work(t, s, ledgers, 60)
			proxy.Set(redistest.Faults{})
			agree(t, s, ledgers)
		})
	}
}

func TestNothingIsLostNorDoubledInAClusterWhereMessagesAre(t *testing.T) {
	cluster := redistest.StartCluster(t)
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			proxies := make(map[string]*redistest.Proxy)
			for i, n := range cluster.Nodes {
				proxies[n.Addr()] = redistest.NewProxy(t, n, uint64(i))
			}
			s := open(t, Options{
				Addresses: cluster.Addrs(), Cluster: true, Timeout: 100 * time.Millisecond,
				Prefix: tt.name, dialer: mapped(proxies),
			})
			ledgers := make([]ledger, 5)
			work(t, s, ledgers, 1)
			for _, p := range proxies {
				p.Set(tt.Faults)
			}
			work(t, s, ledgers, 60)
			for _, p := range proxies {
				p.Set(redistest.Faults{})
			}
			agree(t, s, ledgers)
		})
	}
}

// mute is a connection whose next reply is an error of a proxy's, once armed: the
// server has run the command then.
type mute struct {
	net.Conn
	armed *atomic.Bool
}

func (m *mute) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	if err == nil && n > 0 && m.armed.CompareAndSwap(true, false) {
		return copy(p, "-upstream disconnected\r\n"), nil
	}
	return n, err
}

func TestErrorsOfProxiesAreNoProofThatNothingWasApplied(t *testing.T) {
	_, o := single(t)
	var armed atomic.Bool
	o.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &mute{c, &armed}, err
	}
	s := open(t, o)
	ledgers := make([]ledger, 1)
	work(t, s, ledgers, 1)
	for range 3 {
		armed.Store(true)
		work(t, s, ledgers, 1)
	}
	agree(t, s, ledgers)
}

// garbled is a connection whose next reply of the script cannot be read, once armed.
type garbled struct {
	net.Conn
	armed *atomic.Bool
}

func (g *garbled) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if i := bytes.Index(p[:n], []byte("\r\nA ")); i >= 0 && g.armed.CompareAndSwap(true, false) {
		p[i+2] = '?'
	}
	return n, err
}

func TestRepliesThatAreNotUnderstoodAreAskedForAgain(t *testing.T) {
	_, o := single(t)
	var armed atomic.Bool
	var told atomic.Int64
	o.OnError = func(error) { told.Add(1) }
	o.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &garbled{c, &armed}, err
	}
	s := open(t, o)
	ledgers := make([]ledger, 1)
	work(t, s, ledgers, 1)
	for i := range int64(3) {
		armed.Store(true)
		work(t, s, ledgers, 1)
		if n := told.Load(); n != i+1 {
			t.Errorf("told %d times of %d", n, i+1)
		}
	}
	agree(t, s, ledgers)
}

// What a network delivers late is not applied after what came in its place.
func TestRequestsThatComeLateAreNotApplied(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server, 1)
	s := open(t, Options{Addresses: []string{proxy.Addr()}, Timeout: 100 * time.Millisecond})
	ledgers := make([]ledger, 3)
	work(t, s, ledgers, 2)
	for range 4 {
		proxy.Set(redistest.Faults{Partition: true})
		work(t, s, ledgers, 2)
		proxy.Set(redistest.Faults{})
		work(t, s, ledgers, 2)
	}
	agree(t, s, ledgers)
}

// A batch that was given up is sent without its calls. If that comes first, and what
// was sent first comes after all, nobody knows of what it would take.
func TestRequestsThatComeAfterTheirRepetitionAreNotApplied(t *testing.T) {
	server, o := single(t)
	s := open(t, o)
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := store.Entity{Instance: "loss", Consumer: "app"}
	for _, tt := range []struct {
		name  string
		again func(b *batch)
	}{
		{"given up", func(b *batch) { b.giveUp(errTimeout) }},
		{"refused meanwhile", func(b *batch) { b.calls[0].takes[0].Limit = 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := &queue{shard: new(shard), entity: e, key: s.key(e)}
			b := &batch{number: s.replicas.current.Load().next()}
			b.calls = []*call{{lease: time.Minute, takes: []store.Take{{Rule: tokens, Limit: 5, Need: 1, Charge: 1}}}}
			s.encode(q, b)
			first := b.args
			b.doubt = true
			tt.again(b)
			s.encode(q, b)
			if reply, err := s.apply.run(t.Context(), s.client, q.key, b.args...); err != nil || !strings.HasPrefix(reply, "A") {
				t.Fatal(reply, err)
			}
			if reply, err := s.apply.run(t.Context(), s.client, q.key, first...); err != nil || !strings.HasPrefix(reply, "D") {
				t.Errorf("what was sent first is applied: %q, %v", reply, err)
			}
		})
	}
	var got [1]store.Result
	if err := s.Read(t.Context(), e, []*store.Rule{tokens}, got[:]); err != nil || got[0].Used != 0 {
		t.Errorf("used %d, %v", got[0].Used, err)
	}
	if ttl := server.Client().PTTL(t.Context(), s.key(e)).Val(); ttl <= 0 {
		t.Errorf("the key ends in %s", ttl)
	}
}

// ended tells whether a channel is closed.
func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestServersThatDieAndComeBackLoseNothing(t *testing.T) {
	server := redistest.Start(t, redistest.Persistent())
	s := open(t, Options{Addresses: []string{server.Addr()}, Timeout: 200 * time.Millisecond})
	ledgers := make([]ledger, 3)
	work(t, s, ledgers, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(t, s, ledgers, 200)
	}()
	for range 2 {
		before := ledgers[0].used.Load()
		for end := time.Now().Add(30 * time.Second); ledgers[0].used.Load() == before && time.Now().Before(end) && !ended(done); {
			time.Sleep(time.Millisecond)
		}
		server.Restart()
	}
	<-done
	agree(t, s, ledgers)
}

// A process that was killed has its batches sent by the next, whether they had been
// applied or not, and even if they are sent by both.
func TestWhatIsPendingOutlivesTheProcess(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server, 7)
	o := Options{Addresses: []string{proxy.Addr()}, Timeout: 100 * time.Millisecond}
	ledgers := make([]ledger, 5)
	first := open(t, o)
	work(t, first, ledgers, 3)
	proxy.Set(redistest.Faults{Requests: 0.3, Replies: 0.4})
	work(t, first, ledgers, 20)
	proxy.Set(redistest.Faults{Replies: 1})
	work(t, first, ledgers, 1)
	exported := first.Export()
	if len(exported) == 0 {
		t.Fatal("nothing is pending")
	}
	proxy.Set(redistest.Faults{})
	if err := first.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Identity = first.Identity()
	second := open(t, o)
	if err := second.Restore(exported); err != nil {
		t.Fatal(err)
	}
	agree(t, second, ledgers)

	// And if the first has sent nothing since, nor what came in after its last attempt.
	proxy.Set(redistest.Faults{Replies: 1})
	work(t, second, ledgers, 2)
	exported = second.Export()
	proxy.Set(redistest.Faults{Refuse: true})
	proxy.Cut()
	o.Identity, o.Addresses = second.Identity(), []string{server.Addr()}
	third := open(t, o)
	if err := third.Restore(exported); err != nil {
		t.Fatal(err)
	}
	agree(t, third, ledgers)
	proxy.Set(redistest.Faults{})
	agree(t, second, ledgers) // it finds that all has been applied
}

// A process that comes back after its number has become another's still has all that
// it had not sent charged, in whatever order its records are kept.
func TestWhatIsPendingOutlivesTheReplicasNumber(t *testing.T) {
	server, o := single(t)
	var down atomic.Bool
	o.dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if down.Load() {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	first := New(o)
	e := store.Entity{Instance: "loss", Consumer: "app"}
	reserve := func(s *Store) *store.Ticket {
		r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1 << 50, Need: 1, Hold: 1}}}
		k, err := s.Reserve(t.Context(), &r, make([]store.Result, 1))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	tickets := []*store.Ticket{reserve(first), reserve(first), reserve(first)}
	down.Store(true)
	first.work.stop() // nothing is sent any more
	var exported [][]byte
	for i, k := range tickets {
		first.Settle(k, []int64{int64(1000 * (i + 1))})
		exported = first.Export()
	}
	if err := first.client.Close(); err != nil || len(exported) != len(tickets) {
		t.Fatalf("%d records, %v", len(exported), err)
	}
	server.Client().Del(t.Context(), first.leaseKey(0)) // the lease is over
	o.dialer = nil
	second := open(t, o)
	second.Settle(reserve(second), []int64{5})
	if err := second.drain(t.Context()); err != nil || second.replicas.current.Load().number != 0 {
		t.Fatal(err)
	}
	o.Identity = first.Identity()
	third := open(t, o)
	slices.Reverse(exported)
	if err := third.Restore(exported); err != nil {
		t.Fatal(err)
	}
	if err := third.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got [1]store.Result
	if err := third.Read(t.Context(), e, []*store.Rule{tokens}, got[:]); err != nil || got[0].Used != 6005 || got[0].Held != 0 {
		t.Errorf("used %d of 6005, held %d, %v", got[0].Used, got[0].Held, err)
	}
}
