package prices

import (
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// tokens is the usage of text in and out.
func tokens(in, out int64) usage.Usage { return usage.Usage{Input: in, Output: out} }

// own builds an operator's price from "field value" pairs.
func own(t *testing.T, glob string, pairs ...string) *Own {
	t.Helper()
	o, err := NewOwn(glob)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(pairs); i += 2 {
		if err := o.Set(pairs[i], pairs[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func TestOperatorsPricesReplaceFieldsOneByOne(t *testing.T) {
	table := NewTable(
		time.Time{}, []*Row{
			row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":2e-6,"output_cost_per_token":8e-6,`+
				`"cache_read_input_token_cost":2e-7,"cache_creation_input_token_cost":2.5e-6,"output_cost_per_reasoning_token":1.6e-5,`+
				`"input_cost_per_token_priority":4e-6,"input_cost_per_token_above_200k_tokens":3e-6,"input_cost_per_audio_token":5e-5}`),
			row(t, "free", `{"litellm_provider":"openai","input_cost_per_token":0,"output_cost_per_token":0,"cache_read_input_token_cost":0}`),
		},
	)
	with := func(u usage.Usage) Call { return Call{Provider: "openai", Usage: u} }
	priority := with(tokens(100_000, 0))
	priority.Terms.ServiceTier = "priority"
	tests := []struct {
		name  string
		own   []string
		model string
		call  Call
		want  string
	}{
		{"what is set replaces", []string{"input", "3"}, "m", with(tokens(100_000, 0)), "0.30"},
		{"what is not set stays", []string{"input", "3"}, "m", with(tokens(0, 100_000)), "0.80"},
		{"the cache keeps its proportion", []string{"input", "4"}, "m", with(usage.Usage{Input: 100_000, CacheRead: 100_000}), "0.04"},
		{"writes keep it too", []string{"input", "4"}, "m", with(usage.Usage{Input: 100_000, CacheWrite5m: 100_000}), "0.50"},
		{"a cache rate of one's own", []string{"input", "4", "cache_read", "1"}, "m", with(usage.Usage{Input: 100_000, CacheRead: 100_000}), "0.10"},
		{"reasoning keeps its proportion to output", []string{"output", "4"}, "m", with(usage.Usage{Output: 100_000, Reasoning: 100_000}), "0.80"},
		{"so do services", []string{"input", "4"}, "m", priority, "0.80"},
		{"and tiers", []string{"input", "4"}, "m", with(tokens(1_000_000, 0)), "6"},
		{"audio is not the text's", []string{"input", "4"}, "m", with(usage.Usage{Input: 100_000, AudioIn: 100_000}), "5"},
		{"over a free row the cache costs what input does", []string{"input", "4"}, "free", with(usage.Usage{Input: 100_000, CacheRead: 50_000}), "0.40"},
		{"without a row the cache costs what input does", []string{"input", "4", "output", "8"}, "mine", with(usage.Usage{Input: 100_000, CacheRead: 50_000, CacheWrite1h: 50_000}), "0.40"},
		{"without a row, by the request", []string{"request", "0.25"}, "mine", with(tokens(100_000, 5)), "0.25"},
		{"by the image", []string{"image", "0.04"}, "mine", with(usage.Usage{Images: 3}), "0.12"},
		{"nothing", []string{"input", "0", "output", "0"}, "m", with(usage.Usage{Input: 9, CacheRead: 4, Output: 8, Reasoning: 2}), "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := mustBook(t, table, Options{Own: []*Own{own(t, tt.model, tt.own...)}})
			tt.call.Requested, tt.call.At = tt.model, noon
			got := b.Price(&tt.call)
			if got.USD.Short() != tt.want || got.Status != Calculated {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
			if again := b.Price(&tt.call); again != got {
				t.Errorf("then %+v", again)
			}
		})
	}
}

func TestTheMostLiteralGlobCounts(t *testing.T) {
	b := mustBook(t, nil, Options{Own: []*Own{
		own(t, "*", "input", "1"),
		own(t, "gpt-*-mini", "input", "2"),
		own(t, "GPT-*", "input", "3"),
		own(t, "gpt-5-mini", "input", "4"),
		own(t, "gpt-5-m*ni", "input", "5"),
	}})
	for model, want := range map[string]string{
		"llama":                 "1",
		"gpt-4-mini":            "2",
		"gpt-4":                 "3",
		"gpt-5-mini":            "4",
		"gpt-5-mini-2026-01-01": "4",
		"openai/gpt-5-mini":     "4",
		"gpt-5-maxi-ni":         "5",
	} {
		got := b.Price(&Call{Provider: "openai", Requested: model, Usage: tokens(1_000_000, 0), At: noon})
		if got.USD.Short() != want {
			t.Errorf("%s: got %s, want %s", model, got.USD.Short(), want)
		}
	}
}

func TestOperatorsPricesAreRefusedWithAReason(t *testing.T) {
	tests := []struct{ name, field, value, want string }{
		{"an unknown field", "inputs", "1", `unknown field "inputs": there are input, output, cache_read`},
		{"no number", "input", "cheap", `price "m": input: price "cheap": not a decimal number`},
		{"less than nothing", "output", "-1", "less than nothing"},
		{"a price per token", "input", "0.0000025", "write dollars per 1M"},
		{"no value", "input", "", "not a decimal number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := own(t, "m").Set(tt.field, tt.value)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	if err := own(t, "m", "input", "1").Set("input", "2"); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("got %v", err)
	}
	if _, err := NewOwn(" "); err == nil {
		t.Error("a price of no model")
	}
}

func TestOperatorsPricesWinOverTheProvidersWord(t *testing.T) {
	c := Call{Provider: "xai", Requested: "grok", Usage: tokens(1_000_000, 0), At: noon}
	c.Terms = usage.Terms{CostKnown: true, Cost: 5, CostField: "cost_in_usd_ticks"}
	b := mustBook(t, nil, Options{Own: []*Own{own(t, "grok", "input", "2")}})
	if got := b.Price(&c); got.Status != Calculated || got.USD.Short() != "2" {
		t.Errorf("got %+v", got)
	}
}

func TestAPriceOfUnknownModelsDoesNotReplaceTheProvidersWord(t *testing.T) {
	const said = 750_000_000_000
	for _, rate := range []string{"0", "5"} {
		b := mustBook(t, nil, Options{Unknown: own(t, "*", "input", rate, "output", rate)})
		c := Call{Provider: "openrouter", Requested: "maker/new", Usage: tokens(1000, 1000), At: noon}
		if got := b.Price(&c); got.Status != Calculated {
			t.Errorf("at %s: got %+v", rate, got)
		}
		c.Terms = usage.Terms{CostKnown: true, Cost: said, CostField: "cost"}
		if got := b.Price(&c); got.Status != Reported || got.USD != said {
			t.Errorf("at %s: got %+v, want what was reported", rate, got)
		}
	}
}

func TestTheOperatorsPriceOfTheNameThatWasCalledCounts(t *testing.T) {
	builtin := Builtin()
	for _, tt := range []struct {
		name, requested, served string
		own                     []*Own
		aliases                 map[string]string
		want                    string // of a million tokens in
	}{
		{"of an alias", "prod-eu", "gpt-4o-2024-08-06", []*Own{own(t, "prod-eu", "input", "3")}, map[string]string{"prod-eu": "gpt-4o"}, "3"},
		{"of a deployment", "prod-eu", "gpt-4o-2024-08-06", []*Own{own(t, "prod-eu", "input", "3", "output", "12")}, nil, "3"},
		{"of the model", "gpt-4o", "gpt-4o-2024-08-06", []*Own{own(t, "gpt-4o", "input", "3")}, nil, "3"},
		{"another model was served", "gpt-4o", "gpt-4o-mini", []*Own{own(t, "gpt-4o", "input", "3")}, nil, "0.15"},
		{"of the served model too", "prod-eu", "gpt-4o", []*Own{own(t, "prod-eu", "input", "3"), own(t, "gpt-*", "input", "4")}, nil, "3"},
		{"of the served model more exactly", "prod-eu", "gpt-4o", []*Own{own(t, "prod-*", "input", "3"), own(t, "gpt-4o", "input", "4")}, nil, "4"},
		{"of both names", "prod-eu", "gpt-4o", []*Own{own(t, "*", "input", "4")}, nil, "4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := mustBook(t, NewTable(builtin.AsOf, builtin.Rows), Options{Own: tt.own, Aliases: tt.aliases})
			got := b.Price(&Call{Provider: "azure", Requested: tt.requested, Served: tt.served, Usage: tokens(1_000_000, 0), At: builtin.AsOf})
			if got.USD.Short() != tt.want || got.Status != Calculated {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}
