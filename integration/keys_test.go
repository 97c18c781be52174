//go:build unix

package integration

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// known is how soon a change of keys is known at other replicas: a second, and the rest is for
// a busy machine.
const known = 10 * time.Second

func newKeysGateways(t testing.TB, store string) *keysGateways {
	return &keysGateways{t: t, up: newUpstream(t, nil), store: store}
}

// becomes waits until calls with a key are answered so by a replica, and returns how
// long that took.
func (g *keysGateways) becomes(p *process, key string, want int) time.Duration {
	g.t.Helper()
	began := time.Now()
	patiently(g.t, http.StatusText(want), func() bool { return g.status(p, key) == want })
	return time.Since(began)
}

// used is how many requests are charged to an application, as a replica tells it.
func (g *keysGateways) used(p *process, application string) int64 {
	g.t.Helper()
	return (&gateway{t: g.t, admin: p.admin}).counters("apps", application)["requests per week"].Used
}

func TestKeysOfTwoReplicas(t *testing.T) {
	server := redistest.Start(t)
	g := newKeysGateways(t, redisStore(server.Addr(), "timeout 10s"))
	a, b := g.run(t.TempDir()), g.run(t.TempDir())

	// issued at one, at once good at the other
	id, first := g.key(a, "new", "--application", "shop", "--models", "gpt-*")
	for i, p := range []*process{b, a} {
		if got := g.status(p, first); got != http.StatusOK {
			t.Fatalf("replica %d answers a new key with %d", i, got)
		}
	}
	var rows []struct {
		ID, Application string
		PreviousUntil   *time.Time `json:"previous_until"`
	}
	if err := json.Unmarshal([]byte(g.must(b, "list")), &rows); err != nil || len(rows) != 1 || rows[0].ID != id || rows[0].Application != "shop" {
		t.Errorf("got %+v, %v", rows, err)
	}

	// rotated at the other: both secrets work, and what was used stays
	_, second := g.key(b, "rotate", id, "--grace", "1h")
	for _, key := range []string{first, second} {
		for i, p := range []*process{a, b} {
			if got := g.status(p, key); got != http.StatusOK {
				t.Errorf("replica %d answers %d in the time of grace", i, got)
			}
		}
	}
	for _, p := range []*process{a, b} {
		patiently(t, "charged", func() bool { return g.used(p, "shop") == 6 })
	}

	// rotated without grace: neither of the former works anywhere
	_, third := g.key(a, "rotate", id, "--grace", "0s")
	for i, p := range []*process{a, b} {
		t.Logf("replica %d: a rotation acts after %s", i, g.becomes(p, second, http.StatusUnauthorized))
		if got := g.status(p, first); got != http.StatusUnauthorized {
			t.Errorf("replica %d answers the first key with %d", i, got)
		}
		if got := g.status(p, third); got != http.StatusOK {
			t.Errorf("replica %d answers the third key with %d", i, got)
		}
	}

	// disabled at one and enabled at the other
	g.must(a, "disable", id)
	if got := g.status(a, third); got != http.StatusUnauthorized {
		t.Errorf("the replica that disabled a key answers %d", got)
	}
	if took := g.becomes(b, third, http.StatusUnauthorized); took > known {
		t.Errorf("a key is disabled after %s at another replica", took)
	}
	g.must(b, "enable", id)
	if took := g.becomes(a, third, http.StatusOK); took > known {
		t.Errorf("a key is enabled after %s at another replica", took)
	}

	// revoked at one: at once there, and within a second at the other
	g.must(a, "revoke", id)
	if got := g.status(a, third); got != http.StatusUnauthorized {
		t.Errorf("the replica that revoked a key answers %d", got)
	}
	if took := g.becomes(b, third, http.StatusUnauthorized); took > known {
		t.Errorf("a key is revoked after %s at another replica", took)
	} else {
		t.Logf("a key is revoked after %s at another replica", took)
	}

	// nothing of all that shows anywhere, nor does what is refused
	if out, err := g.command(a, "revoke", third); err == nil || !strings.Contains(out, "this is a key") {
		t.Errorf("revoking by the key: %v: %s", err, out)
	}
	if out, err := g.command(a, "rotate", id); err == nil || !strings.Contains(out, "no key of that id") {
		t.Errorf("rotating what is revoked: %v: %s", err, out)
	}
	if status, answer := g.ask(a, http.MethodPost, "/llm/keys", `{"id":"stated"}`); status != http.StatusConflict {
		t.Errorf("got %d: %s", status, answer)
	}
	if status, answer := g.ask(a, http.MethodPost, "/llm/keys", `{"group":"`+first+`"}`); status != http.StatusBadRequest {
		t.Errorf("got %d: %s", status, answer)
	}
	g.key(b, "new")
	g.key(b, "new", "--id", "other")
	g.showNothing(server)
	for _, want := range []string{"API key issued", "API key rotated", "API key disabled", "API key enabled", "API key revoked", `"key_id":"` + id + `"`} {
		if !strings.Contains(a.out.String()+b.out.String(), want) {
			t.Errorf("the log has no %s", want)
		}
	}
}

func TestKeysWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Persistent())
	g := newKeysGateways(t, redisStore(server.Addr(), ""))
	p := g.run(t.TempDir())
	patiently(t, "connected", func() bool { status, _ := g.ask(p, http.MethodGet, "/llm/keys", ""); return status == http.StatusOK })
	id, known := g.key(p, "new")
	g.becomes(p, known, http.StatusOK)

	server.Kill()
	g.becomes(p, apikey.New(), http.StatusServiceUnavailable)
	for range 5 {
		if got := g.status(p, known); got != http.StatusOK {
			t.Errorf("a known key is answered with %d", got)
		}
		if got := g.status(p, keyA); got != http.StatusOK {
			t.Errorf("a key of the configuration is answered with %d", got)
		}
	}
	if out, err := g.command(p, "revoke", id); err == nil || !strings.Contains(out, "HTTP 503") {
		t.Errorf("revoking: %v: %s", err, out)
	}

	server.Restart()
	g.becomes(p, apikey.New(), http.StatusUnauthorized)
	g.must(p, "revoke", id)
	g.becomes(p, known, http.StatusUnauthorized)
	g.showNothing(server)
}

func TestKeysInMemoryOutliveTheProcess(t *testing.T) {
	t.Parallel()
	g := newKeysGateways(t, "store memory")
	data := t.TempDir()
	p := g.run(data)
	_, kept := g.key(p, "new", "--application", "shop")
	id, revoked := g.key(p, "new")
	rotated, before := g.key(p, "new")
	_, after := g.key(p, "rotate", rotated, "--grace", "0s")
	g.must(p, "revoke", id)
	p.end(syscall.SIGKILL)
	g.all = nil

	p = g.run(data)
	for name, tc := range map[string]struct {
		key  string
		want int
	}{
		"kept": {kept, http.StatusOK}, "revoked": {revoked, http.StatusUnauthorized},
		"before the rotation": {before, http.StatusUnauthorized}, "after the rotation": {after, http.StatusOK},
	} {
		if got := g.status(p, tc.key); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
	g.showNothing(nil)
}

func TestKeysWithoutAStoreOfKeys(t *testing.T) {
	t.Parallel()
	p := newKeeper(t, nil).run(t)
	g := &keysGateways{t: t}
	if out, err := g.command(p, "new"); err == nil || !strings.Contains(out, "write keys_store into its block") {
		t.Errorf("got %v: %s", err, out)
	}
}

// A reload neither loses keys nor asks the store for all of them.
func TestKeysThroughAReload(t *testing.T) {
	up := newUpstream(t, nil)
	const site = `{
	llm {
		store memory {
			persist off
		}
	}
}
{site} {
	api_key_auth {
		keys_store
		%
	}
	reverse_proxy {upstream}
}`
	g := start(t, up, strings.Replace(site, "%", "", 1))
	k := &keysGateways{t: t}
	p := &process{t: t, addr: g.addr, admin: g.admin}
	id, key := k.key(p, "new")
	if got := k.status(p, key); got != http.StatusOK {
		t.Fatalf("got %d", got)
	}
	for _, more := range []string{"key_cache 1h", "optional"} {
		g.reload(up, strings.Replace(site, "%", more, 1))
		if a := g.call("POST", "/v1/chat/completions", key, `{"model":"m"}`); a.Status != http.StatusOK {
			t.Errorf("with %s: got %d", more, a.Status)
		}
	}
	k.must(p, "revoke", id)
	if got := k.status(p, key); got != http.StatusUnauthorized {
		t.Errorf("a revoked key is answered with %d", got)
	}
	// a config without a store of keys has none
	g.reload(up, "{site} {\n"+auth+"reverse_proxy {upstream}\n}")
	if out, err := k.command(p, "list"); err == nil || !strings.Contains(out, "write keys_store") {
		t.Errorf("got %v: %s", err, out)
	}
}
