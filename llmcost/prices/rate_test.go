package prices

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestRatesOfATierAndAService(t *testing.T) {
	const fields = `{"litellm_provider":"openai",
		"input_cost_per_token":1e-6,"input_cost_per_token_flex":5e-7,"input_cost_per_token_priority":2e-6,
		"input_cost_per_token_above_200k_tokens":2e-6,"input_cost_per_token_above_200k_tokens_priority":5e-6,
		"input_cost_per_token_above_1000k_tokens":3e-6,
		"output_cost_per_token":4e-6,"output_cost_per_token_above_200k_tokens":6e-6,"output_cost_per_token_priority":8e-6,
		"output_cost_per_reasoning_token":1e-5,
		"cache_read_input_token_cost":1e-7,"cache_read_input_token_cost_priority":3e-7,
		"input_cost_per_audio_token":8e-6,
		"cache_creation_input_token_cost_above_1hr":2e-6,"cache_creation_input_token_cost":1.25e-6,
		"cache_creation_input_token_cost_above_1hr_above_200k_tokens":7e-6}`
	r := row(t, "m", fields)
	tests := []struct {
		name    string
		unit    Unit
		prompt  int64
		service Service
		want    string // per million
		approx  bool
	}{
		{"the base", Input, 200_000, Standard, "1", false},
		{"above the threshold", Input, 200_001, Standard, "2", false},
		{"the higher tier", Input, 1_000_001, Standard, "3", false},
		{"the service", Input, 10, Flex, "0.50", false},
		{"the tier with the service", Input, 200_001, Priority, "5", false},
		{"the tier without the service, in proportion", Input, 200_001, Flex, "1", true},
		{"a service without rates, as documented", Input, 10, Batch, "0.50", true},
		{"the tier below, in proportion to the input", Output, 1_000_001, Standard, "9", true},
		{"a service that output lacks", Output, 10, Flex, "2", true},
		{"the tier's output with a service, in proportion", Output, 200_001, Priority, "15", true},
		{"reasoning in proportion to output", Reasoning, 200_001, Standard, "15", true},
		{"the cache of a tier, in proportion", CacheRead, 200_001, Standard, "0.20", true},
		{"the cache of a service", CacheRead, 10, Priority, "0.30", false},
		{"an hour's writes of a tier", CacheWrite1h, 200_001, Standard, "7", false},
		{"what is not stated of images is the text's", ImageIn, 10, Standard, "1", false},
		{"nor of video", VideoOut, 10, Priority, "8", false},
		{"audio of a cache is as much cheaper as text", AudioCached, 10, Standard, "0.80", true},
		{"images of a cache are text's", ImageCached, 10, Standard, "0.10", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var cost Cost
			p := pick(r, "openai", tt.prompt, tt.service, noon, &cost)
			rate, ok := p.rate(tt.unit)
			want, err := money.ParseRatePerMillion(tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if !ok || rate != want || cost.Approx != tt.approx {
				t.Errorf("got %d, %v, approximate %v, want %d, %v", rate, ok, cost.Approx, want, tt.approx)
			}
		})
	}
}

func TestMissingRatesOfACacheAreNeverNothing(t *testing.T) {
	openAI := row(t, "gpt", `{"litellm_provider":"openai","input_cost_per_token":1e-6,"output_cost_per_token":4e-6}`)
	claude := row(t, "claude", `{"litellm_provider":"anthropic","input_cost_per_token":1e-6,"output_cost_per_token":4e-6}`)
	for _, tt := range []struct {
		row  *Row
		unit Unit
		want money.Rate
	}{
		{openAI, CacheRead, 1_000_000_000},
		{openAI, CacheWrite5m, 1_000_000_000},
		{openAI, CacheWrite1h, 1_000_000_000},
		{openAI, AudioCached, 1_000_000_000},
		{claude, CacheWrite1h, 2_000_000_000},
		{openAI, Reasoning, 4_000_000_000},
		{openAI, AudioOut, 4_000_000_000},
	} {
		p := pick(tt.row, "", 1, Standard, noon, nil)
		if got, ok := p.rate(tt.unit); !ok || got != tt.want {
			t.Errorf("%s of %s: got %d, %v", tt.unit, tt.row.Key, got, ok)
		}
	}
}

func TestMultipliersTouchTokensOnly(t *testing.T) {
	r := row(t, "claude-opus-5", `{"litellm_provider":"anthropic","input_cost_per_token":5e-6,"output_cost_per_token":2.5e-5,
		"input_cost_per_request":0.5,"provider_specific_entry":{"us":1.1,"fast":6,"schema":"v2"}}`)
	vertex := row(t, "vertex_ai/claude-opus-5", `{"litellm_provider":"vertex_ai-anthropic_models","input_cost_per_token":5e-6,
		"regional_endpoint_uplift_multiplier":"1.10"}`)
	gpt := row(t, "gpt-5.6", `{"litellm_provider":"openai","input_cost_per_token":5e-6,
		"regional_processing_uplift_multiplier_eu":1.1,"regional_processing_uplift_multiplier_us":1.2}`)
	b := mustBook(t, NewTable(time.Time{}, []*Row{r, vertex, gpt}), Options{})
	tests := []struct {
		name, model, host string
		terms             usage.Terms
		hints             usage.Hints
		want              string
	}{
		{"none", "claude-opus-5", "", usage.Terms{}, usage.Hints{}, "5.50"},
		{"fast", "claude-opus-5", "", usage.Terms{Speed: "fast"}, usage.Hints{}, "30.50"},
		{"fast in the US", "claude-opus-5", "", usage.Terms{Speed: "fast", Geo: "us"}, usage.Hints{}, "33.50"},
		{"fast was asked for and not served", "claude-opus-5", "", usage.Terms{Speed: "standard"}, usage.Hints{Speed: "fast"}, "5.50"},
		{"fast was asked for and nothing is said", "claude-opus-5", "", usage.Terms{}, usage.Hints{Speed: "fast"}, "30.50"},
		{"priority at Anthropic is paid in advance", "claude-opus-5", "", usage.Terms{ServiceTier: "priority"}, usage.Hints{}, "5.50"},
		{"Vertex's global host", "claude-opus-5", "aiplatform.googleapis.com", usage.Terms{}, usage.Hints{}, "5"},
		{"Vertex's region", "claude-opus-5", "us-east5-aiplatform.googleapis.com:443", usage.Terms{}, usage.Hints{}, "5.50"},
		{"OpenAI's Europe", "gpt-5.6", "EU.api.openai.com", usage.Terms{}, usage.Hints{}, "5.50"},
		{"OpenAI's US", "gpt-5.6", "us.api.openai.com:443", usage.Terms{}, usage.Hints{}, "6"},
		{"OpenAI's default", "gpt-5.6", "api.openai.com", usage.Terms{}, usage.Hints{}, "5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := b.Price(&Call{
				API: usage.AnthropicMessages, Host: tt.host, Requested: tt.model, Terms: tt.terms, Hints: tt.hints,
				Usage: tokens(1_000_000, 0), At: noon,
			})
			if got.USD.Short() != tt.want || got.Status != Calculated {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

func TestTheDatedModelHasTheServicesOfTheUndated(t *testing.T) {
	base := row(t, "gpt-4o", `{"litellm_provider":"openai","input_cost_per_token":2.5e-6,"output_cost_per_token":1e-5,"input_cost_per_token_priority":4.25e-6}`)
	same := row(t, "gpt-4o-2024-08-06", `{"litellm_provider":"openai","input_cost_per_token":2.5e-6,"output_cost_per_token":1e-5}`)
	other := row(t, "gpt-4o-2024-05-13", `{"litellm_provider":"openai","input_cost_per_token":5e-6,"output_cost_per_token":1.5e-5}`)
	table := NewTable(time.Time{}, []*Row{base, same, other})
	if rate, ok := table.Lookup("openai", same.Key, noon).Rates.Get(Input, Priority, 0); !ok || rate != 4_250_000_000 {
		t.Errorf("got %d, %v", rate, ok)
	}
	if _, ok := table.Lookup("openai", other.Key, noon).Rates.Get(Input, Priority, 0); ok {
		t.Error("a model at another price has them too")
	}
	if same.Rates.serves(Priority) {
		t.Error("the loader's row was changed")
	}
}

func TestImagesAreBilledBySizeOrToken(t *testing.T) {
	table := NewTable(
		time.Time{}, []*Row{
			row(t, "dall-e-3", `{"litellm_provider":"openai","mode":"image_generation","input_cost_per_image":0.04}`),
			row(t, "hd/1024-x-1792/dall-e-3", `{"litellm_provider":"openai","mode":"image_generation","input_cost_per_pixel":6e-8,"output_cost_per_pixel":0}`),
			row(t, "512-x-512/dall-e-2", `{"litellm_provider":"openai","mode":"image_generation","input_cost_per_pixel":6e-8}`),
			row(t, "dall-e-2", `{"litellm_provider":"openai","mode":"image_generation","input_cost_per_image":0.02}`),
			row(t, "gpt-image", `{"litellm_provider":"openai","mode":"image_generation","input_cost_per_token":5e-6,"output_cost_per_image_token":4e-5,"output_cost_per_image":0.2}`),
			row(t, "gemini/flash-image", `{"litellm_provider":"gemini","mode":"chat","input_cost_per_token":1e-6,"output_cost_per_token":2e-6,"output_cost_per_image":0.039}`),
		},
	)
	b := mustBook(t, table, Options{})
	tests := []struct {
		name, provider, model, size, quality string
		usage                                usage.Usage
		want                                 string
	}{
		{"no size", "openai", "dall-e-3", "", "", usage.Usage{Images: 2}, "0.08"},
		{"size and quality", "openai", "dall-e-3", "1024x1792", "hd", usage.Usage{Images: 2}, "0.22020096"},
		{"size alone", "openai", "dall-e-2", "512x512", "", usage.Usage{Images: 1}, "0.01572864"},
		{"a size without a row", "openai", "dall-e-2", "256x256", "", usage.Usage{Images: 1}, "0.02"},
		{"tokens say it better", "openai", "gpt-image", "1024x1024", "high", usage.Usage{Images: 1, Input: 100, Output: 1000}, "0.0405"},
		{"without tokens, by the image", "openai", "gpt-image", "1024x1024", "high", usage.Usage{Images: 3}, "0.60"},
		{"images of a model of text", "gemini", "flash-image", "", "", usage.Usage{Images: 1, Output: 1390, ImageOut: 1290}, "0.0392"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := b.Price(&Call{
				Provider: tt.provider, API: usage.OpenAIImages, Requested: tt.model, Usage: tt.usage, At: noon,
				Hints: usage.Hints{ImageSize: tt.size, ImageQuality: tt.quality},
			})
			if got.USD.Short() != tt.want || got.Status != Calculated || got.Approx {
				t.Errorf("got %+v, want %s", got, tt.want)
			}
		})
	}
}

func TestOtherModelsInsideACallCostToo(t *testing.T) {
	table := NewTable(
		time.Time{}, []*Row{
			row(t, "main", `{"litellm_provider":"openai","input_cost_per_token":1e-6,"output_cost_per_token":1e-6,"input_cost_per_request":1}`),
			row(t, "helper", `{"litellm_provider":"openai","input_cost_per_token":5e-6,"output_cost_per_token":5e-6,"input_cost_per_request":1}`),
		},
	)
	b := mustBook(t, table, Options{})
	c := Call{Provider: "openai", Requested: "main", Usage: tokens(1_000_000, 0), At: noon}
	c.Other = []usage.ModelUsage{{Model: "helper", Usage: tokens(1_000_000, 0)}}
	if got := b.Price(&c); got.USD.Short() != "7" || got.Status != Calculated || got.Key != "main" {
		t.Errorf("got %+v", got)
	}
	c.Other[0].Model = "unknown"
	if got := b.Price(&c); got.USD.Short() != "3" || got.Status != Estimated || got.Why != whyOther {
		t.Errorf("an unknown helper: got %+v", got)
	}
	c.Other[0].Model, c.Requested = "helper", "unknown"
	if got := b.Price(&c); got.USD.Short() != "5" || got.Status != Estimated || !got.Approx {
		t.Errorf("an unknown model: got %+v", got)
	}
}

func TestImagesWithoutTokensAreNeverFree(t *testing.T) {
	b, at := builtinBook(t, Options{})
	pictures := usage.Usage{Images: 2}
	for _, tt := range []struct {
		name, model string
		hints       usage.Hints
		usage       usage.Usage
		other       []usage.ModelUsage
		want        string
		status      Status
	}{
		{"of a size", "gpt-image-1", usage.Hints{ImageSize: "1536x1024", ImageQuality: "high"}, pictures, nil, "0.50", Calculated},
		{"of any size", "gpt-image-1", usage.Hints{}, pictures, nil, "0.56272", Estimated},
		{"of a size that has no price", "gpt-image-1-mini", usage.Hints{ImageSize: "1024x1024", ImageQuality: "high"}, pictures, nil, "0.112544", Estimated},
		{
			"of a tool that is not named", "gpt-5",
			usage.Hints{},
			tokens(100, 100),
			[]usage.ModelUsage{{Usage: pictures}},
			"0.563845", Estimated,
		},
		{
			"of a tool that is named", "gpt-5",
			usage.Hints{},
			tokens(100, 100),
			[]usage.ModelUsage{{Model: "gpt-image-1-mini", Usage: pictures}},
			"0.113669", Estimated,
		},
		{
			"tokens of a tool that is not named", "gpt-5",
			usage.Hints{},
			tokens(100, 100),
			[]usage.ModelUsage{{Usage: usage.Usage{Images: 2, Output: 12_000, ImageOut: 12_000}}},
			"0.481125", Estimated,
		},
		{
			"tokens of a tool that is named", "gpt-5",
			usage.Hints{},
			tokens(100, 100),
			[]usage.ModelUsage{{Model: "gpt-image-1", Usage: usage.Usage{Images: 2, Output: 12_000, ImageOut: 12_000}}},
			"0.481125", Calculated,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Call{Provider: "openai", API: usage.OpenAIImages, Requested: tt.model, Hints: tt.hints, Usage: tt.usage, Other: tt.other, At: at}
			if tt.other != nil {
				c.API = usage.OpenAIResponses
			}
			got := b.Price(&c)
			if got.USD.Short() != tt.want || got.Status != tt.status {
				t.Errorf("got %+v, want %s %s", got, tt.want, tt.status)
			}
			if worst := b.Estimate(&c, 0, 0); tt.other == nil && worst.USD < got.USD {
				t.Errorf("at worst %s, but %s", worst.USD, got.USD)
			}
		})
	}
}

func TestAPartWithoutAPriceLeavesNothingCalculated(t *testing.T) {
	b := mustBook(t, NewTable(time.Time{}, []*Row{row(t, "m", `{"litellm_provider":"openai","input_cost_per_request":1}`)}), Options{})
	c := Call{Provider: "openai", Requested: "m", At: noon, Other: []usage.ModelUsage{{Model: "helper", Usage: usage.Usage{Pages: 3}}}}
	if got := b.Price(&c); got.USD.Short() != "1" || got.Status != Estimated || !got.Approx {
		t.Errorf("got %+v", got)
	}
}

func TestBucketsAreDisjointAndWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(-5, 1000)
		u := usage.Usage{
			Input: count.Draw(t, "input"), Output: count.Draw(t, "output"), CacheRead: count.Draw(t, "read"),
			CacheWrite5m: count.Draw(t, "5m"), CacheWrite1h: count.Draw(t, "1h"), Reasoning: count.Draw(t, "reasoning"),
			AudioIn: count.Draw(t, "audio in"), AudioOut: count.Draw(t, "audio out"), AudioCached: count.Draw(t, "audio cached"),
			ImageIn: count.Draw(t, "image in"), ImageOut: count.Draw(t, "image out"), ImageCached: count.Draw(t, "image cached"),
			VideoIn: count.Draw(t, "video in"), VideoOut: count.Draw(t, "video out"),
		}
		n, _ := split(&u)
		var out int64
		for _, unit := range outputUnits {
			out += n[unit]
		}
		for unit, c := range n {
			if c < 0 {
				t.Errorf("%s: %d", Unit(unit), c)
			}
		}
		if n.prompt() != max(u.Input, 0) || out != max(u.Output, 0) {
			t.Errorf("%+v became %v", u, n)
		}
	})
}

func TestUsageThatContradictsItselfIsCutAndMarked(t *testing.T) {
	b := mustBook(t, NewTable(time.Time{}, []*Row{
		row(t, "m", `{"litellm_provider":"openai","input_cost_per_token":2e-6,"cache_read_input_token_cost":1e-6}`),
	}), Options{})
	got := b.Price(&Call{Provider: "openai", Requested: "m", Usage: usage.Usage{Input: 10, CacheRead: 20}, At: noon})
	if got.USD != 10_000_000 || !got.Approx || got.Why != whyInconsistent {
		t.Errorf("got %+v", got)
	}
}
