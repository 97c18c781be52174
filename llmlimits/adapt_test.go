package llmlimits_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/llmlimits/caddy-llm-limits" // the order of directives
	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
)

var update = flag.Bool("update", false, "write the JSON of testdata/adapt anew")

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// dollars is an amount of them.
var dollars = regexp.MustCompile(`\$\d`)

// separator stands between the Caddyfile and the JSON of a golden.
const separator = "\n----------\n"

func adapt(text string) ([]byte, error) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return config, err
}

func TestCaddyfilesAdaptToOrdinaryHandlers(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".caddyfiletest"), func(t *testing.T) {
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text, want, _ := strings.Cut(string(golden), separator)
			if formatted := caddyfile.Format([]byte(text + "\n")); string(formatted) != text+"\n" {
				t.Errorf("not formatted; caddy fmt makes it\n%s", formatted)
			}
			raw, err := adapt(text + "\n")
			if err != nil {
				t.Fatal(err)
			}
			var pretty bytes.Buffer
			if err := json.Indent(&pretty, raw, "", "\t"); err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(file, []byte(text+separator+pretty.String()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got := pretty.String() + "\n"; got != want {
				t.Errorf("adapted to\n%s\nwant\n%s", got, want)
			}

			// one for the block, whatever it limits in dollars, and those written by hand
			pricers := len(regexp.MustCompile(`(?m)^\tllm_cost`).FindAllString(text, -1))
			if dollars.MatchString(text) {
				pricers++
			}
			if n := strings.Count(pretty.String(), `"handler": "llm_cost"`); n != pricers {
				t.Errorf("%d llm_cost, want %d", n, pricers)
			}
			var config caddy.Config
			if err := json.Unmarshal(raw, &config); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&config); err != nil {
				t.Errorf("validating: %v", err)
			}
		})
	}
}

// handlers are those of a config, wherever they stand, by name of instance.
func handlers(t *testing.T, config []byte) map[string]string {
	t.Helper()
	var v any
	if err := json.Unmarshal(config, &v); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if name, ok := v["name"].(string); ok && v["handler"] != nil {
				text, err := json.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				found[name] = string(text)
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return found
}

// What is written in a block means the same as in a directive of its own.
func TestBlocksReadLinesAsTheDirectivesDo(t *testing.T) {
	for _, tc := range []struct{ name, line, tokens, cost string }{
		{"limits of all units", "limit 10 requests per minute burst 5\nlimit 1k tokens per rolling 1h\nlimit 3 output_tokens per 90s shadow\nlimit 4 concurrent", "=", ""},
		{"limits in dollars", "limit $0.10 per hour burst $1\nlimit $2 per rolling 24h shadow", "", "="},
		{"a mode", "limit 1k tokens per day\nlimit $1 per day\nmode strict", "limit 1k tokens per day\nmode strict", "limit $1 per day\nmode strict"},
		{"a zone", "timezone Europe/Berlin\nlimit 1k tokens per day\nlimit $1 per day", "timezone Europe/Berlin\nlimit 1k tokens per day", "timezone Europe/Berlin\nlimit $1 per day"},
		{"an answer", "limit 1k tokens per day\nreject 403 \"Ask {http.llm.refusal.instance}.\"\nerrors", "=", ""},
		{"a shadow", "limit $1 per day\nshadow\nheaders off\nunmetered allow", "", "="},
		{"fields, which tell nothing of dollars", "usage_fields meta.tokens\nlimit 1k tokens per day\nlimit $1 per day", "limit 1k tokens per day\nusage_fields meta.tokens", "limit $1 per day"},
	} {
		for _, side := range []string{"consumer", "backend"} {
			t.Run(tc.name+"/"+side, func(t *testing.T) {
				got, err := adapt(":80 {\nllm_limits {\n" + side + " {\n" + tc.line + "\n}\n}\n}\n")
				if err != nil {
					t.Fatal(err)
				}
				var b strings.Builder
				b.WriteString(":80 {\n")
				for _, hand := range [][3]string{{"token_limit", "tokens", tc.tokens}, {"cost_limit", "cost", tc.cost}} {
					if hand[2] == "" {
						continue
					}
					b.WriteString(hand[0] + " llm_limits." + side + "." + hand[1] + " {\n")
					if side == "consumer" {
						b.WriteString("consumer_based\n")
					}
					b.WriteString(strings.Replace(hand[2], "=", tc.line, 1) + "\n}\n")
				}
				b.WriteString("}\n")
				want, err := adapt(b.String())
				if err != nil {
					t.Fatal(err)
				}
				g, w := handlers(t, got), handlers(t, want)
				if len(g) != len(w) || len(g) == 0 {
					t.Fatalf("instances %v, want %v", g, w)
				}
				for name, text := range w {
					if g[name] != text {
						t.Errorf("%s is\n%s\nby hand it is\n%s", name, g[name], text)
					}
				}
			})
		}
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	const ok = "consumer {\nlimit 1k tokens per hour\n}\n"
	for _, tc := range []struct{ name, block, want string }{
		{"nothing", "llm_limits {\n}", "llm_limits needs a `consumer` or a `backend` block, at Caddyfile:2"},
		{"no limit", "llm_limits {\nconsumer {\nmode strict\n}\n}", "consumer needs at least one limit, such as `limit 10k tokens per hour` or `limit $10 per day`, at Caddyfile:3"},
		{"an empty block", "llm_limits {\nbackend {\n}\n}", "backend needs at least one limit"},
		{"another word", "llm_limits {\n" + ok + "frontend {\n}\n}", "unrecognized subdirective 'frontend', at Caddyfile:6"},
		{"another word in a side", "llm_limits {\nconsumer {\nlimit 1k tokens per hour\nspeed fast\n}\n}", "unrecognized subdirective 'speed', at Caddyfile:5"},
		{"another word in a resource", "llm_limits {\nresource /v1/* {\nlimit 1 requests per day\n}\n}", "unrecognized subdirective 'limit', at Caddyfile:4"},
		{"a side twice", "llm_limits {\n" + ok + ok + "}", "consumer already specified, at Caddyfile:6"},
		{"a name too many", "llm_limits a b {\n" + ok + "}", "wrong argument count"},
		{"a side with a name", "llm_limits {\nconsumer x {\nlimit 1k tokens per hour\n}\n}", "unexpected 'x' after consumer, at Caddyfile:3"},
		{"a name that others have", "llm_limits {\n" + ok + "}\nllm_limits {\n" + ok + "}", "two llm_limits are named 'llm_limits'; give each a name of its own, at Caddyfile:7"},
		{"a name of a limiter", "token_limit llm_limits.consumer.tokens {\nlimit 1 requests per day\n}\nllm_limits {\n" + ok + "}", "say `share llm_limits.consumer.tokens`, at Caddyfile:5"},
		{"no unit", "llm_limits {\nconsumer {\nlimit 10 per hour\n}\n}", "limit 10 has no unit: write `limit 10 tokens per hour`, or `limit $10 per hour` for dollars, at Caddyfile:4"},
		{"a unit beside dollars", "llm_limits {\nbackend {\nlimit $10 usd per day\n}\n}", "cost_limit counts dollars, so that no unit is said: write `limit $10 per day`, at Caddyfile:4"},
		{"no amount", "llm_limits {\nbackend {\nlimit 0 tokens per day\n}\n}", "at Caddyfile:4"},
		{"a limit twice", "llm_limits {\nbackend {\nlimit 1 tokens per day\nlimit 2 tokens per day\n}\n}", "a limit of tokens per day stands here twice, at Caddyfile:5"},
		{"a model that another block has", "llm_limits {\nconsumer {\nlimit $1 per day\nmodel gpt* {\nlimit 1 tokens per day\n}\nmodel gpt-4o {\nlimit $1 per day\n}\n}\n}", `model "gpt-4o" never counts here: it belongs to the block before that has "gpt*"; put the narrower block first, at Caddyfile:8`},
		{"consumer_based", "llm_limits {\nbackend {\nconsumer_based\nlimit 1 tokens per day\n}\n}", "consumer_based has no place here: `consumer` counts by application and `backend` all callers together, always, at Caddyfile:4"},
		{"a key", "llm_limits {\nconsumer {\nkey {header.X-Team}\nlimit 1 tokens per day\n}\n}", "key has no place here"},
		{"a pool", "llm_limits {\nconsumer {\nlimit 1 tokens per day\nshare x\n}\n}", "share has no place here: each instance of a block counts by itself; to count together write a token_limit or cost_limit, at Caddyfile:5"},
		{"fields for dollars alone", "llm_limits {\nbackend {\nusage_fields n\nlimit $1 per day\n}\n}", "usage_fields do not tell input from output, which have prices of their own, at Caddyfile:4"},
		{"a word twice", "llm_limits {\nbackend {\nmode strict\nmode reserve\nlimit $1 per day\n}\n}", "mode already specified, at Caddyfile:5"},
		{"a resource without a path", "llm_limits {\nresource {\n" + ok + "}\n}", "wrong argument count"},
		{"two paths", "llm_limits {\nresource /a /b {\n" + ok + "}\n}", "wrong argument count"},
		{"a resource without limits", "llm_limits {\nresource /a {\n}\n}", "resource /a needs a `consumer` or a `backend` block, at Caddyfile:3"},
		{"a resource that is all", "llm_limits {\nresource /* {\n" + ok + "}\n}", "resource /* is every path: its limits belong at the top level of the block, at Caddyfile:3"},
		{"a resource that is no path", "llm_limits {\nresource v1 {\n" + ok + "}\n}", "resource v1 is no path: it must begin with / or *"},
		{"a resource with a placeholder", "llm_limits {\nresource /{env.X} {\n" + ok + "}\n}", "a path with placeholders cannot be compared"},
		{"a resource that never matches", "llm_limits {\nresource /v[ {\n" + ok + "}\n}", "resource /v[: syntax error in pattern"},
		{"a resource twice", "llm_limits {\nresource /A {\n" + ok + "}\nresource /a {\n" + ok + "}\n}", "resource /a already specified, at Caddyfile:8"},
		{"resources that are equally specific", "llm_limits {\nresource /a/*/c {\n" + ok + "}\nresource /a/b/* {\n" + ok + "}\n}", "resources /a/*/c and /a/b/* are equally specific and have paths in common"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := adapt(":80 {\n" + tc.block + "\n}\n")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
