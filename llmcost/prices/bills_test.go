package prices

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// TestBillsThatOthersGotWrong holds calls that gateways, trackers and agents are known
// to have priced wrong, beside those of cost.json.
func TestBillsThatOthersGotWrong(t *testing.T) {
	const (
		haiku    = `{"litellm_provider":"anthropic","input_cost_per_token":8e-7,"cache_read_input_token_cost":8e-8,"output_cost_per_token":4e-6}`
		opus     = `{"litellm_provider":"anthropic","input_cost_per_token":5e-6,"cache_read_input_token_cost":5e-7,"cache_creation_input_token_cost":6.25e-6,"output_cost_per_token":2.5e-5}`
		sonnet   = `{"litellm_provider":"anthropic","input_cost_per_token":3e-6,"cache_read_input_token_cost":3e-7,"cache_creation_input_token_cost":3.75e-6,"output_cost_per_token":1.5e-5,"input_cost_per_token_above_200k_tokens":6e-6,"cache_read_input_token_cost_above_200k_tokens":6e-7,"cache_creation_input_token_cost_above_200k_tokens":7.5e-6,"output_cost_per_token_above_200k_tokens":2.25e-5}`
		flash    = `{"litellm_provider":"vertex_ai","input_cost_per_token":1.5e-6,"output_cost_per_token":9e-6,"output_cost_per_reasoning_token":9e-6,"input_cost_per_token_priority":2.7e-6,"output_cost_per_token_priority":1.62e-5}`
		flash3   = `{"litellm_provider":"gemini","input_cost_per_token":5e-7,"output_cost_per_token":3e-6,"search_context_cost_per_query":{"search_context_size_medium":0.014},"web_search_billing_unit":"per_query"}`
		flash2   = `{"litellm_provider":"gemini","input_cost_per_token":3e-7,"output_cost_per_token":2.5e-6,"search_context_cost_per_query":{"search_context_size_medium":0.035}}`
		gpt5     = `{"litellm_provider":"openai","input_cost_per_token":1.25e-6,"cache_read_input_token_cost":1.25e-7,"output_cost_per_token":1e-5}`
		gpt55    = `{"litellm_provider":"openai","input_cost_per_token":5e-6,"output_cost_per_token":3e-5,"input_cost_per_token_above_272k_tokens":1e-5,"output_cost_per_token_above_272k_tokens":4.5e-5}`
		mini     = `{"litellm_provider":"openai","input_cost_per_token":1.5e-7,"output_cost_per_token":6e-7}`
		claudeUS = `{"litellm_provider":"bedrock_converse","input_cost_per_token":3e-6,"output_cost_per_token":1.5e-5}`
		r1       = `{"litellm_provider":"wandb","input_cost_per_token":1.35e-6,"output_cost_per_token":5.4e-6}`
		deepseek = `{"litellm_provider":"deepseek","input_cost_per_token":1.32e-6,"cache_read_input_token_cost":4.4e-8,"output_cost_per_token":3.96e-6,"off_peak_pricing":{"input_cost_per_token":6.6e-7,"cache_read_input_token_cost":2.2e-8,"output_cost_per_token":1.98e-6,"windows":[{"hours_utc":["00:00-01:00","04:00-06:00","10:00-00:00"],"weekdays":[1,2,3,4,5]},{"hours_utc":"00:00-00:00","weekdays":[6,7]}]}}`
		search   = `{"litellm_provider":"openai","input_cost_per_token":2.5e-6,"output_cost_per_token":1e-5,"search_context_cost_per_query":{"search_context_size_low":0.03,"search_context_size_medium":0.035,"search_context_size_high":0.05}}`
	)
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	deep := usage.Usage{Input: 100_000, CacheRead: 80_000, Output: 5_000}
	tests := []struct {
		name     string
		key, row string
		call     Call
		want     string
	}{
		{
			"cache reads of a stream at their own rate", "claude-3-5-haiku", haiku,
			Call{Usage: usage.Usage{Input: 2459, CacheRead: 2455, Output: 23}},
			"0.000291600000",
		},
		{
			"Vertex's flex is half", "gemini-3.5-flash", flash,
			Call{Usage: tokens(7, 205), Terms: usage.Terms{ServiceTier: "ON_DEMAND_FLEX"}},
			"0.000927750000",
		},
		{
			"Vertex's batch is half", "gemini-3.5-flash", flash,
			Call{Usage: tokens(7, 205), Terms: usage.Terms{ServiceTier: "BATCH"}},
			"0.000927750000",
		},
		{
			"reasoning with priority", "gemini-3.5-flash", flash,
			Call{Usage: usage.Usage{Output: 160, Reasoning: 160}, Terms: usage.Terms{ServiceTier: "ON_DEMAND_PRIORITY"}},
			"0.002592000000",
		},
		{
			"no fee without a search", "gpt-4o", search,
			Call{Usage: tokens(0, 0)},
			"0.000000000000",
		},
		{
			"a fee for each of four searches, of a row without one", "gpt-5", gpt5,
			Call{Usage: usage.Usage{WebSearches: 4}},
			"0.040000000000",
		},
		{
			"a model that always searches, by how much it reads", "gpt-4o-search-preview", search,
			Call{Usage: tokens(0, 0), Hints: usage.Hints{SearchContext: "high"}},
			"0.050000000000",
		},
		{
			"Gemini 3's grounding by the query", "gemini/gemini-3-flash", flash3,
			Call{Usage: usage.Usage{WebSearches: 3, Grounded: 1}},
			"0.042000000000",
		},
		{
			"Gemini 2's grounding by the prompt", "gemini/gemini-2.5-flash", flash2,
			Call{Usage: usage.Usage{WebSearches: 113, Grounded: 1}},
			"0.035000000000",
		},
		{
			"a price per million is no price per token", "wandb/deepseek-ai/DeepSeek-R1-0528", r1,
			Call{Usage: tokens(10_000, 500)},
			"0.016200000000",
		},
		{
			"a geography of Bedrock without a row", "anthropic.claude-sonnet-4-5", claudeUS,
			Call{Requested: "au.anthropic.claude-sonnet-4-5", Usage: tokens(1_000_000, 0)},
			"3.300000000000",
		},
		{
			"a reported cost of nothing is not believed", "gemini-3.5-flash", flash,
			Call{Usage: tokens(1_000_000, 0), Terms: usage.Terms{CostKnown: true, CostField: "cost"}},
			"1.500000000000",
		},
		{
			"a reported cost is not believed of who documents none", "gpt-5", gpt5,
			Call{Usage: tokens(1_000_000, 0), Terms: usage.Terms{CostKnown: true, Cost: 1, CostField: "cost"}},
			"1.250000000000",
		},
		{
			"peak on a Tuesday night", "deepseek-v4-pro", deepseek,
			Call{Usage: deep, At: at("2026-10-27T02:00:00Z")},
			"0.049720000000",
		},
		{
			"off-peak at its first minute", "deepseek-v4-pro", deepseek,
			Call{Usage: deep, At: at("2026-10-27T04:00:00Z")},
			"0.024860000000",
		},
		{
			"peak at its last second", "deepseek-v4-pro", deepseek,
			Call{Usage: deep, At: at("2026-10-27T09:59:59Z")},
			"0.049720000000",
		},
		{
			"off-peak all weekend", "deepseek-v4-pro", deepseek,
			Call{Usage: deep, At: at("2026-10-31T02:00:00Z")},
			"0.024860000000",
		},
		{
			"a long prompt's cache reads", "claude-sonnet-4-5", sonnet,
			Call{Usage: usage.Usage{Input: 250_000, CacheRead: 240_000}},
			"0.204000000000",
		},
		{
			"a long prompt's cache writes", "claude-sonnet-4-5", sonnet,
			Call{Usage: usage.Usage{Input: 250_000, CacheWrite5m: 5_000, CacheRead: 245_000}},
			"0.184500000000",
		},
		{
			"an hour of cache at twice the input", "claude-opus-5", opus,
			Call{Usage: usage.Usage{Input: 344_139, CacheWrite1h: 344_139}},
			"3.441390000000",
		},
		{
			"a small model is not its big sister", "gpt-4o-mini", mini,
			Call{Usage: tokens(1000, 1000)},
			"0.000750000000",
		},
		{
			"more read from the cache than not", "gpt-5", gpt5,
			Call{Usage: usage.Usage{Input: 1_239_328, CacheRead: 1_188_096, Output: 12_909}},
			"0.341642000000",
		},
		{
			"a prompt as long as the threshold", "gpt-5.5", gpt55,
			Call{Usage: tokens(272_000, 1000)},
			"1.390000000000",
		},
		{
			"a token more", "gpt-5.5", gpt55,
			Call{Usage: tokens(272_001, 1000)},
			"2.765010000000",
		},
		{
			"the tier is of the whole prompt", "claude-sonnet-4-5", sonnet,
			Call{Usage: tokens(300_000, 0)},
			"1.800000000000",
		},
		{
			"nothing used costs nothing", "gpt-5", gpt5,
			Call{Usage: usage.Usage{}},
			"0.000000000000",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := row(t, tt.key, tt.row)
			if tt.call.Requested == "" {
				tt.call.Requested = tt.key
			}
			tt.call.Provider = r.Provider
			if tt.call.At.IsZero() {
				tt.call.At = noon
			}
			got := mustBook(t, NewTable(time.Time{}, []*Row{r}), Options{}).Price(&tt.call)
			if got.USD.String() != tt.want || got.Status != Calculated {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

func TestWhatHasNoPriceIsNotFree(t *testing.T) {
	table := NewTable(
		time.Time{}, []*Row{
			row(t, "bare", `{"litellm_provider":"openai","mode":"chat"}`),
			row(t, "only-search", `{"litellm_provider":"openai","search_context_cost_per_query":{"search_context_size_medium":0.01}}`),
			row(t, "no-output", `{"litellm_provider":"openai","input_cost_per_token":1e-6}`),
			row(t, "image-out", `{"litellm_provider":"openai","input_cost_per_token":1e-6,"output_cost_per_image_token":4e-5}`),
			row(t, "nothing", `{"litellm_provider":"openai","input_cost_per_token":0,"output_cost_per_token":0}`),
		},
	)
	b := mustBook(t, table, Options{})
	tests := []struct {
		name, model string
		usage       usage.Usage
		status      Status
		why         string
		want        string
	}{
		{"an unknown model", "no-such", tokens(1, 1), Unpriced, whyUnknown, "0"},
		{"a row without rates", "bare", tokens(1, 1), Unpriced, whyNoRates, "0"},
		{"a row with the price of a tool only", "only-search", usage.Usage{Input: 5, Output: 5, WebSearches: 1}, Unpriced, whyNoRates, "0"},
		{"a row without output", "no-output", tokens(0, 1000), Unpriced, whyNothing, "0"},
		{"a row without output, but input", "no-output", tokens(1000, 1000), Unpriced, whyGiven, "0"},
		{"a tool without a price", "nothing", usage.Usage{Input: 5, Output: 5, Pages: 3}, Estimated, whyLacking, "0"},
		{"text of a model of images", "image-out", tokens(0, 1000), Calculated, whyLacking, "0.04"},
		{"pages of a model of text", "no-output", usage.Usage{Pages: 3}, Unpriced, whyNothing, "0"},
		{"seconds of a model of text", "no-output", usage.Usage{AudioMillis: 3}, Unpriced, whyNothing, "0"},
		{"a row of zeros is free", "nothing", tokens(1000, 1000), Calculated, "", "0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := b.Price(&Call{Provider: "openai", Requested: tt.model, Usage: tt.usage, At: noon})
			if got.Status != tt.status || got.Why != tt.why || got.USD.Short() != tt.want || got.Approx != (tt.status != Unpriced && tt.why != "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}
