package llmcost

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/llmlimits/caddy-llm-limits/internal/pricing"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

func TestWordsThatNameNothingAreFound(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler *Handler
		err     string
		warning string
	}{
		{"right words", &Handler{Provider: "azure", Alias: map[string]string{"prod": "gpt-4o"}}, "", ""},
		{"a misspelt provider", &Handler{Provider: "opneai"}, `is it "openai"?`, ""},
		{"a provider that no table has", &Handler{Provider: "hosted_vllm"}, "", "no table of prices has the provider"},
		{"a table that is yet to come", &Handler{Provider: "opneai", Prices: []string{"https://prices.example/"}}, "", "no table of prices has the provider"},
		{"an alias of nothing", &Handler{Alias: map[string]string{"prod": "gtp-4o"}}, "", "an alias of a model that has no price"},
		{
			"an alias of a price of the operator's",
			&Handler{Alias: map[string]string{"prod": "mine"}, Own: []Price{{Match: "mine", Rates: map[string]string{"input": "1", "output": "2"}}}}, "", "",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := tt.handler.options()
			if err != nil {
				t.Fatal(err)
			}
			core, logs := observer.New(zap.WarnLevel)
			o.Logger = zap.New(core)
			err = tt.handler.check(pricing.Builtin(), &o, prices.Builtin().AsOf)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q in it", err, tt.err)
			}
			if got := logs.All(); len(got) > 1 || len(got) == 1 != (tt.warning != "") || len(got) == 1 && !strings.Contains(got[0].Message, tt.warning) {
				t.Errorf("logged %v, want %q", got, tt.warning)
			}
		})
	}
}
