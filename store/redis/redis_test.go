//go:build unix

package redis

import (
	"context"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

func TestMain(m *testing.M) {
	goredis.SetLogger(&logging.VoidLogger{})
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	_, o := single(t)
	storetest.Run(t, func(t *testing.T, now func() time.Time) store.Counters {
		o := o
		o.Now = now
		return open(t, o)
	})
}

func TestConformanceInTime(t *testing.T) {
	server, o := single(t)
	client := server.Client()
	storetest.RunClock(t, func(t *testing.T, now func() time.Time) store.Counters {
		o := o
		o.Now = sharedClock(t, client, now)
		o.script = stepped
		o.grid = func(int64) int64 { return 1 }
		o.Now() // the server is to have a clock before it is asked
		return &steppedBack{Store: open(t, o)}
	})
}

// steppedBack sends what is settled while the clock stands before where it has been.
// By the time it would be sent otherwise, the clock may stand after that again, and
// how long ago something was used says no more in which window.
type steppedBack struct {
	*Store
	latest time.Time
}

func (s *steppedBack) Reserve(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	if now := s.now(); now.After(s.latest) {
		s.latest = now
	}
	return s.Store.Reserve(ctx, r, results)
}

func (s *steppedBack) Settle(t *store.Ticket, actual []int64) {
	s.Store.Settle(t, actual)
	if s.now().Before(s.latest) {
		_ = s.drain(context.Background()) // ends when the test does
	}
}

func TestConformanceInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	storetest.Run(t, func(t *testing.T, now func() time.Time) store.Counters {
		return open(t, Options{Addresses: cluster.Addrs(), Cluster: true, Now: now})
	})
}
