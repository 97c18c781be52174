package llmapp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
	"github.com/llmlimits/caddy-llm-limits/store"
)

func TestRedisCaddyfile(t *testing.T) {
	for _, tc := range []struct{ name, input, want string }{
		{"nothing", "redis", `{}`},
		{
			"a server", "redis {\n address redis.internal:6380\n username gw\n password {env.P}\n db 3\n prefix fleet:\n}",
			`{"addresses":["redis.internal:6380"],"username":"gw","password":"{env.P}","db":3,"prefix":"fleet:"}`,
		},
		{"a cluster", "redis {\n address a b\n address c\n timeout 1s\n cluster\n}", `{"addresses":["a","b","c"],"cluster":true,"timeout":1000000000}`},
		{
			"sentinels", "redis {\n sentinel_password x\n sentinel main\n address a b\n}",
			`{"addresses":["a","b"],"sentinel":"main","sentinel_password":"x"}`,
		},
		{"an outage", "redis {\n on_outage deny\n replicas 3\n persist off\n}", `{"on_outage":"deny","replicas":3,"persist":"off"}`},
		{"tls", "redis {\n tls\n}", `{"tls":{}}`},
		{
			"tls with files", "redis {\n tls {\n ca ca.pem\n cert c.pem\n key k.pem\n server_name r\n }\n db 1\n}",
			`{"db":1,"tls":{"ca":"ca.pem","cert":"c.pem","key":"k.pem","server_name":"r"}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := new(Redis)
			if err := r.UnmarshalCaddyfile(caddyfile.NewTestDispenser(tc.input)); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			var a, b any
			if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(tc.want), &b) != nil || fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRedisCaddyfileErrors(t *testing.T) {
	for _, tc := range []struct{ name, lines, want string }{
		{"another word", "host x", "unrecognized subdirective 'host'"},
		{"no address", "address", "wrong argument count"},
		{"an argument too many", "password a b", "wrong argument count"},
		{"an empty prefix", `prefix ""`, "prefix must not be empty"},
		{"twice", "db 1\ndb 2", "db already specified"},
		{"a word for a number", "db first", "db 'first' is not a whole number"},
		{"a negative number", "db -1", "db '-1' is not a whole number"},
		{"no replicas", "replicas 0", "replicas '0' is not a whole number greater than zero"},
		{"no time", "timeout 0s", "timeout '0s' is not a duration"},
		{"a long time", "timeout 1h", "timeout 1h0m0s is not from 1ms to 1m"},
		{"another policy", "on_outage pray", `on_outage "pray" is none of local, allow, deny`},
		{"two kinds", "cluster\nsentinel main", "cluster and sentinel exclude each other"},
		{"a database in a cluster", "cluster\ndb 1", "db 1: a cluster has only database 0"},
		{"addresses of nothing", "address a b", "several addresses are those of a cluster or of sentinels"},
		{"a password for no sentinel", "sentinel_password x", "need `sentinel <master>`"},
		{"another word of tls", "tls {\nverify off\n}", "unrecognized subdirective 'verify'"},
		{"twice in tls", "tls {\nca a\nca b\n}", "ca already specified"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := new(Redis).UnmarshalCaddyfile(caddyfile.NewTestDispenser("redis {\n" + tc.lines + "\n}"))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Testfile:") {
				t.Errorf("got %v, want %q and a line", err, tc.want)
			}
		})
	}
}

func provision(t *testing.T, r *Redis) error {
	t.Helper()
	if r.Persist == "" {
		r.Persist = "off"
	}
	return r.Provision(caddy.Context{Context: context.Background()})
}

func TestRedisProvision(t *testing.T) {
	t.Setenv("LLM_TEST_PASSWORD", "hunter2")
	r := &Redis{Addresses: []string{"cache"}, Password: "{env.LLM_TEST_PASSWORD}"}
	if err := provision(t, r); err != nil {
		t.Fatal(err)
	}
	if r.at.Password != "hunter2" || r.at.Addresses[0] != "cache:6379" || r.at.Prefix != "llm:" || r.at.Timeout != 250*time.Millisecond {
		t.Errorf("provisioned %+v", r.at)
	}
	other := &Redis{Addresses: []string{"cache:6379"}, Password: "hunter3"}
	same := &Redis{Addresses: []string{"cache:6379"}, Password: "hunter2", OnOutage: "deny", Replicas: 4}
	for _, o := range []*Redis{other, same} {
		if err := provision(t, o); err != nil {
			t.Fatal(err)
		}
	}
	if r.Key() == other.Key() || r.Key() != same.Key() || strings.Contains(r.Key(), "hunter") {
		t.Errorf("keys %q, %q, %q", r.Key(), other.Key(), same.Key())
	}

	for _, tc := range []struct {
		name string
		r    Redis
		want string
	}{
		{"an unknown placeholder", Redis{Addresses: []string{"{nope}"}}, `address "{nope}"`},
		{"an unset variable", Redis{Password: "top{env.LLM_TEST_UNSET}secret"}, "password: a placeholder in it is unknown or empty"},
		{"a URL", Redis{Addresses: []string{"redis://u:topsecret@h:1"}}, "scheme, user and password have no place in it"},
		{"a port that is none", Redis{Addresses: []string{"h:99999"}}, `address "h:99999" is not host:port`},
		{"no host", Redis{Addresses: []string{":6379"}}, `address ":6379" is not host:port`},
		{"no file", Redis{TLS: &RedisTLS{CA: "/nonexistent/ca.pem"}}, "tls: reading ca"},
		{"half a pair", Redis{TLS: &RedisTLS{Cert: "c.pem"}}, "tls: cert and key go together"},
		{"another policy", Redis{OnOutage: "x"}, "on_outage"},
		{"negative replicas", Redis{Replicas: -1}, "replicas -1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := provision(t, &tc.r)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// redisConfig is a config that counts in the Redis at an address.
func redisConfig(t testing.TB, addr, more string) []byte {
	return config(t, "", "", fmt.Sprintf(`,"llm":{"store":{"type":"redis","addresses":[%q],"prefix":"test:"%s}}`, addr, more))
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// reserveOne is a call that holds one token of the consumer's day.
func reserveOne(t testing.TB, a *App) *store.Ticket {
	t.Helper()
	rule := testRules()[0].Store
	r := store.Reservation{
		Entity: store.Entity{Instance: "apps", Consumer: "team-a"}, Known: true, Lease: time.Minute,
		Takes: []store.Take{{Rule: rule, Limit: 1000, Need: 1, Hold: 1}},
	}
	k, err := a.Counters().Reserve(t.Context(), &r, make([]store.Result, 1))
	if err != nil || k == nil {
		t.Fatalf("got %v, %v, want a ticket", k, err)
	}
	return k
}

func usedToday(t testing.TB, a *App) int64 {
	t.Helper()
	var results [1]store.Result
	rule := testRules()[0].Store
	if err := a.Counters().Read(t.Context(), store.Entity{Instance: "apps", Consumer: "team-a"}, []*store.Rule{rule}, results[:]); err != nil {
		t.Fatal(err)
	}
	return results[0].Used
}

func TestRedisReloads(t *testing.T) {
	server := redistest.Start(t, redistest.Persistent(), redistest.Config("maxmemory-policy", "allkeys-lru"))
	persist, err := json.Marshal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := `,"persist":` + string(persist)

	a := mustRun(t, redisConfig(t, server.Addr(), dir))
	eventually(t, "a warning of eviction", func() bool { return strings.Contains(testLog.String(), "noeviction") })
	if a.Keys() == nil {
		t.Error("there is no store of keys")
	}
	eventually(t, "an error that keys may be evicted", func() bool { return strings.Contains(testLog.String(), "redis may drop API keys") })
	a.Counters().Settle(reserveOne(t, a), []int64{1})
	server.Kill()
	a.Counters().Settle(reserveOne(t, a), []int64{10}) // counted here
	long := reserveOne(t, a)

	b := mustRun(t, redisConfig(t, server.Addr(), dir+`,"on_outage":"allow","replicas":2`))
	if a.Counters() != b.Counters() {
		t.Error("another policy is another store")
	}
	c := mustRun(t, redisConfig(t, server.Addr(), dir+`,"timeout":"500ms"`))
	if c.Counters() == b.Counters() {
		t.Error("another timeout is the same store")
	}
	a.Counters().Settle(long, []int64{100}) // the old store is used yet
	server.Restart()
	old := a.Counters().(*shares)
	eventually(t, "the old store to end", func() bool {
		select {
		case <-old.gone:
			return true
		default:
			return false
		}
	})
	eventually(t, "all to be handed over", func() bool {
		s := c.Counters().(*shares).Status()
		return !s.Open && s.Pending == 0 && s.JournalError == ""
	})
	eventually(t, "the sum", func() bool { return usedToday(t, c) == 111 })
}

func TestRedisNeedNotBeThere(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	a := mustRun(t, redisConfig(t, server.Addr(), `,"persist":"off"`))
	a.Counters().Settle(reserveOne(t, a), []int64{7})
	server.Restart()
	eventually(t, "the sum", func() bool {
		s := a.Counters().(*shares).Status()
		return !s.Open && s.Pending == 0 && usedToday(t, a) == 7
	})
}
