//go:build unix

package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

// fresh opens keys under a prefix that no other test has.
func fresh(t *testing.T, o Options) *Keys {
	prefixes++
	o.Prefix = fmt.Sprintf("%d:", prefixes)
	return open(t, o).Keys()
}

var prefixes int

func TestKeysConformance(t *testing.T) {
	_, o := single(t)
	storetest.RunKeys(t, func(t *testing.T, _ func() time.Time) store.Keys { return fresh(t, o) })
}

func TestKeysConformanceInACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	storetest.RunKeys(t, func(t *testing.T, _ func() time.Time) store.Keys {
		return fresh(t, Options{Addresses: cluster.Addrs(), Cluster: true})
	})
}
