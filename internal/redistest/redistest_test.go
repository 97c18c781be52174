//go:build unix

package redistest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // of servers that are not there, on purpose
	os.Exit(m.Run())
}

func set(t *testing.T, c redis.UniversalClient, key string) {
	t.Helper()
	if err := c.Set(t.Context(), key, "value", 0).Err(); err != nil {
		t.Fatalf("setting %q: %v", key, err)
	}
}

func TestServersAnswer(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts []Option
	}{
		{"plain", nil},
		{"with a password", []Option{Password("secret")}},
		{"with a user", []Option{User("gateway", "secret", "~*", "+@all")}},
		{"with TLS", []Option{TLS()}},
		{"with certificates of clients", []Option{TLSClients()}},
		{"with config", []Option{Config("maxmemory-policy", "noeviction")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Start(t, tt.opts...)
			set(t, s.Client(), "key")
			o := s.Options()
			o.Username, o.Password, o.TLSConfig = "", "", nil
			c := redis.NewClient(o)
			defer c.Close()
			if err := c.Get(t.Context(), "key").Err(); (err == nil) != (s.o.password == "" && !s.o.tls) {
				t.Errorf("a client that knows nothing got %v", err)
			}
		})
	}
}

func TestServerIsEmptyOrNotAfterRestart(t *testing.T) {
	for _, tt := range []struct {
		name    string
		opts    []Option
		restart func(*Server)
		want    int64
	}{
		{"nothing is kept", nil, (*Server).Restart, 0},
		{"everything is kept", []Option{Persistent()}, (*Server).Restart, 1},
		{"what was kept is lost", []Option{Persistent()}, (*Server).RestartEmpty, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Start(t, tt.opts...)
			set(t, s.Client(), "key")
			addr := s.Addr()
			s.Kill()
			if err := s.Client().Ping(t.Context()).Err(); err == nil {
				t.Error("a killed server answers")
			}
			tt.restart(s)
			if s.Addr() != addr {
				t.Errorf("the server moved from %s to %s", addr, s.Addr())
			}
			if n := s.Client().Exists(t.Context(), "key").Val(); n != tt.want {
				t.Errorf("%d keys, want %d", n, tt.want)
			}
		})
	}
}

func TestStoppedServerAnswersLater(t *testing.T) {
	s := Start(t)
	c := s.Client()
	set(t, c, "key")
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o := s.Options()
	o.ContextTimeoutEnabled = true
	hasty := redis.NewClient(o)
	defer hasty.Close()
	if err := hasty.Ping(ctx).Err(); err == nil {
		t.Error("a stopped server answers")
	}
	s.Continue()
	set(t, c, "key")
}

func TestClusterServesAllSlots(t *testing.T) {
	c := StartCluster(t).Client()
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		set(t, c, key)
	}
}

func TestSentinelReplacesTheMaster(t *testing.T) {
	s := StartSentinel(t, Password("secret"))
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: MasterName, SentinelAddrs: s.Addrs(), Password: "secret"})
	defer c.Close()
	set(t, c, "before")
	first := s.Master()
	s.Failover()
	if s.Master() == first {
		t.Error("the master is still the same")
	}
	wait(t, "a write", func(ctx context.Context) error { return c.Set(ctx, "after", "value", 0).Err() })
}

func TestSentinelReplacesAMasterThatDied(t *testing.T) {
	s := StartSentinel(t)
	first := s.Master()
	first.Kill()
	s.WaitFailover(first.Addr())
	set(t, s.Master().Client(), "key")
}
