//go:build unix

package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

func TestConformanceThroughSentinels(t *testing.T) {
	s := redistest.StartSentinel(t)
	storetest.Run(t, func(t *testing.T, now func() time.Time) store.Counters {
		return open(t, Options{Addresses: s.Addrs(), Master: redistest.MasterName, Now: now})
	})
}

// TestFailover has another server become master between calls: by order, where the old
// master goes on as a replica that refuses to write, and by the old one's death. What
// Redis has not replicated by then is lost, which no client can help.
func TestFailover(t *testing.T) {
	for name, fail := range map[string]func(*redistest.Sentinel){
		"by order": func(s *redistest.Sentinel) {
			before := s.Master()
			s.Failover()
			// The sentinel tells it some time afterwards, and until then it takes writes.
			old := before.Client()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				info, err := old.Info(t.Context(), "replication").Result()
				if err == nil && strings.Contains(info, "role:slave") {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("the old master goes on as one: %q (%v)", info, err)
				}
			}
		},
		"by death": func(s *redistest.Sentinel) {
			master := s.Master()
			master.Kill()
			s.WaitFailover(master.Addr())
		},
	} {
		t.Run(name, func(t *testing.T) {
			servers := redistest.StartSentinel(t)
			s := open(t, Options{Addresses: servers.Addrs(), Master: redistest.MasterName, Timeout: time.Second})
			e := store.Entity{Instance: "apps", Consumer: "app-a"}
			rule := &store.Rule{ID: "tokens per month", Window: must(store.Calendar("month", nil))}
			results := make([]store.Result, 1)
			charge := func() error {
				r := store.Reservation{Entity: e, Known: true, Lease: time.Minute, Takes: []store.Take{{Rule: rule, Limit: 1_000_000, Need: 1, Hold: 10}}}
				ticket, err := s.Reserve(t.Context(), &r, results)
				if err == nil {
					s.Settle(ticket, []int64{10})
				}
				return err
			}
			// What is settled is sent behind the back of the caller.
			uses := func(want int64) {
				t.Helper()
				for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
					if err := s.Read(t.Context(), e, []*store.Rule{rule}, results); err != nil {
						t.Fatal(err)
					}
					if results[0].Used == want && results[0].Held == 0 {
						return
					}
					if time.Now().After(deadline) {
						t.Fatalf("%d are charged and %d held, want %d and none", results[0].Used, results[0].Held, want)
					}
				}
			}

			const before, after = 50, 20
			for range before {
				if err := charge(); err != nil {
					t.Fatal(err)
				}
			}
			uses(before * 10)
			master := servers.Master().Client()
			if n, err := master.Wait(t.Context(), 1, 10*time.Second).Result(); err != nil || n != 1 {
				t.Fatalf("%d replicas have caught up (%v)", n, err)
			}

			fail(servers)
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				err := charge()
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the new master is not found: %v", err)
				}
			}
			for range after {
				if err := charge(); err != nil {
					t.Fatal(err)
				}
			}
			// What is in doubt of the calls that failed turns out to have been taken or not,
			// and is given back.
			uses((before + 1 + after) * 10)
		})
	}
}
