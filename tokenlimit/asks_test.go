package tokenlimit_test

import (
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

// Where no handler of a config asks streams for usage, no call has to be made again without
// that. One that does counts wherever it stands.
func TestAppKnowsWhetherAnybodyAsksForUsage(t *testing.T) {
	for _, tt := range []struct {
		name, site string
		want       bool
	}{
		{"requests", "token_limit {\nlimit 5 requests per minute\n}", false},
		{"requests of a model", "token_limit {\nmodel gpt-* {\nlimit 5 requests per minute\n}\n}", false},
		{"calls at one time", "token_limit {\nlimit 5 concurrent\n}", false},
		{"images", "token_limit {\nlimit 5 images per day\n}", false},
		{"tokens", "token_limit {\nlimit 5 tokens per minute\n}", true},
		{"tokens of a model", "token_limit {\nlimit 5 requests per minute\nmodel gpt-* {\nlimit 5 output_tokens per minute\n}\n}", true},
		{"tokens of a group", "token_limit {\nlimit 5 requests per minute\ngroup gold {\nlimit 5 tokens per minute\n}\n}", true},
		{"dollars", "cost_limit {\nlimit $5 per day\n}", true},
		{"prices", "token_limit {\nlimit 5 requests per minute\n}\nllm_cost", true},
		{"tokens on another route", "token_limit a {\nlimit 5 requests per minute\n}\nhandle /b/* {\ntoken_limit b {\nlimit 5 tokens per minute\n}\n}", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := start(t, "", tt.site+"\ntest_upstream")
			app, err := caddy.ActiveContext().App(llmapp.Name)
			if err != nil {
				t.Fatal(err)
			}
			if got := app.(*llmapp.App).AsksUsage(); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
			if w := g.do("POST", "/v1/chat/completions", `{"model":"gpt-5","stream":true,"messages":[]}`); w.Code != 200 && w.Code != 429 {
				t.Errorf("answered with %d: %s", w.Code, w.Body)
			}
		})
	}
}
