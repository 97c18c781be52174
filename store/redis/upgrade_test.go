package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// oddRecord is of a batch with one call that was given up, as a version writes it that has
// odd numbers for batches, too.
const oddRecord = `{"i":"crash","c":"app","r":%d,"n":%d,"q":[{"l":60000000000,"t":[` +
	`{"r":{"i":"tokens","k":"f","l":315360000000},"c":30,"h":50},` +
	`{"r":{"i":"requests","k":"r","l":315360000000},"c":1}]}]}`

// What a call took is given back where the version that left its record had odd numbers,
// which this one has for what is given back.
func TestRecordsOfAVersionWithOddNumbers(t *testing.T) {
	for _, tt := range []struct {
		name             string
		applied, passed  bool
		tokens, requests int64
		told             int32
	}{
		{name: "applied", applied: true},
		{name: "not applied"},
		{name: "passed by another", applied: true, passed: true, tokens: 130, requests: 1, told: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, o := single(t)
			first := New(o)
			e := store.Entity{Instance: "crash", Consumer: "app"}
			if err := first.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			replica := first.replicas.current.Load()
			number := replica.next() | 1
			if tt.applied {
				sendOdd(t, first, e, number)
			}
			if tt.passed {
				if err := first.Adjust(t.Context(), e, store.Amount{Rule: tokens, Amount: 100}); err != nil {
					t.Fatal(err)
				}
			}
			kill(first)

			var told atomic.Int32
			o.OnError = func(error) { told.Add(1) }
			second := open(t, o)
			if err := second.Restore([][]byte{fmt.Appendf(nil, oddRecord, replica.number, number)}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := second.drain(ctx); err != nil {
				t.Fatal(err)
			}
			var got [2]store.Result
			if err := second.Read(ctx, e, []*store.Rule{tokens, requests}, got[:]); err != nil {
				t.Fatal(err)
			}
			if got[0].Used != tt.tokens || got[1].Used != tt.requests || !tt.passed && got[0].Held != 0 {
				t.Errorf("%d tokens and %d requests charged, %d held, want %d and %d", got[0].Used, got[1].Used, got[0].Held, tt.tokens, tt.requests)
			}
			if told.Load() != tt.told {
				t.Errorf("told of %d errors, want %d", told.Load(), tt.told)
			}
		})
	}
}

// sendOdd has the server apply the batch of oddRecord.
func sendOdd(t *testing.T, s *Store, e store.Entity, number int64) {
	t.Helper()
	sh := s.shard(e)
	sh.mu.Lock()
	q := s.queue(sh, e)
	b := &batch{replica: s.replicas.current.Load().number, number: number, calls: []*call{{lease: time.Minute, takes: []store.Take{
		{Rule: tokens, Limit: 1 << 50, Need: 1, Charge: 30, Hold: 50},
		{Rule: requests, Limit: 1 << 50, Need: 1, Charge: 1},
	}}}}
	s.encode(q, b)
	q.idle()
	sh.mu.Unlock()
	if _, err := s.apply.run(t.Context(), s.client, s.key(e), b.args...); err != nil {
		t.Fatal(err)
	}
}

// What is given back is known by its record, and not by its number.
func TestRecordsOfWhatIsGivenBack(t *testing.T) {
	for _, undo := range []bool{false, true} {
		s := unreachable(t)
		mark := ""
		if undo {
			mark = `"z":true,`
		}
		record := fmt.Sprintf(`{"i":"crash","c":"app","r":0,"n":7,%s"o":[{"a":1,"l":[{"r":{"i":"tokens","k":"f","l":60000},"u":5}]}]}`, mark)
		if err := s.Restore([][]byte{[]byte(record)}); err != nil {
			t.Fatal(err)
		}
		again := s.Export()
		if len(again) != 1 || string(again[0]) != record {
			t.Errorf("exported as %s, want %s", again, record)
		}
	}
}
