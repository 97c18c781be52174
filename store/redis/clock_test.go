//go:build unix

package redis

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// The server's clock decides. A gateway whose own is put forward or back must not
// write a window that is not the server's.
func TestClocksOfGatewaysMoveNoWindow(t *testing.T) {
	server, o := single(t)
	c := server.Client()
	at := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	if err := c.RPush(t.Context(), clockKey, strconv.FormatInt(at.Unix(), 10), "0").Err(); err != nil {
		t.Fatal(err)
	}
	var ahead atomic.Int64
	o.Now = func() time.Time { return at.Add(time.Duration(ahead.Load())) }
	o.script = stepped
	s := open(t, o)
	e := store.Entity{Instance: "tokens", Consumer: "app"}
	rule := &store.Rule{ID: "minute", Window: must(store.Calendar("minute", time.UTC))}
	used := int64(0)
	check := func(what string, got store.Result, err error) {
		t.Helper()
		if err != nil || got.Used != used || !got.WindowStart.Equal(at.Truncate(time.Minute)) {
			t.Errorf("%s, %s ahead: used %d of %d, the window starts at %s, %v", what, time.Duration(ahead.Load()), got.Used, used, got.WindowStart, err)
		}
	}
	var got [1]store.Result
	for i, step := range []time.Duration{0, 6 * time.Hour, 0, -6 * time.Hour, 24 * time.Hour, -24 * time.Hour, 0} {
		move := func(by time.Duration) { ahead.Store(int64(step + by)) }
		move(0)
		r := store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: rule, Limit: 100, Need: 1, Charge: 1}}}
		k, err := s.Reserve(t.Context(), &r, got[:])
		if used++; k == nil {
			t.Fatalf("refused: %+v, %v", got[0], err)
		}
		check("reserve", got[0], err)
		move(time.Hour)
		err = s.Read(t.Context(), e, []*store.Rule{rule}, got[:])
		check("read", got[0], err)
		b := store.Batch{Entity: e, Origin: "0123456789abcdef", Seq: int64(i) + 1, Lines: []store.Amount{{Rule: rule, Amount: 1}}}
		move(3 * time.Hour)
		b.At = o.Now()
		err = s.Charge(t.Context(), []store.Batch{b})[0]
		used++
		if err == nil {
			err = s.Read(t.Context(), e, []*store.Rule{rule}, got[:])
		}
		check("charge", got[0], err)
		move(4 * time.Hour)
		s.Settle(k, []int64{5})
		used += 4
		if err = s.drain(t.Context()); err == nil {
			err = s.Read(t.Context(), e, []*store.Rule{rule}, got[:])
		}
		check("settle", got[0], err)
	}
}
