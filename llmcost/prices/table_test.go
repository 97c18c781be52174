package prices

import (
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func TestLaterLayersReplaceAModelsRows(t *testing.T) {
	dated := func(key, provider string, rate money.Rate, day int) *Row {
		r := &Row{Key: key, Provider: provider}
		if day > 0 {
			r.From = time.Date(2026, 10, day, 0, 0, 0, 0, time.UTC)
		}
		r.Rates.Set(Input, Standard, 0, rate)
		return r
	}
	table := NewTable(
		noon,
		[]*Row{dated("gpt", "openai", 1, 0), dated("gpt", "openai", 2, 28), dated("kept", "openai", 3, 0), dated("future", "openai", 9, 29)},
		[]*Row{dated("OpenAI/GPT", "OpenAI", 4, 0), dated("gpt", "azure", 5, 0), dated("azure/gpt", "azure", 6, 0), dated("gpt", "azure", 7, 0)},
	)
	if table.Models() != 4 || table.Len() != 4 || !table.AsOf().Equal(noon) {
		t.Errorf("%d models, %d rows, as of %s", table.Models(), table.Len(), table.AsOf())
	}
	for _, tt := range []struct {
		provider, key string
		at            time.Time
		want          money.Rate // 0 is no row
	}{
		{"openai", "gpt", noon, 4},
		{"OPENAI", "openai/Gpt", noon.Add(48 * time.Hour), 4},
		{"openai", "kept", noon, 3},
		{"openai", "future", noon, 0},
		{"openai", "future", noon.Add(48 * time.Hour), 9},
		{"azure", "gpt", noon, 6},
		{"anthropic", "gpt", noon, 0},
	} {
		r := table.Lookup(tt.provider, tt.key, tt.at)
		if (r != nil) != (tt.want != 0) {
			t.Errorf("%+v: got %v", tt, r)
			continue
		}
		if r != nil {
			if rate, _ := r.Rates.Base(Input); rate != tt.want {
				t.Errorf("%+v: got %d", tt, rate)
			}
		}
	}
	if r := table.Find("azure/gpt", noon); r == nil || r.Key != "azure/gpt" {
		t.Errorf("got %v", r)
	}
	if r := table.Find("gpt", noon); r == nil || r.Provider != "OpenAI" {
		t.Errorf("got %v", r)
	}
}

func TestHoursOfOtherPrices(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	weekend := Days(1<<time.Saturday | 1<<time.Sunday)
	tests := []struct {
		name string
		o    Timed
		at   string
		want bool
	}{
		{"inside", Timed{Windows: []Window{{60, 240, 0}}}, "2026-10-27T03:59:59Z", true},
		{"at its start", Timed{Windows: []Window{{60, 240, 0}}}, "2026-10-27T01:00:00Z", true},
		{"at its end", Timed{Windows: []Window{{60, 240, 0}}}, "2026-10-27T04:00:00Z", false},
		{"over midnight, before", Timed{Windows: []Window{{990, 30, 0}}}, "2026-10-27T23:59:00Z", true},
		{"over midnight, after", Timed{Windows: []Window{{990, 30, 0}}}, "2026-10-27T00:29:00Z", true},
		{"over midnight, outside", Timed{Windows: []Window{{990, 30, 0}}}, "2026-10-27T00:30:00Z", false},
		{"all day", Timed{Windows: []Window{{0, 0, 0}}}, "2026-10-27T12:00:00Z", true},
		{"another day", Timed{Windows: []Window{{0, 0, weekend}}}, "2026-10-27T12:00:00Z", false},
		{"that day", Timed{Windows: []Window{{0, 0, weekend}}}, "2026-10-31T12:00:00Z", true},
		{"that day in a zone", Timed{Windows: []Window{{0, 0, weekend}}, Zone: shanghai}, "2026-10-30T16:00:00Z", true},
		{"no longer in the zone", Timed{Windows: []Window{{0, 0, weekend}}, Zone: shanghai}, "2026-11-01T16:00:00Z", false},
		{"told in another zone", Timed{Windows: []Window{{60, 240, 0}}}, "2026-10-27T09:30:00+08:00", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, tt.at)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.o.in(at); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestProvidersAreToldByHostThenAPI(t *testing.T) {
	for _, tt := range []struct {
		api  usage.API
		host string
		want string
	}{
		{usage.OpenAIChat, "api.openai.com", "openai"},
		{usage.OpenAIChat, "EU.API.OPENAI.COM:443", "openai"},
		{usage.OpenAIChat, "my.openai.azure.com", "azure"},
		{usage.OpenAIChat, "us-central1-aiplatform.googleapis.com", "vertex_ai"},
		{usage.AnthropicMessages, "aiplatform.googleapis.com.", "vertex_ai"},
		{usage.BedrockConverse, "bedrock-runtime.eu-west-1.amazonaws.com", "bedrock"},
		{usage.OpenAIChat, "openrouter.ai", "openrouter"},
		{usage.OpenAIChat, "notopenrouter.ai", ""},
		{usage.OpenAIChat, "api.openai.com.evil.example", ""},
		{usage.OpenAIChat, "127.0.0.1:8000", ""},
		{usage.OpenAIChat, "[::1]:8000", ""},
		{usage.AnthropicMessages, "proxy.internal", "anthropic"},
		{usage.GeminiStream, "", "gemini"},
		{usage.VertexPredict, "", "vertex_ai"},
		{usage.BedrockInvoke, "", "bedrock"},
		{usage.CohereChat, "", "cohere"},
		{usage.MistralOCR, "", "mistral"},
		{usage.OllamaChat, "localhost", "ollama"},
		{usage.OpenAIResponses, "", ""},
	} {
		if got := ProviderOf(tt.api, tt.host); got != tt.want {
			t.Errorf("%s at %q: got %q, want %q", tt.api, tt.host, got, tt.want)
		}
	}
}

func TestNamesOfUnitsAndServices(t *testing.T) {
	seen := make(map[string]bool)
	for u := range Unit(numUnits) {
		if u.String() == "" || seen[u.String()] {
			t.Errorf("unit %d is %q", u, u)
		}
		seen[u.String()] = true
	}
	if Unit(numUnits).String() != "unknown" || Service(numServices).String() != "unknown" || Batch.String() != "batch" {
		t.Error("unknown ones have names")
	}
	for s, want := range map[Status]string{Unpriced: "unpriced", Calculated: "calculated", Reported: "reported", Estimated: "estimated"} {
		if s.String() != want {
			t.Errorf("got %s, want %s", s, want)
		}
	}
}

func TestBooksAreSafeForConcurrentUse(t *testing.T) {
	table := someLiteLLM(t)
	b := mustBook(t, table, Options{Own: []*Own{own(t, "*", "input", "3", "output", "9")}})
	c := newCaller(table)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, r := range c.rows {
				call := Call{Provider: r.Provider, Requested: r.Key, Usage: tokens(1_000_000, 0), At: noon, TextOnly: true}
				if got := b.Price(&call); got.Status != Calculated {
					t.Errorf("%s: %+v", r.Key, got)
				}
				if got := b.Estimate(&call, 1_000_000, 0); got.USD < 3*money.Dollar {
					t.Errorf("%s: %+v", r.Key, got)
				}
			}
		})
	}
	wg.Wait()
}

func TestALayerPricesTheDatedNamesOfItsModels(t *testing.T) {
	below := []*Row{chat(t, "m", "2", "8"), chat(t, "m-2026-01-02", "2", "8"), chat(t, "m-2026-03-04", "5", "15"), chat(t, "n-2026-01-02", "2", "8")}
	for _, tt := range []struct {
		name  string
		above []*Row
		want  map[string]string
	}{
		{"the name alone", []*Row{chat(t, "m", "3", "9")}, map[string]string{"m": "3", "m-2026-01-02": "3", "m-2026-03-04": "5", "n-2026-01-02": "2"}},
		{"both names", []*Row{chat(t, "m", "3", "9"), chat(t, "m-2026-01-02", "4", "9")}, map[string]string{"m": "3", "m-2026-01-02": "4"}},
		{"a dated name alone", []*Row{chat(t, "m-2026-01-02", "4", "9")}, map[string]string{"m": "2", "m-2026-01-02": "4"}},
		{"a name that was not there", []*Row{chat(t, "n", "3", "9")}, map[string]string{"n-2026-01-02": "2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := mustBook(t, NewTable(time.Time{}, below, tt.above), Options{})
			for name, want := range tt.want {
				m := b.Resolve("openai", name, "", noon)
				if m.Row == nil {
					t.Fatalf("%s has no row", name)
				}
				rateIs(t, m.Row, Input, Standard, 0, want)
			}
		})
	}
}

func TestAPriceOfTheFutureLeavesThePresentOne(t *testing.T) {
	begins := noon.Add(time.Hour)
	above := chat(t, "m", "3", "9")
	above.From = begins
	tab := NewTable(time.Time{}, []*Row{chat(t, "m", "2", "8"), chat(t, "m-2026-01-02", "2", "8")}, []*Row{above})
	b := mustBook(t, tab, Options{})
	for _, name := range []string{"m", "m-2026-01-02"} {
		for at, want := range map[time.Time]string{noon: "2", begins.Add(-time.Nanosecond): "2", begins: "3"} {
			m := b.Resolve("openai", name, "", at)
			if m.Row == nil {
				t.Fatalf("%s has no row at %s", name, at)
			}
			rateIs(t, m.Row, Input, Standard, 0, want)
		}
	}
}
