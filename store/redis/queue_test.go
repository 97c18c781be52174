package redis

import (
	"fmt"
	"testing"
	"time"

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
