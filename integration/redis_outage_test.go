//go:build unix

package integration

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// months are two limits that no call of these tests comes to.
const months = `token_limit {name} {
		consumer_based
		limit 1_000_000_000 tokens per month
		limit 1_000_000 requests per month
	}`

// redisSite is a config that counts in a Redis.
func redisSite(addr, options, limits string) string {
	return "{\n\tmetrics\n\tllm {\n\t\t" + redisStore(addr, options) + "\n\t}\n}\n{site} {\n" + auth + limits + "\nreverse_proxy {upstream}\n}"
}

// monthsOf are the charges of calls of 60 tokens, under months.
func monthsOf(calls int) map[string]int64 {
	return map[string]int64{"tokens per month": 60 * int64(calls), "requests per month": int64(calls)}
}

// callers make calls of application A at one time, and return how long each waited,
// in ascending order. All must be admitted.
func (g *gateway) callers(n, each int) []time.Duration {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		took []time.Duration
	)
	for range n {
		wg.Go(func() {
			for range each {
				start := time.Now()
				a, err := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[]}`)
				d := time.Since(start)
				if err != nil || a.Status != http.StatusOK {
					g.t.Errorf("a call during an outage: %d %v: %s", a.Status, err, a.Body)
				}
				mu.Lock()
				took = append(took, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}

func TestOutageIsBridgedAndHandedOver(t *testing.T) {
	const before, during, after = 5, 40, 5
	// the timeout is 250ms; the rest is for a busy machine, and below what a client
	// without a bound would wait
	const most = 8 * time.Second
	for _, tt := range redistest.Outages() {
		t.Run(tt.Name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Persistent())
			proxy := redistest.NewProxy(t, server, 1)
			up := newUpstream(t, nil)
			g := start(t, up, redisSite(proxy.Addr(), "persist "+t.TempDir(), months))
			g.chats(before)
			g.become(g.testName(), monthsOf(before))

			tt.Cut(server, proxy)
			took := g.callers(4, during/4)
			g.inOutage()
			took = append(took, g.callers(1, during)...)
			if longest := slices.Max(took); longest > most {
				t.Errorf("a call waited for %s", longest)
			}
			if median := took[during+during/2]; median > 250*time.Millisecond {
				t.Errorf("calls waited for %s once the outage was known, as the median", median)
			}
			g.expectMetrics(map[string]float64{"llm_store_outage": 1})
			eventually(t, "said in the log", func() bool {
				return strings.Contains(g.logs.text(), "redis cannot be reached: calls are counted here")
			})

			tt.Heal(server, proxy)
			g.healed()
			g.chats(after)
			served := before + 2*during + after
			if n := up.calls(); n != served {
				t.Errorf("the upstream served %d calls, want %d", n, served)
			}
			if tt.Forgets {
				served -= before
			}
			g.become(g.testName(), monthsOf(served))
			if v := g.scrape()["llm_store_outage"]; v != 0 {
				t.Errorf("llm_store_outage is %v", v)
			}
			eventually(t, "said in the log", func() bool {
				return strings.Contains(g.logs.text(), "redis is back, and has been charged with what was used meanwhile")
			})
		})
	}
}

func TestPoliciesOfAnOutage(t *testing.T) {
	server := redistest.Start(t, redistest.Persistent())
	up := newUpstream(t, nil)
	dir := "persist " + t.TempDir()
	site := func(policy, limits string) string { return redisSite(server.Addr(), policy+"\n"+dir, limits) }
	strict := strings.Replace(months, "consumer_based", "consumer_based\nmode strict", 1)
	g := start(t, up, site("on_outage local", months))
	g.chats(2)
	g.become(g.testName(), monthsOf(2))
	server.Kill()
	g.callers(1, 3)
	g.inOutage()

	served := 5
	for _, tt := range []struct {
		name, policy, limits string
		status               int
		say                  string
	}{
		{"local", "on_outage local", months, 200, ""},
		{"allow", "on_outage allow", months, 200, ""},
		{"deny", "on_outage deny", months, 503, ""},
		{"strict", "on_outage local", strict, 503, ""},
		{"strict where all is allowed", "on_outage allow", strict, 503, ""},
		{"strict, with replicas", "on_outage local\nreplicas 2", strict, 200, ""},
	} {
		config := strings.ReplaceAll(tt.name, " ", "-")
		g.reload(up, site(tt.policy, "header X-Config "+config+"\n"+tt.limits))
		for _, api := range []struct{ path, body, say string }{
			{"/v1/chat/completions", `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`, `"code":"limits_unavailable"`},
			{"/v1/messages", `{"model":"claude-x","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`, `"type":"overloaded_error"`},
		} {
			n := up.calls()
			a := g.call("POST", api.path, keyA, api.body)
			for a.Header.Get("X-Config") != config { // that of the one before, which had accepted the connection
				served += up.calls() - n
				n = up.calls()
				a = g.call("POST", api.path, keyA, api.body)
			}
			if a.Status != tt.status {
				t.Errorf("%s: %s: %d: %s", tt.name, api.path, a.Status, a.Body)
			}
			if a.Status == http.StatusOK {
				served++
				continue
			}
			if !strings.Contains(strings.ReplaceAll(a.Body, " ", ""), api.say) || a.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %s: %v: %s", tt.name, api.path, a.Header, a.Body)
			}
			if up.calls() != n {
				t.Errorf("%s: %s: a refused call went upstream", tt.name, api.path)
			}
		}
	}
	server.Restart()
	g.healed()
	if n := up.calls(); n != served {
		t.Errorf("the upstream served %d calls, want %d", n, served)
	}
	g.become(g.testName(), monthsOf(served))
}

// The fleet's limits, with a name that stays over restarts.
var lasting = strings.Replace(months, "{name}", "apps", 1)

func TestStopDuringAnOutageHandsOverOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil, lasting)
	dir := t.TempDir()
	r := f.run(dir)
	r.chats(5)
	r.become("apps", monthsOf(5))
	f.server.Stop()
	r.chats(10)
	r.inOutage()
	r.end(syscall.SIGTERM)

	r = f.run(dir)
	r.chats(3) // Redis is still away
	f.server.Continue()
	r.healed()
	r.become("apps", monthsOf(18))
	r.end(syscall.SIGTERM)

	r = f.run(dir)
	r.chats(1)
	r.become("apps", monthsOf(19))
	if f.up.calls() != 19 {
		t.Errorf("the upstream served %d calls", f.up.calls())
	}
}

func TestKillDuringAnOutageLosesASecondAtMost(t *testing.T) {
	f := newFleet(t, nil, lasting)
	// A machine under load may write late; one that always does is wrong.
	for try := 0; ; try++ {
		f.limits = strings.Replace(months, "{name}", "apps-"+string(rune('a'+try)), 1)
		least, made, requests, tokens := f.killDuringAnOutage("apps-" + string(rune('a'+try)))
		if requests > made || tokens > 60*requests {
			t.Fatalf("%d calls were made, and %d requests and %d tokens are charged", made, requests, tokens)
		}
		if requests >= least && tokens >= 60*least {
			return
		}
		if try == 2 {
			t.Fatalf("%d requests and %d tokens are charged, want those of %d calls at least", requests, tokens, least)
		}
	}
}

// killDuringAnOutage returns how many calls must be charged, how many were made, and
// what is charged, after a replica was killed in an outage, and again when it had
// handed over.
func (f *fleet) killDuringAnOutage(instance string) (least, made, requests, tokens int64) {
	f.t.Helper()
	dir := f.t.TempDir()
	r := f.run(dir)
	r.chats(5)
	r.become(instance, monthsOf(5))
	f.server.Stop()
	r.chats(10)
	r.inOutage()
	least, made = 15, 15
	for kill := time.Now().Add(1100 * time.Millisecond); time.Now().Before(kill); time.Sleep(5 * time.Millisecond) {
		r.chats(1)
		made++
	}
	r.end(syscall.SIGKILL)

	r = f.run(dir)
	r.chats(3)
	least, made = least+3, made+3
	f.server.Continue()
	r.healed()
	charged := func() (requests, tokens int64) {
		c := r.counters(instance, "app-a")
		return c["requests per month"].Used, c["tokens per month"].Used
	}
	requests, tokens = charged()
	r.end(syscall.SIGKILL) // the file has all of it yet

	r = f.run(dir)
	r.chats(1)
	r.healed()
	r.become(instance, map[string]int64{"requests per month": requests + 1, "tokens per month": tokens + 60})
	return least, made, requests, tokens
}

// A gateway that nobody calls notices, too, that what it has to charge stays behind.
func TestKillOfAnIdleReplicaLosesNothing(t *testing.T) {
	t.Parallel()
	up := newGate(t)
	f := newFleet(t, up.serve, lasting)
	dir := t.TempDir()
	r := f.run(dir)
	done := make(chan error, 1)
	go func() {
		_, err := r.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[]}`)
		done <- err
	}()
	patiently(t, "at the upstream", func() bool { return up.arrived.Load() == 1 })
	f.server.Stop()
	up.release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	patiently(t, "written", func() bool { return r.remote().Journal.Bytes > 100 })
	r.end(syscall.SIGKILL)
	r = f.run(dir)
	f.server.Continue()
	r.healed()
	r.become("apps", monthsOf(1))
}
