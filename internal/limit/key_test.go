package limit

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// consumerOf is whose counter a request counts in.
func consumerOf(t testing.TB, c Config, r *http.Request) string {
	t.Helper()
	c.Limits = []Rule{{Amount: "1", Unit: Requests, Window: "hour"}}
	got, err := newTestLimiter(t, c).consumer(r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestConsumerIsTheApplication(t *testing.T) {
	long := strings.Repeat("a", maxKey+1)
	for _, tc := range []struct {
		name        string
		application any
		want        string
	}{
		{"its name", "shop", "shop"},
		{"none", nil, "default"},
		{"an empty one", "", "default"},
		{"one that is no string", 7, "default"},
		{"characters of other keys", "a/b%2F{env.HOME}", "a/b%2F{env.HOME}"},
		{"a long one", long, hash(long)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRequest("GET", "/", "")
			if tc.application != nil {
				caddyhttp.SetVar(r.Context(), meter.VarApplication, tc.application)
			}
			if got := consumerOf(t, Config{ConsumerBased: true}, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSharedCountersHaveNoConsumer(t *testing.T) {
	r := newRequest("GET", "/", "")
	caddyhttp.SetVar(r.Context(), meter.VarApplication, "shop")
	if got := consumerOf(t, Config{}, r); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestKeysOfPlaceholders(t *testing.T) {
	long := strings.Repeat("x", maxKey+1)
	for _, tc := range []struct {
		name    string
		key     []string
		headers []string
		want    string
	}{
		{"one value", []string{"{http.request.header.X-Team}"}, []string{"X-Team", "red"}, "red"},
		{"no value", []string{"{http.request.header.X-Team}"}, nil, "default"},
		{"an unknown placeholder", []string{"{nobody.knows}"}, nil, "default"},
		{"two values", []string{"{http.request.header.X-Team}", "{http.request.header.X-User}"}, []string{"X-Team", "red", "X-User", "ann"}, "red/ann"},
		{"two values, one with a slash", []string{"{http.request.header.X-Team}", "{http.request.header.X-User}"}, []string{"X-Team", "red/ann", "X-User", ""}, "red%2Fann/"},
		{"two values, one escaped", []string{"{http.request.header.X-Team}", "{http.request.header.X-User}"}, []string{"X-Team", "red%2Fann"}, "red%252Fann/"},
		{"two values, the first missing", []string{"{http.request.header.X-Team}", "{http.request.header.X-User}"}, []string{"X-User", "ann"}, "/ann"},
		{"two values, both missing", []string{"{http.request.header.X-Team}", "{http.request.header.X-User}"}, nil, "default"},
		{"a long value", []string{"{http.request.header.X-Team}"}, []string{"X-Team", long}, hash(long)},
		{"two long values", []string{"{http.request.header.X-Team}", "{http.request.header.X-User}"}, []string{"X-Team", long[:100], "X-User", long[:100]}, hash(long[:100] + "/" + long[:100])},
		{"what looks like a hash", []string{"{http.request.header.X-Team}"}, []string{"X-Team", hash(long)}, hash(hash(long))},
		{"a secret", []string{"{http.request.header.Authorization}"}, []string{"Authorization", "Bearer sk-1"}, hash("Bearer sk-1")},
		{"a secret in another case", []string{"{http.request.header.x-API-key}"}, []string{"X-Api-Key", "sk-1"}, hash("sk-1")},
		{"a missing secret", []string{"{http.request.header.Authorization}"}, nil, "default"},
		{"a cookie", []string{"{http.request.cookie.session}"}, []string{"Cookie", "session=s3"}, hash("s3")},
		{"a secret beside a value", []string{"{http.request.header.X-Team}", "{http.request.header.Api-Key}"}, []string{"X-Team", "red", "Api-Key", "sk-1"}, "red/" + hash("sk-1")},
		{"the whole URI", []string{"{http.request.uri}"}, nil, hash("/v1?key=sk-1")},
		{"the query", []string{"{http.request.uri.query}"}, nil, hash("key=sk-1")},
		{"a key in the query", []string{"{http.request.uri.query.key}"}, nil, hash("sk-1")},
		{"the path", []string{"{http.request.uri.path}"}, nil, "/v1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRequest("GET", "/v1?key=sk-1", "", tc.headers...)
			if got := consumerOf(t, Config{Key: tc.key}, r); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhatAClientSendsIsNoTemplate(t *testing.T) {
	if os.Getenv("HOME") == "" {
		t.Setenv("HOME", "/home/somebody")
	}
	for _, key := range [][]string{{"{http.request.header.X-Team}"}, {"{http.request.header.X-Team}", "{http.vars.b}"}} {
		r := newRequest("GET", "/", "", "X-Team", "{env.HOME}")
		got := consumerOf(t, Config{Key: key}, r)
		if !strings.Contains(got, "env.HOME") || strings.Contains(got, os.Getenv("HOME")) {
			t.Errorf("key %q: the header {env.HOME} became %q", key, got)
		}
	}
}

func TestKeysNeedARequestOfCaddys(t *testing.T) {
	l := newTestLimiter(t, Config{Key: []string{"{http.vars.a}"}, Limits: []Rule{{Amount: "1", Unit: Requests, Window: "hour"}}})
	r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.consumer(r); err == nil {
		t.Errorf("got %q and no error", got)
	}
}

func TestWhoNamesTheConsumers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		config  Config
		known   bool
		role    llmapp.Role
		unknown []string
	}{
		{"nobody", Config{}, true, llmapp.RoleLimiter, nil},
		{"the operator, by applications", Config{ConsumerBased: true}, true, llmapp.RoleConsumerLimiter, nil},
		{"the operator, by keys", Config{Key: []string{"{http.auth.user.id}"}}, true, llmapp.RoleConsumerLimiter, nil},
		{"the operator, by groups", Config{Key: []string{"{http.vars.llm_group}"}}, true, llmapp.RoleConsumerLimiter, nil},
		{"a variable, which may hold what a client sent", Config{Key: []string{"{http.vars.tier}"}}, false, llmapp.RoleLimiter, nil},
		{"the client, by a header", Config{Key: []string{"{http.request.header.X-Team}"}}, false, llmapp.RoleLimiter, nil},
		{"the client, beside the operator", Config{Key: []string{"{http.auth.user.id}", "{http.request.remote.host}"}}, false, llmapp.RoleConsumerLimiter, nil},
		{"a map", Config{Key: []string{"{tier}"}}, false, llmapp.RoleLimiter, []string{"tier"}},
		{"a misspelt namespace", Config{Key: []string{"{http.requests.host}", "{HTTP.vars.a}"}}, false, llmapp.RoleLimiter, []string{"http.requests.host", "HTTP.vars.a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.config.Limits = []Rule{{Amount: "1", Unit: Requests, Window: "hour"}}
			l := newTestLimiter(t, tc.config)
			if l.known != tc.known || l.Role() != tc.role {
				t.Errorf("got known %t and role %q, want %t and %q", l.known, l.Role(), tc.known, tc.role)
			}
			if got := l.UnknownPlaceholders(); !slices.Equal(got, tc.unknown) {
				t.Errorf("got the unknown placeholders %q, want %q", got, tc.unknown)
			}
		})
	}
}

// FuzzKeys looks for two callers that count in one counter, or bytes of a client's
// that are not kept as they are.
func FuzzKeys(f *testing.F) {
	f.Add("a", "b", "a/b", "")
	f.Add("", "a", "a", "")
	f.Add("%2F", "", "/", "")
	f.Add("default", "", "", "default")
	f.Add("{env.HOME}", "{", "}", "sha256:")
	f.Add(strings.Repeat("a", 200), "b", strings.Repeat("a", 199), "ab")
	c := Config{Key: []string{"{http.vars.a}", "{http.vars.b}"}, Limits: []Rule{{Amount: "1", Unit: Requests, Window: "hour"}}}
	one := Config{Key: []string{"{http.vars.a}"}, Limits: c.Limits}
	f.Fuzz(func(t *testing.T, a1, b1, a2, b2 string) {
		key := func(c Config, a, b string) string {
			r := newRequest("GET", "/", "")
			caddyhttp.SetVar(r.Context(), "a", a)
			caddyhttp.SetVar(r.Context(), "b", b)
			got, err := newTestLimiter(t, c).consumer(r)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > maxKey {
				t.Errorf("a key of %d bytes: %q", len(got), got)
			}
			return got
		}
		if k1, k2 := key(c, a1, b1), key(c, a2, b2); (k1 == k2) != (a1 == a2 && b1 == b2) {
			t.Errorf("%q, %q and %q, %q have the keys %q and %q", a1, b1, a2, b2, k1, k2)
		}
		// nobody but those without a value can count as default by leaving it out
		k1, k2 := key(one, a1, ""), key(one, a2, "")
		same := a1 == a2 || (a1 == "" || a1 == meter.DefaultConsumer) && (a2 == "" || a2 == meter.DefaultConsumer)
		if (k1 == k2) != same {
			t.Errorf("%q and %q have the keys %q and %q", a1, a2, k1, k2)
		}
	})
}

func BenchmarkConsumer(b *testing.B) {
	for _, bc := range []struct {
		name   string
		config Config
	}{
		{"application", Config{ConsumerBased: true}},
		{"header", Config{Key: []string{"{http.request.header.X-Team}"}}},
		{"two", Config{Key: []string{"{http.request.header.X-Team}", "{http.vars.tier}"}}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			bc.config.Limits = []Rule{{Amount: "1", Unit: Requests, Window: "hour"}}
			l := newTestLimiter(b, bc.config)
			r := newRequest("GET", "/", "", "X-Team", "red")
			caddyhttp.SetVar(r.Context(), meter.VarApplication, "shop")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.consumer(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
