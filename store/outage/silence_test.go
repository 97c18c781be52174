package outage

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/redis"
)

// before returns counters before the Redis at an address.
func before(t *testing.T, addr string, o Options) *Counters {
	t.Helper()
	o.Timeout = 250 * time.Millisecond
	o.OnError = func(err error) { t.Error(err) }
	c := New(func(identity string) Remote {
		return redis.New(redis.Options{Addresses: []string{addr}, Identity: identity, Timeout: o.Timeout})
	}, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return c
}

// The calls of one consumer alone find out that Redis hangs, though each of them stands
// behind what those before it may have taken.
func TestCallsOfOneConsumerOpenTheCircuit(t *testing.T) {
	for _, tt := range []struct {
		name string
		dir  bool
		Policy
		limit int64
	}{
		{"counted here", false, Local, 1 << 60},
		{"counted here and kept", true, Local, 1 << 60},
		{"admitted whatever the limit", false, Allow, 2},
		{"admitted whatever the limit and kept", true, Allow, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t)
			o := Options{Policy: tt.Policy}
			if tt.dir {
				o.Dir = t.TempDir()
			}
			c := before(t, server.Addr(), o)
			goOn := sync.OnceFunc(server.Continue)
			defer goOn()
			const calls = 20
			for i := range calls {
				if i == 1 {
					wait(t, "it to be settled", func() bool { return c.Pending() == 0 })
					server.Stop()
				}
				k, _, err := reserve(c, false, hold(day, tt.limit, 1))
				if err != nil || k == nil {
					t.Fatalf("call %d: got %v, %v, want a ticket", i, k, err)
				}
				c.Settle(k, []int64{1})
				if i == defaultFailures && !c.Away() {
					t.Errorf("the circuit is closed after %d calls", i)
				}
			}
			goOn()
			wait(t, "all to be handed over", func() bool { return !c.Away() && c.Pending() == 0 })
			if n := used(t, c, day); n != calls {
				t.Errorf("%d charged, want %d", n, calls)
			}
		})
	}
}

// A consumer of whom something is to be given back, which Redis does not take, is set apart
// as any that it does not serve.
func TestConsumerOfWhomNothingIsGivenBackIsSetApart(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server, 1)
	c := before(t, proxy.Addr(), Options{})
	calls := int64(0)
	call := func() {
		if err := callOf(t, c, odd, 1); err != nil {
			t.Fatal(err)
		}
		calls++
	}
	call()
	wait(t, "it to be settled", func() bool { return c.Pending() == 0 })
	proxy.Set(redistest.Faults{Replies: 1, Hang: true})
	call() // it may have been admitted, and is counted here
	ctx, key := t.Context(), "{odd}apps"
	if err := server.Client().Rename(ctx, key, "aside").Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().Set(ctx, key, "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Set(redistest.Faults{})
	wait(t, "it to be set apart", func() bool {
		call()
		return !c.Away() && c.apart.waits(odd)
	})
	if err := callOf(t, c, entity, 1); err != nil {
		t.Fatal(err)
	}
	if c.Away() {
		t.Error("its trouble is taken for an outage")
	}
	if err := server.Client().Rename(ctx, "aside", key).Err(); err != nil {
		t.Fatal(err)
	}
	wait(t, "all to be handed over", func() bool { return c.Pending() == 0 })
	var results [1]store.Result
	if err := c.Read(ctx, odd, []*store.Rule{day}, results[:]); err != nil || results[0].Used != calls || results[0].Held != 0 {
		t.Errorf("%d charged, want %d, %d held, %v", results[0].Used, calls, results[0].Held, err)
	}
}
