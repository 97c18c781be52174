package tokenlimit_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

func TestSecretsAreShownNowhere(t *testing.T) {
	const secret = "sk-very-secret-0123456789"
	g := start(t, "", `token_limit secrets {
		key {header.Authorization} {header.X-Team}
		limit 1 requests per day
		reject 429 "refused by {http.llm.refusal.instance}: {http.llm.refusal.message}"
	}
	test_upstream`)
	headers := []string{"Authorization", "Bearer " + secret, "X-Team", "red"}
	want(t, g.chat("shop", headers...), 200)
	refused := g.chat("shop", headers...)
	want(t, refused, 429)
	want(t, g.chat("shop", "Authorization", "Bearer other", "X-Team", "red"), 200)

	accessLog.Lock()
	logged := accessLog.String()
	accessLog.Unlock()
	for name, text := range map[string]string{
		"the usage": string(admin(t, "/llm/usage?instance=secrets")), "the limits": string(admin(t, "/llm/limits")),
		"the refusal": refused.Body.String(), "the log": logged,
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds the secret: %s", name, text)
		}
		if name == "the usage" && (strings.Count(text, `"instance":"secrets"`) != 2 || !strings.Contains(text, "/red")) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestACallThatOutlivesItsConfigIsCharged(t *testing.T) {
	const block = "token_limit reloaded {\nconsumer_based\nlimit 100 tokens per day\nlimit 2 concurrent\nlimit 10 requests per day\n}\ntest_upstream"
	g := start(t, "", block)
	answer = func(w http.ResponseWriter, r *http.Request) error {
		again := strings.NewReplacer("limit 100 tokens", "limit 50 tokens").Replace(block)
		inner, err := load(t, ":0 {\nvars x-wso2-application-id {header.X-App}\n"+again+"\n}\n")
		if err != nil {
			t.Error(err)
			return err
		}
		if c := inner.counters("reloaded", "shop")["concurrent"]; c.Reserved != 1 {
			t.Errorf("the new config sees %+v", c)
		}
		g = inner
		return chat(40, 10)(w, r)
	}
	want(t, g.chat("shop"), 200)
	g.used("reloaded", "shop", "tokens per day", 50)
	g.used("reloaded", "shop", "concurrent", 0)
	g.used("reloaded", "shop", "requests per day", 1)
	want(t, g.chat("shop"), 429) // by the new limit, which finds what the old one had
}

func TestAReloadForgetsNothingButWhatIsRenamed(t *testing.T) {
	site := func(name, limit string) string {
		return ":0 {\ntoken_limit " + name + " {\nlimit " + limit + "\n}\ntest_upstream\n}\n"
	}
	for _, step := range []struct {
		name, limit string
		status      int
	}{
		{"kept", "2 requests per day", 200},
		{"kept", "2 requests per day", 200},
		{"kept", "2 requests per day", 429},
		{"kept", "3 requests per day", 200}, // raised: one is left
		{"kept", "3 requests per day", 429},
		{"kept", "1 requests per day", 429}, // lowered below what is used
		{"renamed", "1 requests per day", 200},
		{"kept", "4 requests per day", 200},
	} {
		g, err := load(t, site(step.name, step.limit))
		if err != nil {
			t.Fatal(err)
		}
		want(t, g.chat(""), step.status)
	}
}

func TestRoutesThatWouldNotCountAreRefused(t *testing.T) {
	const keys = "api_key_auth {\nkey a sha256:d044463b6a7678708e01561788c68427a73e3ed92652940783ca56df4689fe1e\n}\n"
	for _, tc := range []struct{ name, site, want string }{
		{"in the order of the directives", "respond ok\ntoken_limit {\nconsumer_based\nlimit 1 requests per day\n}\n" + keys, ""},
		{"a limiter behind the upstream", "route {\nreverse_proxy 127.0.0.1:9\ntoken_limit {\nlimit 1 requests per day\n}\n}", "token_limit stands behind reverse_proxy"},
		{"a limiter by consumer before the keys", "route {\ntoken_limit {\nconsumer_based\nlimit 1 requests per day\n}\n" + keys + "respond ok\n}", "token_limit stands before api_key_auth"},
		{"a limiter by key id before the keys", "route {\ntoken_limit {\nkey {http.auth.user.id}\nlimit 1 requests per day\n}\n" + keys + "respond ok\n}", "token_limit stands before api_key_auth"},
		{"two unnamed limiters for all", "token_limit {\nlimit 1 requests per day\n}\ntoken_limit {\nlimit 2 tokens per day\n}\nrespond ok", "give each a name"},
		{"two unnamed limiters by consumer", "token_limit {\nconsumer_based\nlimit 1 requests per day\n}\ntoken_limit {\nconsumer_based\nlimit 2 tokens per day\n}\nrespond ok", "give each a name"},
		{"an unknown placeholder", "token_limit {\nkey {team}\nlimit 1 requests per day\n}\nrespond ok", "the placeholder {team} is unknown"},
		{"a placeholder of a map", "map {host} {team} {\ndefault x\n}\ntoken_limit {\nkey {team}\nlimit 1 requests per day\n}\nrespond ok", ""},
		{"a pool with two rules", "token_limit /a {\nshare differs\nlimit 1 requests per day\n}\ntoken_limit /b {\nshare differs\nlimit 2 requests per day\n}\nrespond ok", "all instances of a pool need the same rules"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, ":0 {\n"+tc.site+"\n}\n")
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestValidatingCountsNothing(t *testing.T) {
	g := start(t, "", "token_limit validated {\nlimit 5 requests per day\n}\ntest_upstream")
	want(t, g.chat(""), 200)
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(":0 {\ntoken_limit validated {\nlimit 1 requests per day\n}\nrespond ok\n}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var c caddy.Config
	if err := caddy.StrictUnmarshalJSON(withoutListeners(t, adapted), &c); err != nil {
		t.Fatal(err)
	}
	if err := caddy.Validate(&c); err != nil {
		t.Fatal(err)
	}
	want(t, g.chat(""), 200)
	g.used("validated", "", "requests per day", 2)
	if limits := string(admin(t, "/llm/limits")); !strings.Contains(limits, `"limit":5`) {
		t.Errorf("the limits in force are %s", limits)
	}
}
