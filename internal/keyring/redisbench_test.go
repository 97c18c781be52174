//go:build unix

package keyring

import (
	"context"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store/redis"
)

func BenchmarkLoadRedis(b *testing.B) {
	server := redistest.Start(b)
	s := redis.New(redis.Options{Addresses: []string{server.Addr()}})
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	fill(b, s.Keys())
	benchmarkLoad(b, s.Keys())
}
