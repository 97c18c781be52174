//go:build unix

package redistest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

// slots is how many a Redis cluster has.
const slots = 16384

// Cluster is three masters without replicas that share all slots among them.
type Cluster struct {
	Nodes []*Server
	tb    testing.TB
}

// StartCluster runs an empty cluster, which is ready when it returns.
func StartCluster(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	for range 3 {
		s := newServer(tb, opts)
		base := s.o.args
		for try := 0; ; try++ {
			s.port = loopback.Port(tb)
			bus := loopback.Port(tb)
			s.o.args = slices.Concat(base, []string{"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "2000"})
			if s.o.tls {
				s.o.args = append(s.o.args, "--tls-cluster", "yes")
			}
			s.o.bus = bus
			if s.run() {
				break
			}
			if try == 10 {
				tb.Fatalf("starting a node of a cluster: it ended at once:\n%s", s.log())
			}
		}
		c.Nodes = append(c.Nodes, s)
	}
	c.join()
	return c
}

func (c *Cluster) join() {
	c.tb.Helper()
	ctx := context.Background()
	n := len(c.Nodes)
	for i, s := range c.Nodes {
		cl := s.Client()
		must(c.tb, "setting the epoch of a node", cl.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		must(c.tb, "assigning slots", cl.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err())
		if i > 0 {
			first := c.Nodes[0]
			must(c.tb, "joining nodes", cl.Do(ctx, "cluster", "meet", "127.0.0.1", first.port, first.o.bus).Err())
		}
	}
	c.Wait()
}

// Wait returns when all nodes serve all slots.
func (c *Cluster) Wait() {
	c.tb.Helper()
	for _, s := range c.Nodes {
		cl := redis.NewClient(s.Options())
		wait(c.tb, "the cluster", func(ctx context.Context) error {
			info, err := cl.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			for _, want := range []string{"cluster_state:ok", fmt.Sprintf("cluster_slots_ok:%d", slots), fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes))} {
				if !strings.Contains(info, want) {
					return fmt.Errorf("no %s in %q", want, info)
				}
			}
			return nil
		})
		_ = cl.Close()
	}
}

// Addrs are the hosts and ports of the nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Client returns a client of the whole cluster, which is closed when the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	o := c.Nodes[0].Options()
	cl := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
	})
	c.tb.Cleanup(func() { _ = cl.Close() })
	return cl
}
