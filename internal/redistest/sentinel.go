//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is how the sentinel knows the master.
const MasterName = "main"

// Sentinel is a master and its replica, and a sentinel that puts the replica in the
// master's place within about a second of its end.
type Sentinel struct {
	// Servers are the first master and its first replica.
	Servers  [2]*Server
	sentinel *Server
	tb       testing.TB
}

// StartSentinel runs the three, which are ready when it returns. The options are
// those of the two servers; User and TLS are not among them.
func StartSentinel(tb testing.TB, opts ...Option) *Sentinel {
	tb.Helper()
	master := Start(tb, opts...)
	follow := Config("replicaof", "127.0.0.1 "+strconv.Itoa(master.port))
	replica := Start(tb, slices.Concat(opts, []Option{follow})...)
	s := &Sentinel{Servers: [2]*Server{master, replica}, tb: tb}
	wait(tb, "the replica", func(ctx context.Context) error {
		info, err := replica.Client().Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("it has not caught up: %q", info)
		}
		return err
	})

	s.sentinel = newServer(tb, nil)
	conf := filepath.Join(s.sentinel.dir, "sentinel.conf")
	lines := []string{
		"bind 127.0.0.1", "dir " + s.sentinel.dir,
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", MasterName, master.port),
		"sentinel down-after-milliseconds " + MasterName + " 500",
		"sentinel failover-timeout " + MasterName + " 3000",
	}
	if master.o.password != "" {
		lines = append(lines, "sentinel auth-pass "+MasterName+" "+master.o.password)
	}
	must(tb, "writing the sentinel's config", os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	s.sentinel.o.sentinel = conf
	s.sentinel.start()
	wait(tb, "the sentinel", s.ready)
	return s
}

// ready returns nil if the sentinel could replace the master.
func (s *Sentinel) ready(ctx context.Context) error {
	c := redis.NewSentinelClient(s.sentinel.Options())
	defer c.Close()
	replicas, err := c.Replicas(ctx, MasterName).Result()
	if err != nil {
		return err
	}
	for _, r := range replicas {
		if r["flags"] == "slave" && r["master-link-status"] == "ok" {
			return nil
		}
	}
	return fmt.Errorf("no replica that could become master: %v", replicas)
}

// Addrs are the hosts and ports of the sentinels.
func (s *Sentinel) Addrs() []string { return []string{s.sentinel.Addr()} }

// Master is the server that is master now.
func (s *Sentinel) Master() *Server {
	s.tb.Helper()
	var addr string
	wait(s.tb, "the master's address", func(ctx context.Context) (err error) {
		addr, err = s.master(ctx)
		return err
	})
	for _, srv := range s.Servers {
		if srv.Addr() == addr {
			return srv
		}
	}
	s.tb.Fatalf("the master is at %s, which is none of this test's", addr)
	return nil
}

func (s *Sentinel) master(ctx context.Context) (string, error) {
	c := redis.NewSentinelClient(s.sentinel.Options())
	defer c.Close()
	hostPort, err := c.GetMasterAddrByName(ctx, MasterName).Result()
	if err != nil {
		return "", err
	}
	if len(hostPort) != 2 {
		return "", fmt.Errorf("the sentinel answers %q", hostPort)
	}
	return net.JoinHostPort(hostPort[0], hostPort[1]), nil
}

// Failover has the replica become master, and the master its replica. It returns
// when the new master takes writes.
func (s *Sentinel) Failover() {
	s.tb.Helper()
	before := s.Master().Addr()
	asked := false
	wait(s.tb, "the failover", func(ctx context.Context) error {
		if !asked {
			c := redis.NewSentinelClient(s.sentinel.Options())
			defer c.Close()
			if err := c.Failover(ctx, MasterName).Err(); err != nil {
				return err // no replica is good enough yet, or one is at work
			}
			asked = true
		}
		return s.replaced(ctx, before)
	})
}

// WaitFailover returns when another server than the one at this address is master,
// such as after its Kill.
func (s *Sentinel) WaitFailover(before string) {
	s.tb.Helper()
	wait(s.tb, "the failover", func(ctx context.Context) error { return s.replaced(ctx, before) })
}

func (s *Sentinel) replaced(ctx context.Context, before string) error {
	addr, err := s.master(ctx)
	if err != nil {
		return err
	}
	if addr == before {
		return errors.New("the master is still the same")
	}
	for _, srv := range s.Servers {
		if srv.Addr() != addr {
			continue
		}
		c := redis.NewClient(srv.Options())
		info, err := c.Info(ctx, "replication").Result()
		_ = c.Close()
		if err == nil && !strings.Contains(info, "role:master") {
			err = errors.New("the new master is still a replica")
		}
		return err
	}
	return fmt.Errorf("the master is at %s, which is none of this test's", addr)
}
