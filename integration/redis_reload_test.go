//go:build unix

package integration

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// redisAt are the options of a store whose keys begin with a prefix.
func redisAt(server *redistest.Server, prefix string) string {
	return redisStore(server.Addr(), "prefix "+prefix+"\ntimeout 10s\npersist off")
}

func storeSite(store, limits string) string {
	return "{\n\tllm {\n\t\t" + store + "\n\t}\n}\n{site} {\n" + auth + limits + "\nreverse_proxy {upstream}\n}"
}

func TestCallAcrossAReloadIsChargedToTheSameCounters(t *testing.T) {
	server, up := redistest.Start(t), newGate(t)
	upstream := newUpstream(t, up.serve)
	g := start(t, upstream, storeSite(redisAt(server, "a:"), months))
	done := make(chan answer, 1)
	go func() {
		a, err := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[]}`)
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	patiently(t, "at the upstream", func() bool { return up.arrived.Load() == 1 })
	reserved := g.counters(g.testName(), "app-a")["tokens per month"].Reserved
	if reserved == 0 {
		t.Error("the call holds nothing")
	}

	// A config that fails late, with another store, leaves the one that runs alone.
	err := g.tryLoad(upstream, storeSite(redisAt(server, "b:"), "respond /early 200\nroute {\nrespond ok\n"+months+"\n}"))
	if err == nil {
		t.Fatal("a limiter behind a responder was let pass")
	}
	if c := g.counters(g.testName(), "app-a"); c["tokens per month"].Reserved != reserved || c["requests per month"].Used != 1 {
		t.Errorf("after a reload that failed: %+v", c)
	}

	g.reload(upstream, storeSite(redisAt(server, "a:"), strings.Replace(months, "1_000_000 requests", "2 requests", 1)))
	if c := g.counters(g.testName(), "app-a"); c["tokens per month"].Reserved != reserved {
		t.Errorf("after a reload, the call at work holds %+v", c)
	}
	up.release()
	if a := <-done; a.Status != http.StatusOK {
		t.Errorf("%d: %s", a.Status, a.Body)
	}
	g.become(g.testName(), monthsOf(1))
	for i, want := range []int{200, 429} {
		if a := g.chat(keyA); a.Status != want {
			t.Errorf("call %d under the new limit: %d, want %d", i+1, a.Status, want)
		}
	}
	g.become(g.testName(), monthsOf(2))

	g.reload(upstream, storeSite(redisAt(server, "b:"), months))
	if c := g.counters(g.testName(), "app-a"); c["requests per month"].Used != 0 {
		t.Errorf("the failed reload has charged %+v", c)
	}
}

func TestChangeOfTheStoreUnderCallsLosesNoCharge(t *testing.T) {
	server := redistest.Start(t)
	for _, tt := range []struct{ name, from, to string }{
		{"from memory to Redis", memoryStore, redisAt(server, "to:")},
		{"to another prefix", redisAt(server, "c:"), redisAt(server, "d:")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newUpstream(t, nil)
			g := start(t, up, storeSite(tt.from, months))
			// A reload closes connections that are idle, and a call may just begin on one.
			g.client.Transport.(*http.Transport).DisableKeepAlives = true
			var (
				wg      sync.WaitGroup
				charged atomic.Int64
				stop    = make(chan struct{})
			)
			for range 8 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						a, err := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[]}`)
						if err != nil || a.Status != http.StatusOK {
							t.Errorf("%d %v: %s", a.Status, err, a.Body)
							return
						}
						charged.Add(1)
					}
				})
			}
			patiently(t, "called", func() bool { return charged.Load() > 50 })
			g.reload(up, storeSite(tt.to, months))
			n := charged.Load()
			patiently(t, "called on", func() bool { return charged.Load() > n+50 })
			close(stop)
			wg.Wait()
			// What is charged to each store, once nothing is held there.
			settled := func() (n int64) {
				patiently(t, "settled", func() bool {
					c := g.counters(g.testName(), "app-a")
					n = c["requests per month"].Used
					return n > 0 && c["tokens per month"].Used == 60*n && c["tokens per month"].Reserved == 0
				})
				return n
			}
			to := settled()
			g.reload(up, storeSite(tt.from, months))
			from := settled()
			if from+to != charged.Load() || int64(up.calls()) != charged.Load() {
				t.Errorf("%d and %d calls are charged, of %d that were answered and %d that were made", from, to, charged.Load(), up.calls())
			}
		})
	}
}
