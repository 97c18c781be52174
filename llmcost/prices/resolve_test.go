package prices

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestModelsResolveToTheKeysThatPriceThem(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "models.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Provider, Model, How string
		Aliases              map[string]string
		Want                 string `json:"expect_key"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	tables := map[string]*Table{"part": someLiteLLM(t)}
	if _, err := os.Stat(liteLLMFull); err == nil {
		tables["full"] = parseTable(t, liteLLMFull)
	}
	for name, table := range tables {
		for _, c := range cases {
			t.Run(name+"/"+c.Provider+"/"+c.Model, func(t *testing.T) {
				b := mustBook(t, table, Options{Aliases: c.Aliases})
				got := b.Resolve(c.Provider, "", c.Model, noon)
				if got.Key != c.Want || (got.Row == nil) != (c.Want == "") {
					t.Errorf("got %q (%s), want %q", got.Key, got.Why, c.Want)
				}
				if want := strings.HasSuffix(c.How, "approx") || c.How == "variant"; got.Approx != want {
					t.Errorf("approximate: %v (%s), want %v", got.Approx, got.Why, want)
				}
			})
		}
	}
}

func TestResolutionOrder(t *testing.T) {
	table := NewTable(
		time.Time{}, []*Row{
			row(t, "gpt-a", `{"litellm_provider":"openai","input_cost_per_token":1e-6,"output_cost_per_token":2e-6}`),
			row(t, "gpt-b", `{"litellm_provider":"openai","input_cost_per_token":3e-6,"output_cost_per_token":4e-6}`),
			row(t, "gpt-bare", `{"litellm_provider":"openai","mode":"chat"}`),
			row(t, "claude-x", `{"litellm_provider":"anthropic","input_cost_per_token":5e-6}`),
			row(t, "openrouter/v/m", `{"litellm_provider":"openrouter","input_cost_per_token":5e-6}`),
			row(t, "azure/gpt-a", `{"litellm_provider":"azure","input_cost_per_token":9e-6}`),
			row(t, "vertex_ai/claude-x@20260101", `{"litellm_provider":"vertex_ai-anthropic_models","input_cost_per_token":5e-6}`),
			row(t, "anthropic.claude-opus-5", `{"litellm_provider":"bedrock_converse","input_cost_per_token":5e-6}`),
			row(t, "anthropic.claude-3-5-sonnet", `{"litellm_provider":"bedrock","input_cost_per_token":5e-6}`),
		},
	)
	ownB, err := NewOwn("gpt-b")
	if err != nil {
		t.Fatal(err)
	}
	if err := ownB.Set("input", "7"); err != nil {
		t.Fatal(err)
	}
	options := Options{Aliases: map[string]string{"My-Prod": "gpt-a", "other": "azure/gpt-a"}, Own: []*Own{ownB}}
	tests := []struct {
		name, provider, served, requested string
		key                               string
		approx, own                       bool
		scale                             Ratio
	}{
		{name: "the served model before the requested", provider: "openai", served: "gpt-a", requested: "gpt-b", key: "gpt-a"},
		{name: "the requested model if the served is unknown", provider: "openai", served: "gpt-z", requested: "gpt-a", key: "gpt-a"},
		{name: "a served model without rates is the answer", provider: "openai", served: "gpt-bare", requested: "gpt-a", key: "gpt-bare"},
		{name: "no other provider's row", provider: "openai", requested: "claude-x"},
		{name: "no part of a name", provider: "openai", requested: "gpt-a-mini"},
		{name: "no -latest", provider: "openai", requested: "gpt-a-latest"},
		{name: "no four digits", provider: "openai", requested: "gpt-a-2508"},
		{name: "one date", provider: "openai", requested: "gpt-a-2026-01-31", key: "gpt-a"},
		{name: "not two", provider: "openai", requested: "gpt-a-2026-01-31-2026-01-31"},
		{name: "a compact date", provider: "openai", requested: "gpt-a-20260131", key: "gpt-a"},
		{name: "no date that is none", provider: "openai", requested: "gpt-a-20261331"},
		{name: "any case, with space around", provider: "OpenAI", requested: " GPT-A ", key: "gpt-a"},
		{name: "the provider's prefix", provider: "openai", requested: "openai/gpt-a", key: "gpt-a"},
		{name: "no other provider's prefix", provider: "openai", requested: "azure/gpt-a"},
		{name: "a path", provider: "openai", requested: "models/gpt-a", key: "gpt-a"},
		{name: "a deployment's alias, in any case", provider: "azure", requested: "my-prod", key: "azure/gpt-a"},
		{name: "an alias to another provider's row", provider: "hosted_vllm", requested: "other", key: "azure/gpt-a"},
		{name: "the operator's price", provider: "openai", requested: "gpt-b-2026-01-31", key: "gpt-b", own: true},
		{name: "fine-tuned without a row", provider: "openai", requested: "ft:gpt-a-2026-01-01:org::id", key: "gpt-a", approx: true},
		{name: "OpenRouter's variant", provider: "openrouter", requested: "v/m:floor", key: "openrouter/v/m", approx: true},
		{name: "OpenRouter's free variant", provider: "openrouter", requested: "v/m:free", key: ":free"},
		{name: "free elsewhere is no word", provider: "openai", requested: "gpt-a:free"},
		{name: "Vertex without its date", provider: "vertex", requested: "claude-x@20260101", key: "vertex_ai/claude-x@20260101"},
		{name: "Bedrock's geography", provider: "bedrock", requested: "eu.anthropic.claude-opus-5", key: "anthropic.claude-opus-5", approx: true, scale: Ratio{11, 10}},
		{name: "Bedrock's global profile", provider: "bedrock", requested: "global.anthropic.claude-opus-5", key: "anthropic.claude-opus-5"},
		{name: "Bedrock's geography of an old model", provider: "bedrock", requested: "eu.anthropic.claude-3-5-sonnet", key: "anthropic.claude-3-5-sonnet", approx: true},
		{name: "an unknown provider is priced as the maker", requested: "gpt-a", key: "gpt-a", approx: true},
		{name: "an unknown provider with a prefix", requested: "azure/gpt-a", key: "azure/gpt-a", approx: true},
		{name: "no model at all", provider: "openai"},
	}
	b := mustBook(t, table, options)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := b.Resolve(tt.provider, tt.served, tt.requested, noon)
			if got.Key != tt.key || got.Approx != tt.approx || got.Own != tt.own || got.scale != tt.scale {
				t.Errorf("got %+v", got)
			}
			if (got.Row == nil) != (tt.key == "") {
				t.Errorf("row %v", got.Row)
			}
			if got.Row == nil && got.Why == "" {
				t.Error("unknown without a reason")
			}
		})
	}
}

func TestGeographyIsDearerFromClaude45On(t *testing.T) {
	for name, want := range map[string]bool{
		"anthropic.claude-opus-5":                       true,
		"anthropic.claude-sonnet-4-5-20250929-v1:0":     true,
		"anthropic.claude-haiku-4-5-20251001-v1:0":      true,
		"anthropic.claude-opus-4-6-v1":                  true,
		"anthropic.claude-fable-5-1":                    true,
		"anthropic.claude-opus-4-1-20250805-v1:0":       false,
		"anthropic.claude-sonnet-4-20250514-v1:0":       false,
		"anthropic.claude-3-5-sonnet-20240620-v1:0":     false,
		"anthropic.claude-v2:1":                         false,
		"amazon.nova-pro-v1:0":                          false,
		"anthropic.claude-":                             false,
		"meta.llama3-3-70b-instruct-v1:0.claude-opus-5": false,
	} {
		if got := geoPriced(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

func TestUnknownModelsTakeTheOperatorsDefault(t *testing.T) {
	fallback, err := NewOwn("*")
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range map[string]string{"input": "10", "output": "20"} {
		if err := fallback.Set(field, value); err != nil {
			t.Fatal(err)
		}
	}
	b := mustBook(t, nil, Options{Unknown: fallback})
	got := b.Price(&Call{Provider: "openai", Requested: "no-such", Usage: tokens(1000, 100), At: noon})
	if got.Status != Calculated || got.USD.Short() != "0.012" || !got.Approx || got.Why != whyFallback {
		t.Errorf("got %+v", got)
	}
}

func TestBooksRefuseWhatMeansNothing(t *testing.T) {
	empty, err := NewOwn("gpt-*")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		options Options
		want    string
	}{
		{"an alias of nothing", Options{Aliases: map[string]string{"a": " "}}, `alias "a" of model " "`},
		{"an alias without a name", Options{Aliases: map[string]string{"": "gpt-5"}}, `both must be named`},
		{"aliases that differ in case", Options{Aliases: map[string]string{"a": "x", "A": "y"}}, `given twice`},
		{"a price without fields", Options{Own: []*Own{empty}}, `price "gpt-*": no field is set`},
		{"a default without fields", Options{Unknown: empty}, `no field is set`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewBook(nil, tt.options)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
