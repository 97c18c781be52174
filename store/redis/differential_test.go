//go:build unix

package redis

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// twins are a store in the process and one in Redis, whose clocks go together.
type twins struct {
	at            time.Time
	memory, redis store.Counters
	entity        store.Entity
	rules         []*store.Rule
	tickets       [][2]*store.Ticket
	amounts       *rapid.Generator[int64]
}

// The scripts must decide as the store in the process does, to the unit, and with
// the largest amounts.
func TestDecidesAsTheStoreInTheProcess(t *testing.T) {
	server, o := single(t)
	tw := &twins{at: time.Date(2026, 5, 6, 7, 8, 9, 123e6, time.UTC)}
	now := func() time.Time { return tw.at }
	tw.memory = memory.New(memory.Options{MaxEntities: math.MaxInt, Now: now})
	o.Now = sharedClock(t, server.Client(), now)
	o.Now()
	o.script = stepped
	o.grid = func(int64) int64 { return 1 }
	tw.redis = open(t, o)
	rapid.Check(t, func(t *rapid.T) {
		tw.begin(t)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": tw.reserve,
			"settle":  tw.settle,
			"renew":   tw.renew,
			"adjust":  tw.adjust,
			"step": func(t *rapid.T) {
				tw.at = tw.at.Add(time.Duration(rapid.Int64Range(1, 12_000).Draw(t, "step")) * time.Millisecond)
			},
			"": tw.read,
		})
	})
}

func (tw *twins) begin(t *rapid.T) {
	most := rapid.SampledFrom([]int64{5, 1000, 1_000_000_000_000, 3_000_000_000_000_000, 1_000_000_000_000_000_000}).Draw(t, "most")
	tw.amounts = rapid.OneOf(rapid.Int64Range(0, most), rapid.Int64Range(max(0, most-3), most))
	tw.entity = store.Entity{Instance: "twins", Consumer: fmt.Sprint("app-", rand.Uint64())}
	tw.tickets = nil
	length := func() time.Duration {
		return time.Duration(rapid.Int64Range(1000, 20_000).Draw(t, "length")) * time.Millisecond
	}
	tw.rules = []*store.Rule{
		{ID: "fixed", Window: must(store.Fixed(length()))},
		{ID: "rolling", Window: must(store.Rolling(length()))},
		{ID: "long", Window: must(store.Rolling(3660 * 24 * time.Hour))},
		{ID: "bucket", Window: must(store.Bucket(length())), Refill: rapid.Int64Range(0, most).Draw(t, "refill")},
		{ID: "slow", Window: must(store.Bucket(3660 * 24 * time.Hour)), Refill: 1 + rapid.Int64Range(0, most).Draw(t, "refill")},
		{ID: "minute", Window: must(store.Calendar("minute", time.UTC))},
		{ID: "none", Window: store.None()},
	}
}

func (tw *twins) rule(t *rapid.T) *store.Rule { return rapid.SampledFrom(tw.rules).Draw(t, "rule") }

// big is any amount, and at times the largest.
func (tw *twins) big(t *rapid.T, what string) int64 {
	if rapid.IntRange(0, 9).Draw(t, what) == 0 {
		return math.MaxInt64 - rapid.Int64Range(0, 2).Draw(t, what)
	}
	return tw.amounts.Draw(t, what)
}

func (tw *twins) reserve(t *rapid.T) {
	rules := rapid.Permutation(tw.rules).Draw(t, "rules")
	r := store.Reservation{Entity: tw.entity, Known: true}
	r.Lease = time.Duration(rapid.Int64Range(1, 40_000).Draw(t, "lease")) * time.Millisecond
	for _, rule := range rules[:rapid.IntRange(1, len(rules)).Draw(t, "takes")] {
		take := store.Take{
			Rule: rule, Limit: tw.big(t, "limit"), Need: tw.big(t, "need"),
			// Less, since sums of holds past an int64 are not given back alike.
			Hold:       tw.amounts.Draw(t, "hold") / 100,
			IgnoreHeld: rapid.Bool().Draw(t, "ignore held"),
			Shadow:     rapid.IntRange(0, 2).Draw(t, "shadow") == 0,
		}
		if rapid.Bool().Draw(t, "charges") {
			take.Charge = tw.amounts.Draw(t, "charge")
		}
		if rapid.IntRange(0, 3).Draw(t, "up to") == 0 {
			take.HoldMost = tw.amounts.Draw(t, "most") / 50
		}
		r.Takes = append(r.Takes, take)
	}
	var k [2]*store.Ticket
	var results [2][]store.Result
	for i, s := range []store.Counters{tw.memory, tw.redis} {
		results[i] = make([]store.Result, len(r.Takes))
		var err error
		if k[i], err = s.Reserve(context.Background(), &r, results[i]); err != nil {
			t.Fatalf("reserving: %v", err)
		}
	}
	if (k[0] == nil) != (k[1] == nil) {
		t.Fatalf("admitted %t in the process, %t in Redis; takes %+v, results\n%+v\n%+v", k[0] != nil, k[1] != nil, r.Takes, results[0], results[1])
	}
	compare(t, r.Takes, results)
	if k[0] == nil {
		return
	}
	for i := range k[0].Lines {
		if k[0].Lines[i] != k[1].Lines[i] {
			t.Fatalf("line %+v in the process, %+v in Redis", k[0].Lines[i], k[1].Lines[i])
		}
	}
	if k[0].Deadline != k[1].Deadline {
		t.Fatalf("deadline %d in the process, %d in Redis", k[0].Deadline, k[1].Deadline)
	}
	tw.tickets = append(tw.tickets, k)
}

func compare(t *rapid.T, takes []store.Take, results [2][]store.Result) {
	for i := range results[0] {
		if results[0][i] != results[1][i] {
			t.Fatalf("%s: take %+v:\n%+v in the process,\n%+v in Redis", takes[i].Rule.ID, takes[i], results[0][i], results[1][i])
		}
	}
}

func (tw *twins) ticket(t *rapid.T) [2]*store.Ticket {
	if len(tw.tickets) == 0 {
		t.Skip("no tickets")
	}
	return rapid.SampledFrom(tw.tickets).Draw(t, "ticket")
}

func (tw *twins) settle(t *rapid.T) {
	k := tw.ticket(t)
	actual := make([]int64, len(k[0].Lines))
	for i := range actual {
		actual[i] = tw.big(t, "actual")
	}
	tw.memory.Settle(k[0], actual)
	tw.redis.Settle(k[1], actual)
}

func (tw *twins) renew(t *rapid.T) {
	k := tw.ticket(t)
	lease := time.Duration(rapid.Int64Range(1, 40_000).Draw(t, "lease")) * time.Millisecond
	for i, s := range []store.Counters{tw.memory, tw.redis} {
		if err := s.Renew(context.Background(), k[i:i+1], lease); err != nil {
			t.Fatalf("renewing: %v", err)
		}
	}
}

func (tw *twins) adjust(t *rapid.T) {
	rule, n := tw.rule(t), tw.big(t, "amount")
	if rapid.Bool().Draw(t, "grant") {
		n = -n
	}
	for _, s := range []store.Counters{tw.memory, tw.redis} {
		if err := s.Adjust(context.Background(), tw.entity, store.Amount{Rule: rule, Amount: n}); err != nil {
			t.Fatalf("adjusting: %v", err)
		}
	}
}

// read compares all counters, after what is pending has been sent in one way or the
// other.
func (tw *twins) read(t *rapid.T) {
	if err := tw.redis.(*Store).drain(context.Background()); err != nil {
		t.Fatalf("settling: %v", err)
	}
	var results [2][]store.Result
	takes := make([]store.Take, len(tw.rules))
	for i, s := range []store.Counters{tw.memory, tw.redis} {
		results[i] = make([]store.Result, len(tw.rules))
		if err := s.Read(context.Background(), tw.entity, tw.rules, results[i]); err != nil {
			t.Fatalf("reading: %v", err)
		}
	}
	for i, r := range tw.rules {
		takes[i].Rule = r
	}
	compare(t, takes, results)
}
