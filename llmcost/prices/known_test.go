package prices

import (
	"testing"
	"time"
)

func TestProvidersAreKnownByName(t *testing.T) {
	table := NewTable(time.Time{}, Builtin().Rows, []*Row{row(t, "m", `{"litellm_provider":"house","input_cost_per_token":1e-6,"output_cost_per_token":1e-6}`)})
	for _, tt := range []struct {
		name string
		ok   bool
		near string
	}{
		{"openai", true, ""},
		{"OpenAI", true, ""},
		{"vertex_ai-anthropic_models", true, ""},
		{"google", true, ""},
		{"sambanova", true, ""},
		{"house", true, ""},
		{"opneai", false, "openai"},
		{"antropic", false, "anthropic"},
		{"bedrok", false, "bedrock"},
		{"hosted_vllm", false, ""},
		{"xay", false, ""},
	} {
		if ok, near := table.HasProvider(tt.name); ok != tt.ok || near != tt.near {
			t.Errorf("%s: got %v, %q, want %v, %q", tt.name, ok, near, tt.ok, tt.near)
		}
	}
}

func TestAliasesOfNothingAreFound(t *testing.T) {
	builtin := Builtin()
	b := mustBook(t, NewTable(builtin.AsOf, builtin.Rows), Options{
		Aliases: map[string]string{"prod": "gtp-4o", "good": "gpt-4o", "fast": "llama-3.3-70b-versatile", "mine": "mine-4"},
		Own:     []*Own{own(t, "mine-*", "input", "1", "output", "2")},
	})
	for _, tt := range []struct {
		provider, model string
		want            bool
	}{
		{"", "prod", false},
		{"", "good", true},
		{"azure", "good", true},
		{"", "fast", true},
		{"", "mine", true},
	} {
		if got := b.Prices(tt.provider, tt.model, builtin.AsOf); got != tt.want {
			t.Errorf("%s at %q: got %v", tt.model, tt.provider, got)
		}
	}
}
