//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// briefly is how long a client waits that is to see that no answer comes. What it
// sends has long reached the server by then.
const briefly = time.Second

// through returns a client that goes through the proxy, once for each command. It
// waits for as long as its context.
func through(t *testing.T, p *Proxy) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: patience, DialTimeout: patience, ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func incr(t *testing.T, c *redis.Client) (int64, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), briefly)
	defer cancel()
	return c.Incr(ctx, "n").Result()
}

func TestProxyLosesRequestsAndReplies(t *testing.T) {
	for _, tt := range []struct {
		name     string
		faults   Faults
		executed int64 // of one request that the client sees fail
	}{
		{"requests", Faults{Requests: 1}, 0},
		{"requests, hanging", Faults{Requests: 1, Hang: true}, 0},
		{"replies", Faults{Replies: 1}, 1},
		{"replies, hanging", Faults{Replies: 1, Hang: true}, 1},
		{"connections", Faults{Refuse: true}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Start(t)
			p := NewProxy(t, s, 1)
			p.Set(tt.faults)
			c := through(t, p)
			if n, err := incr(t, c); err == nil {
				t.Errorf("got %d, want an error", n)
			}
			p.Set(Faults{})
			if n, err := c.Incr(t.Context(), "n").Result(); err != nil || n != tt.executed+1 {
				t.Errorf("got %d, %v, want %d", n, err, tt.executed+1)
			}
		})
	}
}

func TestProxyLosesAShareBySeed(t *testing.T) {
	s := Start(t)
	run := func(seed uint64) string {
		p := NewProxy(t, s, seed)
		p.Set(Faults{Requests: 0.3, Replies: 0.3})
		c := through(t, p)
		var b strings.Builder
		for range 50 {
			if c.Ping(t.Context()).Err() == nil {
				b.WriteByte('.')
			} else {
				b.WriteByte('x')
			}
		}
		return b.String()
	}
	first := run(1)
	if again := run(1); again != first {
		t.Errorf("one seed lost %s and %s", first, again)
	}
	if n := strings.Count(first, "x"); n < 15 || n > 45 {
		t.Errorf("lost %d of 50, want some 30", n)
	}
}

func TestPartitionKeepsWhatWasSent(t *testing.T) {
	s := Start(t)
	p := NewProxy(t, s, 1)
	c := through(t, p)
	set(t, c, "key")
	p.Set(Faults{Partition: true})
	if _, err := incr(t, c); err == nil {
		t.Error("a reply came through a partition")
	}
	p.Set(Faults{})
	direct := s.Client()
	for deadline := time.Now().Add(patience); direct.Get(t.Context(), "n").Val() != "1"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request was lost")
		}
	}
}

func TestCutConnectionsAreMadeAgain(t *testing.T) {
	p := NewProxy(t, Start(t), 1)
	c := through(t, p)
	set(t, c, "key")
	p.Cut()
	_ = c.Ping(t.Context()) // this one may find the connection closed
	set(t, c, "key")
}

func TestProxyPassesPipelinesAndLargeValues(t *testing.T) {
	p := NewProxy(t, Start(t), 1)
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol})
		large := strings.Repeat("x\r\n", 100_000)
		pipe := c.Pipeline()
		for range 100 {
			pipe.Set(t.Context(), "key", large, 0)
			pipe.Get(t.Context(), "key")
			pipe.Get(t.Context(), "none")
			pipe.ConfigGet(t.Context(), "max*")
		}
		cmds, err := pipe.Exec(t.Context())
		if err != nil && err != redis.Nil { //nolint:errorlint // it is the error itself
			t.Fatal(err)
		}
		if got := cmds[397].(*redis.StringCmd).Val(); got != large {
			t.Errorf("got %d bytes, want %d", len(got), len(large))
		}
		_ = c.Close()
	}
}

func FuzzReadReply(f *testing.F) {
	for _, s := range []string{
		"+OK\r\n", "$3\r\nfoo\r\n", "$-1\r\n", "*2\r\n:1\r\n*-1\r\n", "%1\r\n+a\r\n_\r\n", ">1\r\n+x\r\n:2\r\n", "*1\r\n", "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := readReply(bufio.NewReader(bytes.NewReader(data)))
		if err == nil && !bytes.HasPrefix(data, raw) {
			t.Errorf("read %q of %q", raw, data)
		}
	})
}
