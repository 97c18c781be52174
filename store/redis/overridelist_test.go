//go:build unix

package redis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// trips counts how often a client waits for the server.
type trips struct{ n atomic.Int64 }

func (c *trips) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmds)
	}
}

func TestLimitsOfManyAreReadTogether(t *testing.T) {
	_, o := single(t)
	cluster := redistest.StartCluster(t)
	for name, o := range map[string]Options{"single": o, "cluster": {Addresses: cluster.Addrs(), Cluster: true}} {
		t.Run(name, func(t *testing.T) {
			s := open(t, o)
			var entities []store.Entity
			for i := range 2*readMost + 1 {
				e := store.Entity{Instance: "many", Consumer: fmt.Sprint("app ", i)}
				entities = append(entities, e)
				if i%3 > 0 { // others have none
					own(t, s, e, tokens, int64(i))
				}
			}
			var count trips
			if c, ok := s.client.(*goredis.Client); ok {
				c.AddHook(&count)
			}
			all, err := store.OverridesOfAll(t.Context(), s, entities)
			if err != nil || len(all) != len(entities) {
				t.Fatalf("%d entities, %v", len(all), err)
			}
			if n := count.n.Load(); n > 3 {
				t.Errorf("%d round trips", n)
			}
			for i, got := range all {
				want := map[string]int64{tokens.ID: int64(i)}
				if i%3 == 0 {
					want = nil
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s has %v, want %v", entities[i].Consumer, got, want)
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.OverridesOfAll(ended, entities); err == nil {
				t.Error("it goes on for nobody")
			}
		})
	}
}
