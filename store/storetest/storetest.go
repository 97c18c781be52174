// Package storetest is the conformance suite of store.Counters. It holds a store
// to every sentence of the interface's comments, by example and by random traces
// that are compared with a simple model.
package storetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Open returns the store to test. It may be one that was opened before, and may
// hold other counters: the suite makes up its own instances. A store that cannot
// use the clock it is given must not be run by RunClock.
type Open = func(t *testing.T, now func() time.Time) store.Counters

// Run tests all that does not depend on time going by. The store may use any
// clock that tells the real time to the day.
func Run(t *testing.T, open Open) {
	run(t, open, time.Now(), []test{
		{"admits by the equation", testAdmission},
		{"takes all or nothing", testAllOrNothing},
		{"refusals leave no trace", testRefusals},
		{"gives what is free of a range", testHoldMost},
		{"shadow takes report and take", testShadow},
		{"results and lines correspond to takes", testCorrespondence},
		{"settling releases and charges", testSettle},
		{"charges at admission are settled by difference", testCharged},
		{"settling twice is settling once", testSettleTwice},
		{"counts calls in flight", testInFlight},
		{"strict limits hold under contention", testContention},
		{"requests are counted exactly under contention", testRequestContention},
		{"adjusts and grants", testAdjust},
		{"adjusts several counters at once", testAdjustSeveral},
		{"clears counters", testClear},
		{"goes by limits of a consumer's own", testOverride},
		{"goes by those of some of the rules", testOverrideOfSome},
		{"limits of a consumer's own may be any", testOverrideAmounts},
		{"reads limits of a consumer's own", testOverrideIsRead},
		{"lists limits of a consumer's own", testOverridesAreListed},
		{"edits by hand lose no charge", testEditsUnderLoad},
		{"reads without taking", testRead},
		{"lists consumers in pages", testEntities},
		{"lists consumers whatever their bytes", testOddEntities},
		{"entities never touch each other", testIsolation},
		{"rules are known by their id", testRuleIDs},
		{"adds up amounts near 10^18", testLargeAmounts},
		{"renews what is not settled", testRenewIgnoresSettled},
		{"settles what is being renewed", testSettleWhileRenewed},
		{"agrees with the model", func(f *fixture) { testTrace(f, false) }},
	})
}

// RunClock tests all that depends on time going by. The store must use the clock
// it is given, which stands still between steps and also steps back.
func RunClock(t *testing.T, open Open) {
	run(t, open, instant("2026-05-06T07:08:09.123Z"), []test{
		{"fixed windows start again", testFixedWindows},
		{"steady traffic does not extend a window", testSteadyTraffic},
		{"calendar windows start again", testCalendarWindows},
		{"holds count across an edge", testHoldAcrossEdge},
		{"settling across an edge loses nothing", testSettleAcrossEdge},
		{"charges are given back while they count", testGiveBackWindow},
		{"holds lapse at their deadline", testLapse},
		{"lapsed calls are charged", testLapsedSettle},
		{"renewals keep holds", testRenew},
		{"lapsed holds count again once renewed", testRenewLapsed},
		{"a clock that steps back moves no window back", testStepBack},
		{"rolling windows slide", testRolling},
		{"limits of a consumer's own outlast its counters", testOverrideOutlastsCounters},
		{"buckets refill", testBucket},
		{"buckets bear debt and lose grants", testBucketDebt},
		{"retry after is when there is room", testRetryAfter},
		{"a need above the limit waits for the reset", testNeverFits},
		{"agrees with the model", func(f *fixture) { testTrace(f, true) }},
	})
}

type test struct {
	name string
	run  func(f *fixture)
}

func run(t *testing.T, open Open, now time.Time, tests []test) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &clock{at: now}
			tt.run(&fixture{T: t, clock: c, store: open(t, c.now), instance: unique("instance")})
		})
	}
}

// unique returns a name that no other test has used, in any run.
func unique(what string) string { return fmt.Sprintf("%s-%016x", what, rand.Uint64()) }

// clock stands still until it is told to step.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (c *clock) set(at time.Time) { c.step(at.Sub(c.now())) }

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// fixture is a store under test and an instance of its own there.
type fixture struct {
	*testing.T
	clock    *clock
	store    store.Counters
	instance string
}

// lease is longer than any test takes.
const lease = time.Hour

// consumer returns the entity of a consumer in the fixture's instance.
func (f *fixture) consumer(name string) store.Entity {
	return store.Entity{Instance: f.instance, Consumer: name}
}

// reserve fails the test on an error, and where a ticket and a refusal coincide.
func reserve(t tester, s store.Counters, r store.Reservation) (*store.Ticket, []store.Result) {
	t.Helper()
	// What a store is asked and answers with is the caller's again when Reserve returns, so
	// that other calls may have it then. There is room for every other ticket.
	takes, filled := slices.Clone(r.Takes), make([]store.Result, len(r.Takes))
	asked := r
	asked.Takes = takes
	if len(takes)%2 == 1 {
		asked.Room = &store.Ticket{Lines: make([]store.Line, 0, len(takes))}
	}
	k, err := s.Reserve(context.Background(), &asked, filled)
	if err != nil {
		t.Fatalf("reserving: %v", err)
	}
	results := slices.Clone(filled)
	clear(takes)
	clear(filled)
	asked = store.Reservation{}
	refused := false
	for i := range results {
		refused = refused || results[i].Exceeded && !r.Takes[i].Shadow
		if (results[i].RetryAfter > 0) != results[i].Exceeded {
			t.Errorf("take %d: exceeded is %t, retry after %s", i, results[i].Exceeded, results[i].RetryAfter)
		}
	}
	if refused != (k == nil) {
		t.Fatalf("got ticket %v with results %+v", k, results)
	}
	return k, results
}

func (f *fixture) reserve(e store.Entity, takes ...store.Take) (*store.Ticket, []store.Result) {
	f.Helper()
	return reserve(f, f.store, store.Reservation{Entity: e, Takes: takes, Lease: lease})
}

// admit fails the test if the call is refused.
func (f *fixture) admit(e store.Entity, takes ...store.Take) (*store.Ticket, []store.Result) {
	f.Helper()
	k, results := f.reserve(e, takes...)
	if k == nil {
		f.Fatalf("refused: %+v", results)
	}
	return k, results
}

// refuse fails the test if the call is admitted.
func (f *fixture) refuse(e store.Entity, takes ...store.Take) []store.Result {
	f.Helper()
	k, results := f.reserve(e, takes...)
	if k != nil {
		f.Fatalf("admitted: %+v", results)
	}
	return results
}

// look returns the counters as a following call finds them. It asks for more than
// there can be, so that it is refused and leaves them as they were. Read would
// not do, as it need not see what was settled only just.
func look(t tester, s store.Counters, e store.Entity, rules ...*store.Rule) []store.Result {
	t.Helper()
	takes := make([]store.Take, len(rules))
	for i, r := range rules {
		takes[i] = store.Take{Rule: r, Limit: 0, Need: math.MaxInt64 / 4}
	}
	k, results := reserve(t, s, store.Reservation{Entity: e, Takes: takes, Lease: lease})
	if k != nil {
		t.Fatalf("admitted %d beyond a limit of 0: %+v", int64(math.MaxInt64/4), results)
	}
	return results
}

// expect fails the test unless so much is used and held.
func (f *fixture) expect(e store.Entity, r *store.Rule, used, held int64) {
	f.Helper()
	got := look(f, f.store, e, r)[0]
	if got.Used != used || got.Held != held {
		f.Errorf("%s: used %d, held %d, want %d and %d", r.ID, got.Used, got.Held, used, held)
	}
}

func (f *fixture) adjust(e store.Entity, r *store.Rule, amount int64) {
	f.Helper()
	if err := f.store.Adjust(context.Background(), e, store.Amount{Rule: r, Amount: amount}); err != nil {
		f.Fatalf("adjusting: %v", err)
	}
}

func (f *fixture) renew(lease time.Duration, tickets ...*store.Ticket) {
	f.Helper()
	if err := f.store.Renew(context.Background(), tickets, lease); err != nil {
		f.Fatalf("renewing: %v", err)
	}
}

// Windows that do not end, nor decay to be seen, while a test runs.
const decade = 3650 * 24 * time.Hour

func (f *fixture) fixed(id string, d time.Duration) *store.Rule {
	return &store.Rule{ID: id, Window: must(store.Fixed(d))}
}

func (f *fixture) rolling(id string, d time.Duration) *store.Rule {
	return &store.Rule{ID: id, Window: must(store.Rolling(d))}
}

func (f *fixture) bucket(id string, d time.Duration, refill int64) *store.Rule {
	return &store.Rule{ID: id, Window: must(store.Bucket(d)), Refill: refill}
}

func (f *fixture) none(id string) *store.Rule {
	return &store.Rule{ID: id, Window: store.None()}
}

func must(w *store.Window, err error) *store.Window {
	if err != nil {
		panic(err)
	}
	return w
}

// charge is a take that uses an amount up at once.
func charge(r *store.Rule, limit, amount int64) store.Take {
	return store.Take{Rule: r, Limit: limit, Need: amount, Charge: amount}
}

// hold is a take that keeps an amount free.
func hold(r *store.Rule, limit, amount int64) store.Take {
	return store.Take{Rule: r, Limit: limit, Need: amount, Hold: amount}
}
