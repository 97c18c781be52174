package prices

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestAPriceOfPromptsAloneGivesNoOutputAway(t *testing.T) {
	b := mustBook(t, nil, Options{Own: []*Own{
		own(t, "in", "input", "2.5"), own(t, "out", "output", "10"), own(t, "call", "input", "2.5", "request", "0.01"),
	}})
	for _, tt := range []struct {
		name, model    string
		api            usage.API
		prompt, output int64
		want           Status
	}{
		{"output", "in", usage.OpenAIChat, 1000, 1_000_000, Unpriced},
		{"no output", "in", usage.OpenAIChat, 1000, 0, Calculated},
		{"a prompt", "out", usage.OpenAIChat, 1000, 1000, Unpriced},
		{"an API without output", "in", usage.OpenAIEmbeddings, 1000, 5, Estimated},
		{"the call pays", "call", usage.OpenAIChat, 1000, 1000, Calculated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Call{API: tt.api, Requested: tt.model, Usage: tokens(tt.prompt, tt.output), At: noon}
			if got := b.Price(&c); got.Status != tt.want {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
			unpriced := tt.want == Unpriced
			if got := b.Expect(&c, tt.prompt, tt.output); (got.Status == Unpriced) != unpriced {
				t.Errorf("expected %+v", got)
			}
			if got := b.Estimate(&c, tt.prompt, tt.output); (got.Status == Unpriced) != unpriced {
				t.Errorf("at most %+v", got)
			}
		})
	}
}

func TestATableMaySayOnlyWhatItChanges(t *testing.T) {
	below := []*Row{
		row(t, "m", `{"litellm_provider":"openai","mode":"chat","input_cost_per_token":2e-6,"output_cost_per_token":8e-6,
			"cache_read_input_token_cost":2e-7,"output_cost_per_token_above_200k_tokens":1.2e-5}`),
		row(t, "embed", `{"litellm_provider":"openai","mode":"embedding","input_cost_per_token":1e-7,"output_cost_per_token":1e-7}`),
	}
	for _, tt := range []struct {
		name, key, fields string
		output, input     string
	}{
		{"input", "m", `"input_cost_per_token":1e-6`, "8", "1"},
		{"output", "m", `"output_cost_per_token":4e-6`, "4", "2"},
		{"both", "m", `"input_cost_per_token":1e-6,"output_cost_per_token":4e-6`, "4", "1"},
		{"a price by the call", "m", `"input_cost_per_request":0.01`, "", ""},
		{"of a model without output", "embed", `"mode":"embedding","input_cost_per_token":2e-7`, "", "0.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			above := row(t, tt.key, `{"litellm_provider":"openai",`+tt.fields+`}`)
			r := NewTable(time.Time{}, below, []*Row{above}).Lookup("openai", tt.key, noon)
			rateIs(t, r, Input, Standard, 0, tt.input)
			rateIs(t, r, Output, Standard, 0, tt.output)
			if above.Rates.Len() == 2 && r != above {
				t.Error("a row that says all is not the layer's own")
			}
		})
	}
}

func TestARefreshMayNotLoseAPrice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.json")
	write(t, path, `{"m":{"litellm_provider":"house","input_cost_per_token":1e-6,"output_cost_per_token":4e-6}}`, noon)
	s, err := NewSet(SetOptions{Locations: []string{path}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, `{"m":{"litellm_provider":"house","input_cost_per_token":2e-6}}`, noon.Add(time.Minute))
	s.Refresh(context.Background())
	r := s.Table().Lookup("house", "m", noon)
	rateIs(t, r, Input, Standard, 0, "1")
	rateIs(t, r, Output, Standard, 0, "4")
}
