//go:build unix

package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// clockKey is where scripts read the time in tests that step it.
const clockKey = "clock"

// stepped replaces the server's clock in a script by the key.
func stepped(source string) string {
	source = strings.ReplaceAll(source, "redis.call('TIME')", "redis.call('LRANGE', 'clock', 0, 1)")
	return strings.ReplaceAll(source, "call('TIME')", "call('LRANGE', 'clock', 0, 1)")
}

// sharedClock puts a clock into the server whenever this process reads it, so that
// the two go together.
func sharedClock(t *testing.T, c *goredis.Client, now func() time.Time) func() time.Time {
	var mu sync.Mutex
	var last time.Time
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at := now()
		if at.Equal(last) {
			return at
		}
		micros := at.UnixMicro()
		pipe := c.TxPipeline()
		pipe.Del(context.Background(), clockKey)
		pipe.RPush(context.Background(), clockKey, strconv.FormatInt(micros/1e6, 10), strconv.FormatInt(micros%1e6, 10))
		if _, err := pipe.Exec(context.Background()); err != nil {
			t.Errorf("setting the clock: %v", err)
		}
		last = at
		return at
	}
}

// open returns a store that is closed when the test ends.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second // the machine may be busy
	}
	s := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return s
}

// served has a server that answers do something. A store with a short timeout may be late
// for it on a busy machine, and asks again.
func served(t testing.TB, do func() error) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func single(t testing.TB) (*redistest.Server, Options) {
	server := redistest.Start(t)
	return server, Options{Addresses: []string{server.Addr()}}
}
