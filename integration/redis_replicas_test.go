//go:build unix

package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// gate is an upstream that keeps calls until it is opened, and then answers them.
type gate struct {
	arrived atomic.Int64
	open    chan struct{}
	once    sync.Once
}

func newGate(t testing.TB) *gate {
	g := &gate{open: make(chan struct{})}
	t.Cleanup(g.release)
	return g
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	g.arrived.Add(1)
	select {
	case <-g.open:
		sixtyTokens(w, r)
	case <-r.Context().Done():
	}
}

func TestStrictIsNeverPassedByReplicas(t *testing.T) {
	const (
		calls = 160
		limit = 6000
		rule  = "tokens per month"
	)
	up := newGate(t)
	f := newFleet(t, up.serve, fmt.Sprintf(`token_limit hard {
		consumer_based
		mode strict
		limit %d %s
		limit 1000 requests per week
	}`, limit, rule))
	f.store = "timeout 10s" // 160 calls at once are many for a busy machine
	replicas := f.replicas(2)

	// at worst a token for each byte, and the cap: more than the 60 that it reports
	body := `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 20) + `"}]}`
	var (
		wg            sync.WaitGroup
		served, other atomic.Int64
		refused       atomic.Int64
	)
	for i := range calls {
		wg.Go(func() {
			a, err := replicas[i%2].try(context.Background(), "POST", "/v1/chat/completions", keyA, body)
			switch {
			case err != nil:
				t.Error(err)
				other.Add(1)
			case a.Status == http.StatusOK:
				served.Add(1)
			case a.Status == http.StatusTooManyRequests:
				refused.Add(1)
			default:
				t.Errorf("%d: %s", a.Status, a.Body)
				other.Add(1)
			}
		})
	}
	patiently(t, "admitted or refused", func() bool { return up.arrived.Load()+refused.Load()+other.Load() == calls })
	n := up.arrived.Load()
	var held int64
	for i, r := range replicas {
		c := r.counters("hard", "app-a")
		if c[rule].Used != 0 || c[rule].Reserved > limit || c[rule].Reserved%n != 0 || c["requests per week"].Used != n {
			t.Errorf("replica %d, with %d calls under way: %+v", i, n, c)
		}
		held = c[rule].Reserved
	}
	if worst := held / n; worst < 60 || limit-held >= worst {
		t.Errorf("%d calls hold %d of %d: another would fit", n, held, limit)
	}
	up.release()
	wg.Wait()
	if served.Load() != n || refused.Load() != calls-n {
		t.Errorf("%d were answered and %d refused, of %d at the upstream", served.Load(), refused.Load(), n)
	}
	for _, r := range replicas {
		r.become("hard", map[string]int64{rule: 60 * n, "requests per week": n})
	}

	// What was held and not used is there for the next, up to the last token.
	worst := held / n
	for i := 0; ; i++ {
		a := replicas[i%2].call("POST", "/v1/chat/completions", keyA, body)
		if a.Status != http.StatusOK {
			break
		}
		n++
		replicas[i%2].become("hard", map[string]int64{rule: 60 * n})
	}
	if left := limit - 60*n; left < 0 || left >= worst {
		t.Errorf("refused with %d tokens left, of which a call takes %d", left, worst)
	}
	for _, r := range replicas {
		r.become("hard", map[string]int64{rule: 60 * n, "requests per week": n})
	}
	if int64(f.up.calls()) != n {
		t.Errorf("the upstream was called %d times, want %d", f.up.calls(), n)
	}
}

// commands counts what a Redis is asked, by a word that the request contains.
type commands struct {
	mu sync.Mutex
	by map[string]int
}

// monitor counts the commands on keys of each consumer until the test ends.
func monitor(t testing.TB, addr string, consumers ...string) *commands {
	t.Helper()
	m := &commands{by: make(map[string]int)}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %q, %v", lines.Text(), lines.Err())
	}
	go func() {
		for lines.Scan() {
			m.mu.Lock()
			for _, name := range consumers {
				// what a script does itself is listed as of "lua"
				if line := lines.Text(); strings.Contains(line, name) && !strings.Contains(line, " lua] ") {
					m.by[name]++
				}
			}
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *commands) of(consumer string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[consumer]
}

func TestHammeringTenantNeitherLoadsRedisNorHurtsOthers(t *testing.T) {
	const (
		replicasN = 4
		clients   = 4 // of each replica
		each      = 50
		others    = 40
	)
	f := newFleet(t, nil, `token_limit apps {
		consumer_based
		limit 3000 tokens per month
	}`)
	f.store = "timeout 10s"
	replicas := f.replicas(replicasN)
	for i := 0; ; i++ { // app-a comes to its limit
		if a := replicas[i%replicasN].chat(keyA); a.Status == http.StatusTooManyRequests {
			break
		} else if a.Status != http.StatusOK || i > 60 {
			t.Fatalf("call %d: %d: %s", i, a.Status, a.Body)
		}
	}
	used := replicas[0].counters("apps", "app-a")["tokens per month"].Used
	before := f.up.calls()

	m := monitor(t, f.server.Addr(), "app-a", "app-b")
	start := time.Now()
	var wg sync.WaitGroup
	for _, r := range replicas {
		for range clients {
			wg.Go(func() {
				for range each {
					a, err := r.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[]}`)
					if err != nil || a.Status != http.StatusTooManyRequests {
						t.Errorf("a call past the limit: %d %v", a.Status, err)
					}
				}
			})
		}
		wg.Go(func() {
			for range others / replicasN {
				a, err := r.try(context.Background(), "POST", "/v1/chat/completions", keyB, `{"model":"gpt-4o-mini","max_tokens":5,"messages":[]}`)
				if err != nil || a.Status != http.StatusOK {
					t.Errorf("a call of the other tenant: %d %v: %s", a.Status, err, a.Body)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	patiently(t, "settled", func() bool {
		c := replicas[0].counters("apps", "app-b")["tokens per month"]
		return c.Used == 60*others && c.Reserved == 0
	})
	// Each replica asks once a second, and for those who come while it does, once more.
	hammered, calls := m.of("app-a"), replicasN*clients*each
	most := replicasN * 3 * (int(took/time.Second) + 2)
	t.Logf("%d commands for %d calls in %s; %d commands for %d calls of the other tenant", hammered, calls, took, m.of("app-b"), others)
	if hammered > most {
		t.Errorf("%d calls of the tenant at its limit took %d commands, want at most %d in %s", calls, hammered, most, took)
	}
	if n := m.of("app-b"); n < others {
		t.Errorf("%d commands were seen of %d calls", n, others)
	}
	for _, r := range replicas {
		r.become("apps", map[string]int64{"tokens per month": used})
	}
	if got := f.up.calls() - before; got != others {
		t.Errorf("the upstream was called %d times, want %d", got, others)
	}
}

func TestHoldOfAKilledReplicaEndsWithItsLease(t *testing.T) {
	const lease = 2 * time.Second
	up := newGate(t)
	f := newFleet(t, up.serve, `token_limit apps {
		consumer_based
		limit 1 concurrent
		limit 1000 tokens per month
		limit 100 requests per month
	}`)
	f.meter = "lease " + lease.String()
	replicas := f.replicas(2)
	a, b := replicas[0], replicas[1]
	go func() {
		_, _ = a.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[]}`)
	}()
	patiently(t, "at the upstream", func() bool { return up.arrived.Load() == 1 })
	// Renewals keep it for longer than one lease.
	for begin := time.Now(); time.Since(begin) < 3*lease/2; time.Sleep(50 * time.Millisecond) {
		if c := b.counters("apps", "app-a"); c["concurrent"].Reserved != 1 || c["tokens per month"].Reserved == 0 {
			t.Fatalf("a call under way holds %+v", c)
		}
	}
	if r := b.chat(keyA); r.Status != http.StatusTooManyRequests {
		t.Fatalf("a second call at one time: %d", r.Status)
	}
	a.end(syscall.SIGKILL)
	killed := time.Now()
	up.release()
	patiently(t, "admitted", func() bool { return b.chat(keyA).Status == http.StatusOK })
	// a quarter because deadlines are told apart that finely, a second because a refusal
	// is remembered, and the rest for a busy machine
	if d := time.Since(killed); d > 5*lease/4+time.Second+20*time.Second {
		t.Errorf("admitted %s after the replica was killed", d)
	} else {
		t.Logf("admitted %s after the replica was killed, with a lease of %s", d, lease)
	}
	// The call whose end nobody saw has cost its request.
	b.become("apps", map[string]int64{"concurrent": 0, "tokens per month": 60, "requests per month": 2})
}

func TestLastCallIsChargedBeforeTheNext(t *testing.T) {
	const teams = 12
	f := newFleet(t, nil, `token_limit teams {
		key {header.X-Team}
		mode charge_after
		limit 50 tokens per month
	}`)
	replicas := f.replicas(2)
	const body = `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`
	ask := func(r *replica, team string) int {
		return r.call("POST", "/v1/chat/completions", keyA, body, "X-Team", team).Status
	}
	for i := range teams {
		here, there := replicas[i%2], replicas[(i+1)%2]
		team := fmt.Sprint("team-", i)
		if status := ask(here, team); status != http.StatusOK {
			t.Fatalf("%s: %d", team, status)
		}
		if status := ask(here, team); status != http.StatusTooManyRequests {
			t.Fatalf("%s: its last call of 60 of 50 tokens is not charged: %d", team, status)
		}
		var seen map[string]row
		patiently(t, "seen by the other replica", func() bool {
			seen = there.rowsOf("teams")
			return len(seen) == i+1 && totalUsed(seen) == int64(60*(i+1))
		})
		if status := ask(there, team); status != http.StatusTooManyRequests {
			t.Fatalf("%s: the other replica says %d, and knows of %+v", team, status, seen)
		}
	}
	if n := f.up.calls(); n != teams {
		t.Errorf("the upstream was called %d times, want %d", n, teams)
	}
}

// rowsOf are the counters of an instance that has one rule, by consumer.
func (g *gateway) rowsOf(instance string) map[string]row {
	g.t.Helper()
	var rows []row
	g.adminGet("/llm/usage?instance="+instance, &rows)
	by := make(map[string]row)
	for _, r := range rows {
		by[r.Consumer] = r
	}
	return by
}

func totalUsed(rows map[string]row) (n int64) {
	for r := range maps.Values(rows) {
		n += r.Used
	}
	return n
}
