package tokenlimit_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/tokenlimit"
)

var update = flag.Bool("update", false, "write what is adapted into the golden files")

func TestUnmarshalCaddyfile(t *testing.T) {
	hour := []limit.Rule{{Amount: "10k", Unit: limit.Tokens, Window: "hour"}}
	for _, tc := range []struct {
		name, text string
		want       limit.Config
	}{
		{"the least", "token_limit {\nlimit 10k tokens per hour\n}", limit.Config{Limits: hour}},
		{"a name", "token_limit mine {\nlimit 10k tokens per hour\n}", limit.Config{Name: "mine", Limits: hour}},
		{"a quoted name", "token_limit \"mine\" {\nlimit 10k tokens per hour\n}", limit.Config{Name: "mine", Limits: hour}},
		{"by consumer", "token_limit {\nconsumer_based\nlimit 10k tokens per hour\n}", limit.Config{ConsumerBased: true, Limits: hour}},
		{"by keys", "token_limit {\nkey {http.auth.user.id} {http.vars.a}\nlimit 10k tokens per hour\n}", limit.Config{Key: []string{"{http.auth.user.id}", "{http.vars.a}"}, Limits: hour}},
		{"limits of all kinds", `token_limit {
			limit 60 requests per minute
			limit 1_000 input_tokens per 90s
			limit 2.5M output_tokens per rolling 1h
			limit 5k uncached_tokens per day burst 10k
			limit 7 tokens per month shadow
			limit 8 tokens per rolling 7d shadow
			limit 9 tokens per week burst 9k shadow
			limit 4 concurrent
		}`, limit.Config{Limits: []limit.Rule{
			{Amount: "60", Unit: limit.Requests, Window: "minute"},
			{Amount: "1_000", Unit: limit.InputTokens, Window: "90s"},
			{Amount: "2.5M", Unit: limit.OutputTokens, Window: "1h", Rolling: true},
			{Amount: "5k", Unit: limit.UncachedTokens, Window: "day", Burst: "10k"},
			{Amount: "7", Unit: limit.Tokens, Window: "month", Shadow: true},
			{Amount: "8", Unit: limit.Tokens, Window: "7d", Rolling: true, Shadow: true},
			{Amount: "9", Unit: limit.Tokens, Window: "week", Burst: "9k", Shadow: true},
			{Amount: "4", Unit: limit.Concurrent},
		}}},
		{"a shadow of concurrent calls", "token_limit {\nlimit 4 concurrent shadow\n}", limit.Config{Limits: []limit.Rule{{Amount: "4", Unit: limit.Concurrent, Shadow: true}}}},
		{"the other words", `token_limit {
			limit 10k tokens per hour
			share pool
			mode strict
			timezone Europe/Berlin
			usage_fields meta.in results.#.out
			unmetered allow
			headers off
			reject 403 "no more"
			errors
			shadow
		}`, limit.Config{
			Limits: hour, Share: "pool", Mode: limit.Strict, Timezone: "Europe/Berlin", Unmetered: "allow", Headers: "off",
			UsageFields: []string{"meta.in", "results.#.out"},
			Reject:      &limit.Reject{Status: 403, Message: "no more"}, Errors: true, Shadow: true,
		}},
		{"a status alone", "token_limit {\nlimit 10k tokens per hour\nreject 503\n}", limit.Config{Limits: hour, Reject: &limit.Reject{Status: 503}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h tokenlimit.Handler
			if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(tc.text)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(h.Config, tc.want) {
				t.Errorf("got  %+v\nwant %+v", h.Config, tc.want)
			}
		})
	}
}

func TestUnmarshalCaddyfileRefuses(t *testing.T) {
	const good = "limit 10k tokens per hour"
	for _, tc := range []struct {
		name string
		args string // of the directive
		line string // of the block, its second one
		want []string
	}{
		{"no limits", "", "", []string{"at least one limit", ":1"}},
		{"two names", "a b", good, []string{"argument", ":1"}},
		{"a name like a path", "/a/b", good, []string{`name "/a/b"`, "must not start with / or @", ":1"}},
		{"a name like a matcher", "@a", good, []string{`name "@a"`, "must not start with / or @", ":1"}},
		{"a name with braces", "a{b}", good, []string{"a{b}", "braces", ":1"}},
		{"an unknown word", "", "limits 5", []string{"unrecognized subdirective 'limits'", ":3"}},
		{"a word in the wrong case", "", "Limit 5 requests per hour", []string{"unrecognized subdirective 'Limit'"}},
		{"consumer_based with an argument", "", "consumer_based yes", []string{"argument", ":3"}},
		{"errors with an argument", "", "errors on", []string{"argument", ":3"}},
		{"shadow with an argument", "", "shadow on", []string{"argument", ":3"}},
		{"a key of nothing", "", "key", []string{"argument", ":3"}},
		{"a key that is no placeholder", "", "key X-Team", []string{`"X-Team"`, "placeholder", ":3"}},
		{"a key twice", "", "key {http.vars.a} {http.vars.a}", []string{`"{http.vars.a}"`, "twice", ":3"}},
		{"share of nothing", "", "share", []string{"argument", ":3"}},
		{"share of two", "", "share a b", []string{"argument", ":3"}},
		{"share of a path", "", "share /a", []string{`share "/a"`, ":3"}},
		{"mode of nothing", "", "mode", []string{"argument", ":3"}},
		{"an unknown mode", "", "mode lax", []string{`mode "lax"`, "charge_after, reserve, strict", ":3"}},
		{"an unknown timezone", "", "timezone Berlin", []string{`"Berlin"`, "IANA", ":3"}},
		{"the machine's timezone", "", "timezone Local", []string{"Local", ":3"}},
		{"an unknown word for unmetered", "", "unmetered no", []string{`unmetered "no"`, "deny, allow", ":3"}},
		{"an unknown word for headers", "", "headers yes", []string{`headers "yes"`, "on, off", ":3"}},
		{"usage_fields of nothing", "", "usage_fields", []string{"argument", ":3"}},
		{"usage_fields with a wildcard", "", "usage_fields usage.*", []string{`usage_fields: field "usage.*"`, "only letters", ":3"}},
		{"usage_fields with an index", "", "usage_fields a.0.n", []string{`field "a.0.n"`, "index 0", ":3"}},
		{"a usage field twice", "", "usage_fields a.n b a.n", []string{`field "a.n"`, "twice", ":3"}},
		{"reject of nothing", "", "reject", []string{"argument", ":3"}},
		{"reject of three", "", "reject 429 a b", []string{"argument", ":3"}},
		{"a reject status that is none", "", "reject soon", []string{"'soon'", "between 400 and 599", ":3"}},
		{"a reject status of success", "", "reject 200", []string{"'200'", "between 400 and 599", ":3"}},
		{"a limit of nothing", "", "limit", []string{"limit needs an amount, a unit and a window", ":3"}},
		{"a limit without a unit", "", "limit 5", []string{"limit needs an amount, a unit and a window", ":3"}},
		{"a limit without a window", "", "limit 5 tokens", []string{"limit 5 tokens needs a window", ":3"}},
		{"a limit without per", "", "limit 5 tokens each hour", []string{"limit 5 tokens needs a window", ":3"}},
		{"a limit per nothing", "", "limit 5 tokens per", []string{"needs a window", ":3"}},
		{"a limit per rolling", "", "limit 5 tokens per rolling", []string{"rolling needs a duration", ":3"}},
		{"an unknown unit", "", "limit 5 bananas per hour", []string{`unit "bananas"`, "requests, tokens", ":3"}},
		{"an unknown window", "", "limit 5 tokens per year", []string{`window "year"`, ":3"}},
		{"an amount in dollars", "", "limit $5 requests per hour", []string{`"$5"`, "cost_limit", ":3"}},
		{"an amount that is no number", "", "limit some tokens per hour", []string{`amount "some"`, ":3"}},
		{"an amount of zero", "", "limit 0 tokens per hour", []string{`amount "0"`, "greater than zero", ":3"}},
		{"a negative amount", "", "limit -1 tokens per hour", []string{`amount "-1"`, "greater than zero", ":3"}},
		{"a burst of nothing", "", "limit 5 tokens per hour burst", []string{"unexpected 'burst'", ":3"}},
		{"a burst that is no number", "", "limit 5 tokens per hour burst x", []string{"burst", `"x"`, ":3"}},
		{"a rolling burst", "", "limit 5 tokens per rolling 1h burst 5", []string{"either rolling or has a burst", ":3"}},
		{"words behind a limit", "", "limit 5 tokens per hour for all", []string{"unexpected 'for all'", ":3"}},
		{"words behind shadow", "", "limit 5 tokens per hour shadow burst 5", []string{"unexpected 'burst 5'", ":3"}},
		{"a window of concurrent calls", "", "limit 5 concurrent per hour", []string{"unexpected 'per hour'", ":3"}},
		{"a rule twice", "", good, []string{"tokens per hour", "twice", ":3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			first := good
			if tc.name == "no limits" || tc.args != "" {
				first = "errors"
			}
			d := caddyfile.NewTestDispenser("token_limit " + tc.args + " {\n" + first + "\n" + tc.line + "\n}")
			err := new(tokenlimit.Handler).UnmarshalCaddyfile(d)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestWordsStandOnce(t *testing.T) {
	for _, line := range []string{
		"consumer_based", "key {http.vars.a}", "share a", "mode strict", "timezone UTC", "usage_fields n", "unmetered deny",
		"headers on", "reject 429", "errors", "shadow",
	} {
		word, _, _ := strings.Cut(line, " ")
		err := new(tokenlimit.Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("token_limit {\nlimit 1 requests per hour\n" + line + "\n" + line + "\n}"))
		if err == nil || !strings.Contains(err.Error(), word+" already specified") {
			t.Errorf("%s: got %v", word, err)
		}
	}
}

func TestConsumerAndKeyExcludeEachOther(t *testing.T) {
	err := new(tokenlimit.Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser("token_limit {\nlimit 1 requests per hour\nconsumer_based\nkey {http.vars.a}\n}"))
	if err == nil || !strings.Contains(err.Error(), "consumer_based and key exclude each other") {
		t.Errorf("got %v", err)
	}
}

// golden is a Caddyfile and what becomes of it: JSON or part of an error.
type golden struct{ path, text, want string }

func goldens(t *testing.T) []golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	gs := make([]golden, len(paths))
	for i, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text, want, _ := strings.Cut(string(b), "----------\n")
		gs[i] = golden{path, text, strings.TrimSpace(want)}
	}
	return gs
}

func (g *golden) name() string { return strings.TrimSuffix(filepath.Base(g.path), ".caddyfiletest") }

func TestAdapt(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name(), func(t *testing.T) {
			got, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(g.text), nil)
			if err != nil {
				if strings.HasPrefix(g.want, "{") || g.want == "" || !strings.Contains(err.Error(), g.want) {
					t.Errorf("got the error %q, want %s", err, g.want)
				}
				return
			}
			for _, w := range warnings {
				t.Errorf("warning: %s", w)
			}
			var b bytes.Buffer
			if err := json.Indent(&b, got, "", "\t"); err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(g.path, []byte(g.text+"----------\n"+b.String()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if b.String() != g.want {
				t.Errorf("got\n%s\nwant\n%s", &b, g.want)
			}
		})
	}
}

// TestTheJSONIsATwin holds the JSON of each golden file to be all that there is to
// say: read strictly it loses nothing, and it runs with the rules of its Caddyfile.
func TestTheJSONIsATwin(t *testing.T) {
	for _, g := range goldens(t) {
		if !strings.HasPrefix(g.want, "{") {
			continue
		}
		t.Run(g.name(), func(t *testing.T) {
			var config any
			if err := json.Unmarshal([]byte(g.want), &config); err != nil {
				t.Fatal(err)
			}
			handlers := handlersOf(config)
			for _, raw := range handlers {
				delete(raw, "handler") // Caddy takes it out before it reads the rest
				before, err := json.Marshal(raw)
				if err != nil {
					t.Fatal(err)
				}
				var h tokenlimit.Handler
				if err := caddy.StrictUnmarshalJSON(before, &h); err != nil {
					t.Fatalf("%s: %v", before, err)
				}
				var again map[string]any
				if err := json.Unmarshal(caddyconfig.JSON(&h, nil), &again); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(raw, again) {
					t.Errorf("got  %v\nwant %v", again, raw)
				}
			}

			if _, err := load(t, g.text); err != nil {
				t.Fatal(err)
			}
			byCaddyfile := string(admin(t, "/llm/limits"))
			if _, err := loadJSON(t, []byte(g.want)); err != nil {
				t.Fatal(err)
			}
			if byJSON := string(admin(t, "/llm/limits")); byJSON != byCaddyfile || !strings.Contains(byJSON, `"instance"`) {
				t.Errorf("by JSON      %s\nby Caddyfile %s", byJSON, byCaddyfile)
			}
		})
	}
}

// handlersOf finds all token_limit handlers of a config.
func handlersOf(v any) (found []map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		if v["handler"] == "token_limit" {
			return []map[string]any{v}
		}
		for _, child := range v {
			found = append(found, handlersOf(child)...)
		}
	case []any:
		for _, child := range v {
			found = append(found, handlersOf(child)...)
		}
	}
	return found
}

func TestUnknownMembersOfTheJSONAreRefused(t *testing.T) {
	for _, raw := range []string{
		`{"limit":[]}`,
		`{"limits":[{"amount":"1","unit":"requests","window":"hour","per":"day"}]}`,
		`{"limits":[{"amount":1,"unit":"requests","window":"hour"}]}`, // a number would lose digits
		`{"reject":{"code":429}}`,
	} {
		if err := caddy.StrictUnmarshalJSON([]byte(raw), new(tokenlimit.Handler)); err == nil {
			t.Errorf("%s is accepted", raw)
		}
	}
}

func TestErrorsOfTheJSONNameTheInstance(t *testing.T) {
	for _, tc := range []struct{ name, handler, want string }{
		{"a named one", `{"handler":"token_limit","name":"mine","limits":[{"amount":"0","unit":"tokens","window":"day"}]}`, `token_limit mine: limits[0]: amount "0" must be greater than zero`},
		{"an unnamed one", `{"handler":"token_limit","mode":"lax","limits":[{"amount":"1","unit":"tokens","window":"day"}]}`, `token_limit: mode "lax"`},
		{"one without limits", `{"handler":"token_limit","name":"mine"}`, `token_limit mine: needs at least one limit`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadJSON(t, []byte(`{"apps":{"http":{"servers":{"s":{"routes":[{"handle":[`+tc.handler+`]}]}}}}}`))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzUnmarshalCaddyfile looks for a panic, or a config that is read and then refused.
func FuzzUnmarshalCaddyfile(f *testing.F) {
	f.Add("limit 10k tokens per hour")
	f.Add("limit 4 concurrent shadow\nmode strict\nreject 403 \"x\"")
	f.Add("key {http.vars.a}\nlimit 1 requests per rolling 1h")
	f.Add("limit 1 tokens per day burst 5\ntimezone Europe/Berlin")
	f.Add("model a* b {\nlimit 5 images per day\nper_model\ntype x\n}\nunlisted deny")
	f.Add("group g {\nlimit 5 audio_seconds per day\n}\ngroups {\ng a\n}\ndefault_group g\ngroup_key {http.vars.a}")
	f.Fuzz(func(t *testing.T, block string) {
		d := caddyfile.NewTestDispenser("token_limit {\n" + block + "\n}")
		var h tokenlimit.Handler
		if err := h.UnmarshalCaddyfile(d); err != nil {
			return
		}
		if len(h.Limits) == 0 && len(h.Models) == 0 && len(h.Groups) == 0 {
			t.Errorf("%q is read as no limits", block)
		}
		for _, r := range h.Limits {
			if _, err := limit.ParseAmount(r.Amount); err != nil {
				t.Errorf("%q: %v", block, err)
			}
		}
	})
}
