//go:build unix

package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// own gives an entity a limit of its own, or with a limit below zero takes it away.
func own(t testing.TB, s *Store, e store.Entity, r *store.Rule, limit int64) {
	t.Helper()
	to := &limit
	if limit < 0 {
		to = nil
	}
	served(t, func() error { return s.Override(t.Context(), e, r.ID, to) })
}

// call asks for one, and tells by what limit it was decided.
func callOne(t testing.TB, s *Store, e store.Entity, r *store.Rule, limit int64) (admitted bool, by int64) {
	t.Helper()
	results := make([]store.Result, 1)
	k, err := s.Reserve(t.Context(), &store.Reservation{
		Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: r, Limit: limit, Need: 1, Charge: 1}},
	}, results)
	if err != nil {
		t.Fatal(err)
	}
	if k != nil {
		s.Settle(k, []int64{1})
	}
	return k != nil, results[0].Limit
}

func TestOwnLimitsActOnAllReplicasAtOnce(t *testing.T) {
	_, o := single(t)
	a, b := open(t, o), open(t, o)
	e := store.Entity{Instance: "own", Consumer: "app"}
	for _, s := range []*Store{a, b} {
		callOne(t, s, e, tokens, 2)
	}
	for range 3 { // both remember that they refuse
		for _, s := range []*Store{a, b} {
			if admitted, _ := callOne(t, s, e, tokens, 2); admitted {
				t.Fatal("admitted beyond the limit")
			}
		}
	}
	own(t, a, e, tokens, 10)
	if admitted, by := callOne(t, a, e, tokens, 2); !admitted || by != 10 {
		t.Errorf("the replica that set it admits: %t, by %d", admitted, by)
	}
	since := time.Now()
	for {
		admitted, by := callOne(t, b, e, tokens, 2)
		if admitted && by == 10 {
			break
		}
		if time.Since(since) > rememberFor+10*time.Second { // the machine may be busy
			t.Fatalf("the other admits %t by %d after %s", admitted, by, time.Since(since))
		}
	}
	own(t, b, e, tokens, 0)
	if admitted, by := callOne(t, a, e, tokens, 2); admitted || by != 0 {
		// nothing is remembered of those who were admitted last
		t.Errorf("a lower one admits: %t, by %d", admitted, by)
	}
	own(t, a, e, tokens, -1)
	if admitted, by := callOne(t, a, e, tokens, 5); !admitted || by != 5 {
		t.Errorf("the config's admits: %t, by %d", admitted, by)
	}
}

// A refusal whose answer was on its way when the limit was set must not be remembered.
func TestRefusalsFromBeforeAnEditAreNotRemembered(t *testing.T) {
	_, o := single(t)
	s := open(t, o)
	e := store.Entity{Instance: "own", Consumer: "app"}
	for i := range 200 {
		limit := int64(i % 2 * 1_000_000)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { callOne(t, s, e, tokens, 1) })
		}
		own(t, s, e, tokens, limit)
		if admitted, by := callOne(t, s, e, tokens, 1); by != limit || admitted != (limit > 0) {
			t.Fatalf("a limit of %d admits %t by %d", limit, admitted, by)
		}
		wg.Wait()
	}
}

func TestOwnLimitsKeepTheHash(t *testing.T) {
	server, o := single(t)
	s, c := open(t, o), server.Client()
	e := store.Entity{Instance: "own", Consumer: "an odd name"}
	brief := &store.Rule{ID: "brief", Window: must(store.Fixed(time.Second))}
	long := &store.Rule{ID: "long", Window: must(store.Fixed(1000 * time.Hour))}
	lives := func() time.Duration {
		t.Helper()
		d, err := c.PTTL(t.Context(), s.key(e)).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	own(t, s, e, brief, 5)
	own(t, s, e, long, 5)
	for range 3 { // as single calls, several at once, and by an adjustment
		callOne(t, s, e, brief, 1)
		if err := s.Adjust(t.Context(), e, store.Amount{Rule: brief, Amount: 1}, store.Amount{Rule: long, Amount: 1}); err != nil {
			t.Fatal(err)
		}
		if errs := s.Charge(t.Context(), []store.Batch{{Entity: e, Origin: "0123456789abcdef", Seq: time.Now().UnixMicro(), At: time.Now(), Lines: []store.Amount{{Rule: long, Amount: 1}}}}); errs[0] != nil {
			t.Fatal(errs[0])
		}
		if d := lives(); d != -1 {
			t.Errorf("it lives for %s, want for ever", d)
		}
	}
	own(t, s, e, brief, -1)
	if d := lives(); d != -1 {
		t.Errorf("it lives for %s with a limit left, want for ever", d)
	}
	own(t, s, e, long, -1)
	_, end := long.Window.Span(time.Now().UnixMilli())
	if d, want := lives(), time.Until(time.UnixMilli(end)); d < want || d > 1001*time.Hour*9/8+time.Second {
		t.Errorf("it lives for %s, want at least %s", d, want)
	}
	results := make([]store.Result, 1)
	if err := s.Read(t.Context(), e, []*store.Rule{long}, results); err != nil || results[0].Used != 6 {
		t.Errorf("got %+v, %v, want 6 used", results[0], err)
	}

	// One that counts nothing is gone soon, and nothing comes of taking away nothing.
	e.Consumer = "other"
	own(t, s, e, long, -1)
	if n := c.Exists(t.Context(), s.key(e)).Val(); n != 0 {
		t.Error("taking away nothing makes a hash")
	}
	own(t, s, e, long, 1)
	own(t, s, e, long, -1)
	if d := lives(); d > 12*time.Minute {
		t.Errorf("one that counts nothing lives for %s", d)
	}
}

// A replica of a version before there were such limits has the hash expire, as it does
// with every other. Whatever comes next of a replica that knows them makes it stay.
func TestOwnLimitsOutlastCallsOfOlderReplicas(t *testing.T) {
	server, o := single(t)
	s, c := open(t, o), server.Client()
	take := func(e store.Entity) { callOne(t, s, e, tokens, 1000) }
	for _, tt := range []struct {
		name  string
		limit int64
		next  func(store.Entity)
	}{
		{"a call that is admitted", 1000, take},
		{"a call that is refused, which counts nothing", 0, take},
		{"an adjustment", 5, func(e store.Entity) {
			if err := s.Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: 1}); err != nil {
				t.Fatal(err)
			}
		}},
		{"charges of an outage", 5, func(e store.Entity) {
			b := store.Batch{Entity: e, Origin: "0123456789abcdef", Seq: 1, At: time.Now(), Lines: []store.Amount{{Rule: tokens, Amount: 1}}}
			if errs := s.Charge(t.Context(), []store.Batch{b}); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}},
		{"another limit", 5, func(e store.Entity) { own(t, s, e, requests, 7) }},
		{"a limit that is taken away, with one left", 5, func(e store.Entity) { own(t, s, e, requests, -1) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := store.Entity{Instance: "older", Consumer: tt.name}
			own(t, s, e, tokens, tt.limit)
			if tt.limit > 0 { // the next call is as any other
				take(e)
			}
			if ok, err := c.PExpire(t.Context(), s.key(e), time.Hour).Result(); err != nil || !ok {
				t.Fatal(ok, err)
			}
			tt.next(e)
			if d, err := c.PTTL(t.Context(), s.key(e)).Result(); err != nil || d != -1 {
				t.Errorf("it lives for %s (%v), want for ever", d, err)
			}
			if got, err := s.OverridesOf(t.Context(), e); err != nil || got[tokens.ID] != tt.limit {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// What is looked for once in a while, to be dropped, is not what was set by hand.
func TestOwnLimitsOutlastTheTidying(t *testing.T) {
	_, o := single(t)
	s := open(t, o)
	e := store.Entity{Instance: "own", Consumer: "app"}
	own(t, s, e, tokens, 5)
	for i := range 200 {
		r := &store.Rule{ID: fmt.Sprint("rule ", i), Window: must(store.Fixed(time.Second))}
		callOne(t, s, e, r, 1000)
	}
	if got, err := s.OverridesOf(t.Context(), e); err != nil || got[tokens.ID] != 5 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestClearOfManyCounters(t *testing.T) {
	server, o := single(t)
	s := open(t, o)
	e := store.Entity{Instance: "clear", Consumer: "app"}
	var rules []*store.Rule
	for i := range 1500 {
		rules = append(rules, &store.Rule{ID: fmt.Sprint("rule ", i), Window: tokens.Window})
	}
	var tickets []*store.Ticket
	for i := 0; i < len(rules); i += 100 {
		r := store.Reservation{Entity: e, Lease: time.Hour}
		for j, rule := range rules[i : i+100] {
			r.Takes = append(r.Takes, store.Take{Rule: rule, Limit: 1 << 60, Need: 1, Charge: 7, Hold: int64(j % 2)})
		}
		k, err := s.Reserve(t.Context(), &r, make([]store.Result, len(r.Takes)))
		if err != nil || k == nil {
			t.Fatal(k, err)
		}
		tickets = append(tickets, k)
	}
	if err := s.Clear(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	results := make([]store.Result, len(rules))
	if err := s.Read(t.Context(), e, rules, results); err != nil {
		t.Fatal(err)
	}
	for i, res := range results {
		if res.Used != 0 || res.Held != int64(i%100%2) {
			t.Fatalf("rule %d: used %d, held %d", i, res.Used, res.Held)
		}
	}
	counted := 0
	for field := range server.Client().HGetAll(t.Context(), s.key(e)).Val() {
		if strings.HasPrefix(field, "w") {
			counted++
		}
	}
	if counted != len(rules)/2 {
		t.Errorf("%d counters are left, want those of which something is held", counted)
	}
	for _, k := range tickets {
		s.Settle(k, nil)
	}
}

// Adjustments count once or not at all, as was told, and limits are the last that were
// set, whatever is lost on the way.
func TestEditsWhereMessagesAreLost(t *testing.T) {
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server, 3)
			s := open(t, Options{Addresses: []string{proxy.Addr()}, Timeout: 100 * time.Millisecond})
			e := store.Entity{Instance: "loss", Consumer: "app"}
			own(t, s, e, tokens, 1)
			proxy.Set(tt.Faults)
			var adjusted, failed atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 50 {
						n := 1 + rand.Int64N(1000)
						err := s.Adjust(context.Background(), e, store.Amount{Rule: tokens, Amount: n}, store.Amount{Rule: requests, Amount: -n})
						switch {
						case err == nil:
							adjusted.Add(n)
						case errors.Is(err, store.ErrUnavailable):
							failed.Add(1)
						default:
							t.Errorf("got %v", err)
						}
					}
				})
			}
			var last int64
			for i := range int64(50) {
				if err := s.Override(context.Background(), e, tokens.ID, &i); err == nil {
					last = i
				} else {
					failed.Add(1)
					last = -1 // the one or the other
				}
			}
			wg.Wait()
			proxy.Set(redistest.Faults{})
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			if err := s.drain(ctx); err != nil {
				t.Fatal(err)
			}
			results := make([]store.Result, 2)
			served(t, func() error { return s.Read(ctx, e, []*store.Rule{tokens, requests}, results) })
			if n := adjusted.Load(); results[0].Used != n || results[1].Used != -n {
				t.Errorf("used %d and %d, and adjusted by %d", results[0].Used, results[1].Used, n)
			}
			if last >= 0 && results[0].Limit != last || !results[0].Overridden {
				t.Errorf("got %+v, want a limit of %d", results[0], last)
			}
			if tt.Hang && failed.Load() == 0 { // closed connections are made again
				t.Error("nothing failed")
			}
		})
	}
}

// What was told to have failed is taken back even if the process ends before it is known
// whether it was applied.
func TestAdjustmentsInDoubtAreUndoneByTheNextProcess(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults redistest.Faults
	}{{"that were applied", redistest.Faults{Replies: 1, Hang: true}}, {"that were not", redistest.Faults{Requests: 1, Hang: true}}} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			proxy := redistest.NewProxy(t, server, 1)
			s := New(Options{Addresses: []string{proxy.Addr()}, Timeout: 100 * time.Millisecond})
			e := store.Entity{Instance: "loss", Consumer: "app"}
			for _, n := range []int64{40, -15} {
				served(t, func() error { return s.Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: 100}) })
				proxy.Set(tt.faults)
				if err := s.Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: n}); !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("got %v", err)
				}
				left := s.Export()
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_ = s.Close(ended) // as a process that is killed
				proxy.Set(redistest.Faults{})

				s = New(Options{Addresses: []string{proxy.Addr()}, Timeout: 10 * time.Second})
				if err := s.Restore(left); err != nil {
					t.Fatal(err)
				}
				if err := s.drain(t.Context()); err != nil {
					t.Fatal(err)
				}
				results := make([]store.Result, 1)
				if err := s.Read(t.Context(), e, []*store.Rule{tokens}, results); err != nil || results[0].Used%100 != 0 {
					t.Errorf("got %+v, %v, want hundreds alone", results[0], err)
				}
				_ = s.Close(t.Context())
				s = New(Options{Addresses: []string{proxy.Addr()}, Timeout: 100 * time.Millisecond})
			}
			_ = s.Close(t.Context())
		})
	}
}

// FuzzReadOwn holds what is read of the field to be what the script would have written.
func FuzzReadOwn(f *testing.F) {
	f.Add("\nwabc 5 tokens+per+day\nwabd 0 %25")
	f.Add("\n\n  x")
	f.Fuzz(func(t *testing.T, text string) {
		own, again := readOwn(text), ""
		for rule, limit := range own {
			again += fmt.Sprintf("\n%s %d %s", ruleField(rule), limit, url.QueryEscape(rule))
		}
		if got := readOwn(again); !maps.Equal(got, own) {
			t.Errorf("%q is %v, and written again %v", text, own, got)
		}
	})
}
