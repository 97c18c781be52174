package outage

import (
	"errors"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestLocalCountsCallsOfTheRemoteThatEnd(t *testing.T) {
	now, _ := midday()
	c, f := setup(t, newServer(now), Options{Now: now})
	ends := admit(t, c, hold(day, 100, 60))
	stays := admit(t, c, hold(day, 100, 10))
	cut(t, c, f)
	if k, _, _ := reserve(c, false, hold(day, 100, 31)); k != nil {
		t.Error("what calls hold at the remote was free")
	}
	c.Settle(ends, []int64{20})
	k, results, err := reserve(c, false, hold(day, 100, 70))
	if k == nil || err != nil {
		t.Fatalf("what a call gave back is not free: %+v, %v", results, err)
	}
	c.Settle(k, []int64{70})
	c.Settle(stays, []int64{10})
	heal(t, c, f)
	if n := used(t, f.server, day); n != 100 {
		t.Errorf("%d charged in the end, want 100", n)
	}
}

func TestConcurrentCallsOfTheRemoteCount(t *testing.T) {
	now, _ := midday()
	c, f := setup(t, newServer(now), Options{Now: now})
	first := admit(t, c, hold(flight, 2, 1))
	cut(t, c, f)
	second := admit(t, c, hold(flight, 2, 1))
	if k, results, err := reserve(c, false, hold(flight, 2, 1)); k != nil || err != nil || results[0].Held != 2 {
		t.Fatalf("a third call: %v, %v, %+v", k, err, results)
	}
	c.Settle(first, nil)
	third := admit(t, c, hold(flight, 2, 1))
	c.Settle(second, nil)
	c.Settle(third, nil)
	heal(t, c, f)
}

// What calls of other replicas hold counts for as long as it would at the remote; what
// this one's calls hold counts until they end.
func TestHoldsOfOthersLapseHere(t *testing.T) {
	now, step := midday()
	week := &store.Rule{ID: "tokens per week", Window: must(store.Calendar("week", nil))}
	for _, rule := range []*store.Rule{flight, week} {
		t.Run(rule.ID, func(t *testing.T) {
			s := newServer(now)
			c, f := setup(t, s, Options{Now: now})
			for range 3 { // another replica's
				admit(t, s, hold(rule, 5, 1))
			}
			own := admit(t, c, hold(rule, 5, 1))
			cut(t, c, f)
			admitted := func() (n int) {
				var open []*store.Ticket
				for range 10 {
					k, _, err := reserve(c, false, hold(rule, 5, 1))
					if err != nil {
						t.Fatal(err)
					}
					if k != nil {
						open = append(open, k)
					}
				}
				for _, k := range open {
					c.Settle(k, nil)
				}
				return len(open)
			}
			if n := admitted(); n != 1 {
				t.Errorf("%d admitted beside four calls, want 1", n)
			}
			step(76 * time.Minute) // a lease is an hour
			if n := admitted(); n != 4 {
				t.Errorf("%d admitted after those of others lapsed, want 4", n)
			}
			c.Settle(own, nil)
			if n := admitted(); n != 5 {
				t.Errorf("%d admitted after its own ended, want 5", n)
			}
		})
	}
}

func TestStrictNeedsToKnowWhatWasUsed(t *testing.T) {
	now, step := midday()
	c, f := setup(t, newServer(now), Options{Replicas: 2, Now: now})
	c.Start()
	cut(t, c, f)
	if _, _, err := reserve(c, true, take(minute, 10, 1)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v for a consumer that was never seen", err)
	}
	step(time.Minute)
	if k, _, err := reserve(c, true, take(minute, 10, 1)); k == nil || err != nil {
		t.Errorf("got %v, %v in a window that began in the outage", k, err)
	}
}

func TestBucketsRefillAtAllReplicasTogether(t *testing.T) {
	now, step := midday()
	rule := &store.Rule{ID: "bucket", Window: must(store.Bucket(time.Minute)), Refill: 60}
	c, f := setup(t, newServer(now), Options{Replicas: 4, Now: now})
	c.Start()
	cut(t, c, f)
	all := func() (n int) {
		for {
			k, _, err := reserve(c, false, take(rule, 40, 1))
			if err != nil {
				t.Fatal(err)
			}
			if k == nil {
				return n
			}
			c.Settle(k, []int64{1})
			n++
		}
	}
	if n := all(); n != 10 {
		t.Errorf("a part of a full bucket is %d, want 10", n)
	}
	step(20 * time.Second)
	if n := all(); n != 5 {
		t.Errorf("a part of what came back is %d, want 5", n)
	}
}
