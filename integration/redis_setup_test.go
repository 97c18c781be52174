//go:build unix

package integration

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// fleet is what replicas have in common: a Redis, an upstream, and a config.
type fleet struct {
	t      testing.TB
	up     *upstream
	server *redistest.Server
	redis  string // where replicas find it
	store  string // further lines of its options
	meter  string // lines of the option `meter`
	limits string // directives between the keys and the upstream
}

// newFleet starts a Redis that keeps what it has been told over a Restart.
func newFleet(t testing.TB, h http.HandlerFunc, limits string) *fleet {
	t.Helper()
	server := redistest.Start(t, redistest.Persistent())
	return &fleet{t: t, up: newUpstream(t, h), server: server, redis: server.Addr(), limits: limits}
}

// replica is a Caddy in a process of its own, and how it is called.
type replica struct {
	*gateway
	process *process
}

// run starts a replica that keeps in a directory what Redis has not taken yet. One that
// is given the directory of another that has ended takes its place.
func (f *fleet) run(data string) *replica {
	f.t.Helper()
	k := &keeper{up: f.up, data: data, config: f.caddyfile}
	p := k.run(f.t)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}
	f.t.Cleanup(client.CloseIdleConnections)
	return &replica{&gateway{t: f.t, addr: p.addr, admin: p.admin, client: client}, p}
}

// replicas starts some, each with a directory of its own.
func (f *fleet) replicas(n int) []*replica {
	f.t.Helper()
	all := make([]*replica, n)
	for i := range all {
		all[i] = f.run(f.t.TempDir())
	}
	return all
}

// caddyfile is the config of a replica. A call without a key is refused, so that asking
// whether it serves calls nobody.
func (f *fleet) caddyfile(addr, admin string) string {
	return fmt.Sprintf(`{
	admin unix/%s
	auto_https off
	persist_config off
	grace_period 30s
	metrics
	llm {
		%s
		meter {
			%s
		}
	}
}
http://%s {
	%s
	%s
	reverse_proxy %s
}
`, admin, redisStore(f.redis, f.store), f.meter, addr, strings.Replace(auth, "optional", "", 1), f.limits, f.up.addr)
}

// redisStore is the global option for counters in the Redis at an address.
func redisStore(addr, more string) string {
	return "store redis {\n\t\t\taddress " + addr + "\n\t\t\t" + more + "\n\t\t}"
}

// patiently polls until ok returns true. It allows for machines that are busy.
func patiently(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s after a minute", what)
		}
	}
}

// counters are those of an instance and a consumer, by rule. A rule that nothing is
// known of has a row of zeroes.
func (g *gateway) counters(instance, consumer string) map[string]row {
	g.t.Helper()
	var rows []row
	g.adminGet("/llm/usage?"+url.Values{"instance": {instance}, "consumer": {consumer}}.Encode(), &rows)
	by := make(map[string]row)
	for _, r := range rows {
		by[r.Rule] = r
	}
	return by
}

// become waits until an instance has charged application A with these amounts, by
// rule, and holds nothing.
func (g *gateway) become(instance string, want map[string]int64) {
	g.t.Helper()
	var got map[string]row
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got = g.counters(instance, "app-a")
		same := true
		for rule, n := range want {
			same = same && got[rule].Used == n && got[rule].Reserved == 0
		}
		if same {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%s: got %+v, want %v", instance, got, want)
		}
	}
}

// remote is how a gateway finds Redis.
type remote struct {
	Outage  bool
	Error   string
	Pending int
	Journal struct {
		Bytes int64
		Error string
	}
}

func (g *gateway) remote() remote {
	g.t.Helper()
	var answer struct {
		Store  string
		Remote *remote
	}
	g.adminGet("/llm/limits", &answer)
	if answer.Store != "redis" || answer.Remote == nil {
		g.t.Fatalf("the store is %q, and its remote %+v", answer.Store, answer.Remote)
	}
	return *answer.Remote
}

// inOutage waits until the gateway says that Redis is away.
func (g *gateway) inOutage() {
	g.t.Helper()
	patiently(g.t, "in an outage", func() bool { return g.remote().Outage })
}

// healed waits until Redis is back and has been given all that was kept for it.
func (g *gateway) healed() {
	g.t.Helper()
	patiently(g.t, "healed", func() bool { r := g.remote(); return !r.Outage && r.Pending == 0 })
}

// chats makes calls that must be admitted.
func (g *gateway) chats(n int) {
	g.t.Helper()
	for i := range n {
		if a := g.chat(keyA); a.Status != http.StatusOK {
			g.t.Fatalf("call %d of %d: %d: %s", i+1, n, a.Status, a.Body)
		}
	}
}

// end sends the process a signal and waits until it is gone.
func (r *replica) end(sig os.Signal) {
	r.t.Helper()
	r.process.end(sig)
}
