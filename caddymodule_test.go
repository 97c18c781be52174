package llmlimits

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

// adapt turns a Caddyfile into JSON, and fails on what `caddy fmt` or an adapter
// would complain about.
func adapt(t *testing.T, text string) []byte {
	t.Helper()
	if formatted := caddyfile.Format([]byte(text)); string(formatted) != text {
		t.Errorf("not formatted; caddy fmt makes it\n%s", formatted)
	}
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatalf("adapting: %v", err)
	}
	for _, w := range warnings {
		t.Errorf("warning of the adapter: %s", w)
	}
	return config
}

func TestCaddyfilesOfTheDocumentationLoad(t *testing.T) {
	example, err := os.ReadFile("Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	pasted := regexp.MustCompile("(?s)```caddyfile\n(\\{.*?\n)```").FindSubmatch(readme)
	if pasted == nil {
		t.Fatal("README.md has no Caddyfile")
	}
	// the switch to a real provider is in comments: what it leads to must load, too
	provider := regexp.MustCompile(`(?m)^(\t+)# ((\t*)(reverse_proxy https|header_up|\}$))`).ReplaceAllString(string(example), "$1$2")

	for _, tc := range []struct{ name, text string }{
		{"example", string(example)},
		{"example with a real provider", strings.Replace(provider, "\treverse_proxy 127.0.0.1:9080\n\n", "", 1)},
		{"readme", string(pasted[1])},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var config caddy.Config
			if err := json.Unmarshal(adapt(t, tc.text), &config); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&config); err != nil {
				t.Errorf("validating: %v", err)
			}
		})
	}
}

func TestHandlersOfTheDocumentationLoad(t *testing.T) {
	prices := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(prices, []byte(`{"m":{"litellm_provider":"openai","input_cost_per_token":1e-6}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	local := regexp.MustCompile(`"/etc/caddy/prices.json"(,\s*"https://[^"]*")?`) // no test asks the network
	handlers := regexp.MustCompile("(?s)```json\n(\\{[^`]*?\"handler\": \"(cost_limit|llm_cost|llm_retry)\".*?)```")
	found := map[string]bool{}
	for name, page := range pages(t) {
		if name != "README.md" && name != filepath.Join("docs", "json.md") {
			continue
		}
		for _, m := range handlers.FindAllSubmatch(page, -1) {
			found[string(m[2])] = true
			handler := local.ReplaceAllString(string(m[1]), strconv.Quote(prices))
			text := `{"admin":{"disabled":true},"apps":{"http":{"servers":{"s":{"listen":["127.0.0.1:0"],"routes":[{"handle":[` + handler + `]}]}}}}}`
			var config caddy.Config
			if err := json.Unmarshal(caddy.RemoveMetaFields([]byte(text)), &config); err != nil {
				t.Fatalf("%s: %v in %s", name, err, handler)
			}
			if err := caddy.Validate(&config); err != nil {
				t.Errorf("%s: %v: %s", name, err, handler)
			}
		}
	}
	if len(found) != 3 {
		t.Errorf("the documentation has of three handlers %v", found)
	}
}

func TestDirectivesHaveTheirPlace(t *testing.T) {
	// the other way round than they run
	config := adapt(t, `:0 {
	respond "ok"
	handle /v1/* {
		respond "v1"
	}
	llm_retry
	cost_limit {
		limit $1 per day
	}
	token_limit {
		limit 1 requests per minute
	}
	llm_cost
	llm_usage
	llm_limits {
		consumer {
			limit $1 per day
		}
	}
	api_key_auth {
		key a sha256:d044463b6a7678708e01561788c68427a73e3ed92652940783ca56df4689fe1e
	}
	encode gzip
}
`)
	var got []string
	for _, m := range regexp.MustCompile(`"handler":"(\w+)"`).FindAllSubmatch(config, -1) {
		got = append(got, string(m[1]))
	}
	// the second llm_cost and cost_limit are those of llm_limits
	order := []string{"encode", "api_key_auth", "llm_usage", "llm_cost", "token_limit", "cost_limit", "llm_cost", "cost_limit", "llm_retry", "subroute", "static_response"}
	got = slices.DeleteFunc(got, func(name string) bool { return !slices.Contains(order, name) })
	if i := slices.Index(got, "encode"); i < 0 || i+10 > len(got) || !slices.Equal(got[i:i+10], order[:10]) {
		t.Errorf("handlers run in the order %q, want %q", got, order)
	}
}
