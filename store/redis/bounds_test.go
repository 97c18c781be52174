//go:build unix

package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// evaluations is how many scripts the server has run.
func evaluations(t *testing.T, c *goredis.Client) int {
	t.Helper()
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, err := strconv.Atoi(calls)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func TestEveryKeyEnds(t *testing.T) {
	server, o := single(t)
	s := open(t, o)
	c := server.Client()
	const day = 24 * time.Hour
	rules := []*store.Rule{
		{ID: "minute", Window: must(store.Calendar("minute", time.UTC))},
		{ID: "rolling", Window: must(store.Rolling(7 * day))},
		{ID: "bucket", Window: must(store.Bucket(day)), Refill: 10_000},
		{ID: "month", Window: must(store.Calendar("month", time.UTC))},
		inFlight,
	}
	for i := range 300 {
		e := store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app-", i%40)}
		r := store.Reservation{Entity: e, Lease: time.Duration(rand.Int64N(int64(time.Hour)))}
		for _, j := range rand.Perm(len(rules))[:1+i%len(rules)] {
			r.Takes = append(r.Takes, store.Take{Rule: rules[j], Limit: 1 << 50, Need: 1, Hold: rand.Int64N(100), Charge: rand.Int64N(2000)})
		}
		k, err := s.Reserve(t.Context(), &r, make([]store.Result, len(r.Takes)))
		if err != nil || k == nil {
			t.Fatal(k, err)
		}
		switch i % 3 {
		case 0:
			s.Settle(k, []int64{rand.Int64N(1000)})
		case 1:
			if err := s.Renew(t.Context(), []*store.Ticket{k}, time.Minute); err != nil {
				t.Fatal(err)
			}
		default: // left to lapse
		}
	}
	if err := s.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys := c.Keys(t.Context(), "*").Val()
	if len(keys) != 41 {
		t.Errorf("%d keys", len(keys))
	}
	for _, key := range keys {
		// Two rolling windows, or a month, and an eighth.
		if ttl := c.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 31*day*9/8+time.Minute {
			t.Errorf("%s ends in %s", key, ttl)
		}
	}
}

func TestFieldsOfRulesThatAreGoneAreForgotten(t *testing.T) {
	server, o := single(t)
	s := open(t, o)
	e := store.Entity{Instance: "tokens", Consumer: "app"}
	for i := range 500 {
		r := &store.Rule{ID: fmt.Sprint("old ", i), Window: must(store.Fixed(time.Second))}
		if err := s.Adjust(t.Context(), e, store.Amount{Rule: r, Amount: 1}); err != nil {
			t.Fatal(err)
		}
	}
	c := server.Client()
	// It is looked for when fields are added, now and then.
	i, end := 0, time.Now().Add(time.Minute)
	for ; c.HLen(t.Context(), "{app}tokens").Val() > 400; i++ {
		if time.Now().After(end) {
			t.Fatalf("%d fields are left of 500 after %d more", c.HLen(t.Context(), "{app}tokens").Val(), i)
		}
		r := &store.Rule{ID: fmt.Sprint("new ", i), Window: must(store.Fixed(time.Hour))}
		if err := s.Adjust(t.Context(), e, store.Amount{Rule: r, Amount: 1}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	results := make([]store.Result, 1)
	for j := range i {
		r := &store.Rule{ID: fmt.Sprint("new ", j), Window: must(store.Fixed(time.Hour))}
		if err := s.Read(t.Context(), e, []*store.Rule{r}, results); err != nil || results[0].Used != 1 {
			t.Errorf("rule %d that is used: %+v, %v", j, results[0], err)
		}
	}
}

func TestTwoProcessesNeverPassALimitTogether(t *testing.T) {
	_, o := single(t)
	stores := []*Store{open(t, o), open(t, o)}
	e := store.Entity{Instance: "tokens", Consumer: "app"}
	const limit, each = 1000, 7
	var admitted atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range 160 {
		wg.Go(func() {
			<-start
			for range 2 {
				r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: limit, Need: each, Hold: each}}}
				k, err := stores[i%2].Reserve(context.Background(), &r, make([]store.Result, 1))
				if err != nil {
					t.Error(err)
				}
				if k != nil {
					admitted.Add(1)
					stores[i%2].Settle(k, []int64{each})
				}
			}
		})
	}
	close(start)
	wg.Wait()
	if n := admitted.Load(); n != limit/each {
		t.Errorf("%d calls of %d were admitted to a limit of %d", n, each, limit)
	}
	for _, s := range stores {
		if err := s.drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range stores {
		results := make([]store.Result, 1)
		if err := s.Read(t.Context(), e, []*store.Rule{tokens}, results); err != nil || results[0].Used != each*admitted.Load() || results[0].Held != 0 {
			t.Errorf("process %d: %+v, %v, want %d used", i, results[0], err, each*admitted.Load())
		}
	}
}

func TestHammeringConsumersAreRefusedWithoutTheServer(t *testing.T) {
	server, o := single(t)
	s := open(t, o)
	e := store.Entity{Instance: "tokens", Consumer: "app"}
	if err := s.Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: 100}); err != nil {
		t.Fatal(err)
	}
	c := server.Client()
	before, began := evaluations(t, c), time.Now()
	r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 100, Need: 1, Hold: 1}}}
	results := make([]store.Result, 1)
	const calls = 20_000
	for range calls {
		if k, err := s.Reserve(t.Context(), &r, results); err != nil || k != nil {
			t.Fatal(k, err)
		}
		if got := results[0]; !got.Exceeded || got.RetryAfter <= 0 || got.Used != 100 || got.Limit != 100 {
			t.Fatalf("got %+v", got)
		}
	}
	if n, most := evaluations(t, c)-before, 2+int(time.Since(began)/rememberFor); n > most {
		t.Errorf("%d calls asked the server %d times in %s", calls, n, time.Since(began))
	}
	// A larger limit is none that is known to refuse, and a grant is known at once.
	r.Takes[0].Limit = 101
	if k, err := s.Reserve(t.Context(), &r, results); err != nil || k == nil {
		t.Errorf("refused by a limit that is gone: %+v, %v", results[0], err)
	} else {
		s.Settle(k, nil)
	}
	r.Takes[0].Limit = 100
	if k, err := s.Reserve(t.Context(), &r, results); err != nil || k != nil {
		t.Errorf("admitted: %+v, %v", results[0], err)
	}
	if err := s.Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: -1}); err != nil {
		t.Fatal(err)
	}
	if k, err := s.Reserve(t.Context(), &r, results); err != nil || k == nil {
		t.Errorf("a grant is not seen: %+v, %v", results[0], err)
	}
}

func TestRememberedRefusalsAreBounded(t *testing.T) {
	_, o := single(t)
	s := open(t, o)
	for i := range 3 * refusalsMost {
		e := store.Entity{Instance: "tokens", Consumer: fmt.Sprint("app ", i)}
		r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 0, Need: 1}}}
		if k, err := s.Reserve(t.Context(), &r, make([]store.Result, 1)); err != nil || k != nil {
			t.Fatal(k, err)
		}
	}
	sh := &shard{refusals: make(map[store.Entity]*refusal)}
	for i := range 4 * refusalsMost {
		q := &queue{entity: store.Entity{Consumer: fmt.Sprint(i)}, shard: sh}
		s.remember(q, &call{}, &outcome{})
	}
	if n := len(sh.refusals); n > refusalsMost {
		t.Errorf("%d are remembered", n)
	}
	for i := range s.shards {
		if n := len(s.shards[i].queues); n != 0 {
			t.Errorf("%d queues of entities that nothing is pending of", n)
		}
	}
}

func TestManyCallsOfOneConsumerShareRoundTrips(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server, 1)
	s := open(t, Options{Addresses: []string{proxy.Addr()}, Timeout: 10 * time.Second})
	if _, err := s.replica(t.Context()); err != nil {
		t.Fatal(err)
	}
	proxy.Set(redistest.Faults{Delay: 20 * time.Millisecond})
	c := server.Client()
	before := evaluations(t, c)
	ledgers := make([]ledger, 1)
	work(t, s, ledgers, 8)
	agree(t, s, ledgers)
	if n := evaluations(t, c) - before; n > 16*8 {
		t.Errorf("%d calls took %d round trips", 16*8, n)
	}
}

func TestErrorsSayWhyInAWordAndNoMore(t *testing.T) {
	secured := redistest.Start(t, redistest.Password("hunter2-secret"))
	full := redistest.Start(t, redistest.Config("maxmemory", "1mb"))
	down := redistest.Start(t)
	down.Kill()
	hung := redistest.Start(t)
	hung.Stop()
	defer hung.Continue()
	for _, tt := range []struct {
		name, addr, password, want string
	}{
		{"no password", secured.Addr(), "", "NOAUTH"},
		{"wrong password", secured.Addr(), "hunter3-secret", "WRONGPASS"},
		{"nobody listens", down.Addr(), "", "no connection"},
		{"server hangs", hung.Addr(), "", "timeout"},
		{"server is full", full.Addr(), "", "OOM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{Addresses: []string{tt.addr}, Password: tt.password, Timeout: 200 * time.Millisecond})
			defer func() { _ = s.Close(t.Context()) }()
			r := store.Reservation{Entity: store.Entity{Instance: "tokens"}, Lease: time.Minute, Takes: []store.Take{{Rule: tokens, Limit: 1, Need: 1, Hold: 1}}}
			_, err := s.Reserve(t.Context(), &r, make([]store.Result, 1))
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), tt.addr)) {
				t.Errorf("%q tells too much", err)
			}
		})
	}
}

func TestTellsWhatTheServerEvicts(t *testing.T) {
	for _, policy := range []string{"noeviction", "allkeys-lru"} {
		server := redistest.Start(t, redistest.Config("maxmemory-policy", policy))
		s := open(t, Options{Addresses: []string{server.Addr()}})
		if got := s.EvictionPolicy(); got != "" {
			t.Errorf("%q before it is connected", got)
		}
		if err := s.Adjust(t.Context(), store.Entity{Instance: "tokens"}, store.Amount{Rule: tokens, Amount: 1}); err != nil {
			t.Fatal(err)
		}
		if got := s.EvictionPolicy(); got != policy {
			t.Errorf("got %q, want %q", got, policy)
		}
	}
}

// The prefix is no pattern, and what others keep beside is left alone.
func TestListsWhatIsUnderItsPrefixOnly(t *testing.T) {
	server, o := single(t)
	for _, prefix := range []string{"", "a", "a*", "[b]:", `\`, "{x}"} {
		o.Prefix = prefix
		s := open(t, o)
		for _, name := range []string{"one", "two words", "three"} {
			if err := s.Adjust(t.Context(), store.Entity{Instance: "tokens" + prefix, Consumer: name}, store.Amount{Rule: tokens, Amount: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	server.Client().Set(t.Context(), "{other}tokens", 1, time.Minute)
	for _, prefix := range []string{"a", "a*", "[b]:", `\`} {
		o.Prefix = prefix
		entities, err := open(t, o).Entities(t.Context(), "tokens"+prefix, "", 10)
		var names []string
		for _, e := range entities {
			names = append(names, e.Consumer)
		}
		if err != nil || !slices.Equal(names, []string{"one", "three", "two words"}) {
			t.Errorf("%q: got %q, %v", prefix, names, err)
		}
	}
}

func TestConsumersTakeLittleRoom(t *testing.T) {
	server, o := single(t)
	s := open(t, o)
	takes := takes(3)
	var sizes []int64
	c := server.Client()
	const n = 2000
	for i := range n {
		e := store.Entity{Instance: "tokens", Consumer: fmt.Sprintf("application-%06d", i)}
		k, err := s.Reserve(t.Context(), &store.Reservation{Entity: e, Takes: takes, Lease: time.Minute}, make([]store.Result, 3))
		if err != nil || k == nil {
			t.Fatal(k, err)
		}
		s.Settle(k, []int64{1, rand.Int64N(1_000_000), rand.Int64N(1_000_000)})
	}
	if err := s.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		sizes = append(sizes, c.MemoryUsage(t.Context(), fmt.Sprintf("{application-%06d}tokens", i)).Val())
	}
	slices.Sort(sizes)
	if median := sizes[n/2]; median > 300 {
		t.Errorf("a consumer takes %d bytes", median)
	} else {
		t.Logf("a consumer takes %d bytes", median)
	}
}
