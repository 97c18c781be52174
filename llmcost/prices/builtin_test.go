package prices

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// builtinTable is the table that a gateway without sources uses.
func builtinTable() *Table {
	l := Builtin()
	return NewTable(l.AsOf, l.Rows)
}

// rateIs checks a rate of the built-in table, in USD per million units; "" is none.
func rateIs(t *testing.T, r *Row, u Unit, s Service, tier int, want string) {
	t.Helper()
	got, set := r.Rates.Get(u, s, tier)
	if want == "" {
		if set {
			t.Errorf("%s of %s in tier %d is %d, want none", u, s, tier, got)
		}
		return
	}
	w, err := money.ParseRatePerMillion(want)
	if err != nil {
		t.Fatal(err)
	}
	if !set || got != w {
		t.Errorf("%s of %s in tier %d is %d (%t), want %d", u, s, tier, got, set, w)
	}
}

func TestTheBuiltInTableKnowsModelsByTheirNames(t *testing.T) {
	now := time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC) // a Wednesday
	tab := builtinTable()
	tests := []struct {
		provider, key string
		input, output string // USD per 1M
	}{
		{"openai", "gpt-5", "1.25", "10"},
		{"openai", "gpt-5-2025-08-07", "1.25", "10"},
		{"openai", "gpt-5.6", "4", "20"},
		{"openai", "gpt-5.6-luna", "0.2", "1.2"},
		{"openai", "gpt-4o-2024-05-13", "5", "15"},
		{"openai", "omni-moderation-latest", "0", ""},
		{"azure", "gpt-5-mini", "0.25", "2"},
		{"anthropic", "claude-opus-5-5", "4", "20"},
		{"anthropic", "claude-3-7-sonnet", "3", "15"},
		{"anthropic", "claude-sonnet-5", "2", "10"},
		{"vertex_ai", "claude-opus-5", "5", "25"},
		{"vertex_ai", "claude-haiku-4-5", "1", "5"},
		{"gemini", "gemini-2.5-pro", "1.25", "10"},
		{"gemini", "gemini-3.6-flash", "0.75", "3.75"},
		{"bedrock", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "1.1", "5.5"},
		{"bedrock", "global.anthropic.claude-haiku-4-5-20251001-v1:0", "1", "5"},
		{"bedrock", "eu.anthropic.claude-opus-4-5-20251101-v1:0", "5.5", "27.5"},
		{"bedrock", "amazon.nova-lite-v1:0", "0.06", "0.24"},
		{"xai", "grok-4.3", "1.25", "2.5"},
		{"deepseek", "deepseek-v4-pro", "0.66", "1.98"},
		{"deepseek", "deepseek-chat", "0.28", "0.42"},
		{"mistral", "mistral-medium-latest", "1.5", "7.5"},
		{"openrouter", "google/gemma-4-31b-it", "0.09", "0.34"},
		{"groq", "llama-3.1-8b-instant", "0.05", "0.08"},
	}
	for _, tt := range tests {
		t.Run(tt.provider+"/"+tt.key, func(t *testing.T) {
			r := tab.Lookup(tt.provider, tt.key, now)
			if r == nil {
				t.Fatal("no row")
			}
			rateIs(t, r, Input, Standard, 0, tt.input)
			rateIs(t, r, Output, Standard, 0, tt.output)
		})
	}
}

func TestTheBuiltInTableHasNoModelThatIsOnlyLikeAnother(t *testing.T) {
	tab := builtinTable()
	for _, key := range []string{"gpt-5-ultra", "gpt-5-nano-cheap", "claude", "claude-opus-4-9", "gemini-2.5-pro-max", "moderation"} {
		for _, provider := range []string{"openai", "anthropic", "gemini"} {
			if r := tab.Lookup(provider, key, time.Now()); r != nil {
				t.Errorf("%q of %s has the row %q", key, provider, r.Key)
			}
		}
	}
}

func TestTheSupplementFillsWhatTheTableLacks(t *testing.T) {
	now := time.Date(2026, 9, 30, 12, 0, 0, 0, time.UTC)
	tab := builtinTable()
	row := func(provider, key string) *Row {
		t.Helper()
		r := tab.Lookup(provider, key, now)
		if r == nil {
			t.Fatalf("no row %q of %s", key, provider)
		}
		return r
	}
	gpt5 := row("openai", "gpt-5")
	rateIs(t, gpt5, Input, Batch, 0, "0.625")
	rateIs(t, gpt5, CacheRead, Flex, 0, "0.0625")
	rateIs(t, gpt5, Output, Priority, 0, "20")
	rateIs(t, gpt5, CodeSession, Standard, 0, "30000")
	if gpt5.MaxOutput != 128_000 {
		t.Errorf("gpt-5 writes %d tokens at most", gpt5.MaxOutput)
	}
	// Its price has changed since the one of priority was told.
	rateIs(t, row("openai", "gpt-5.6-sol"), Input, Priority, 0, "")
	rateIs(t, row("openai", "gpt-4o-search-preview"), SearchHigh, Standard, 0, "50000")
	rateIs(t, row("openai", "gpt-5-nano"), Input, Priority, 0, "")
	rateIs(t, row("openai", "tts-1"), CharacterIn, Standard, 0, "15")
	rateIs(t, row("openai", "hd/1024-x-1792/dall-e-3"), ImageMade, Standard, 0, "120000")
	rateIs(t, row("openai", "whisper-1"), SecondIn, Standard, 0, "100")
	rateIs(t, row("cohere", "rerank-v3.5"), Query, Standard, 0, "2000")
	rateIs(t, row("mistral", "mistral-ocr-latest"), AnnotatedPage, Standard, 0, "5000")

	opus := row("anthropic", "claude-opus-4-6")
	if opus.Fast != (Ratio{6, 1}) || opus.GeoUS != (Ratio{11, 10}) {
		t.Errorf("multipliers of Opus 4.6: fast %v, us %v", opus.Fast, opus.GeoUS)
	}
	if f := row("anthropic", "claude-opus-5").Fast; f != (Ratio{2, 1}) {
		t.Errorf("fast mode of Opus 5: %v", f)
	}
	vertex := row("vertex_ai", "claude-opus-5")
	rateIs(t, vertex, CacheWrite1h, Standard, 0, "10")
	rateIs(t, row("anthropic", "claude-sonnet-4-5"), CacheWrite1h, Standard, 1, "12")
	rateIs(t, row("anthropic", "claude-fable-5-1"), CacheRead, Standard, 0, "0.25")

	for key, perPrompt := range map[string]bool{"gemini-2.5-flash": true, "gemini-3.5-flash": false} {
		if r := row("gemini", key); r.SearchPerPrompt != perPrompt || !r.Rates.has(SearchMedium) {
			t.Errorf("searches of %s: per prompt %t", key, r.SearchPerPrompt)
		}
	}
	xai := row("xai", "grok-4.3")
	if want := []Tier{{Above: 200_000, Inclusive: true}}; !slices.Equal(xai.Tiers, want) {
		t.Errorf("tiers of xAI: %v, want %v", xai.Tiers, want)
	}
	openAI := row("openai", "gpt-5.6")
	if want := []Tier{{Above: 272_000}}; !slices.Equal(openAI.Tiers, want) {
		t.Errorf("tiers of OpenAI: %v, want %v", openAI.Tiers, want)
	}
}

func TestDeepSeekIsDearOnWorkdaysOnly(t *testing.T) {
	r := builtinTable().Lookup("deepseek", "deepseek-v4-pro", time.Date(2026, 9, 30, 0, 0, 0, 0, time.UTC))
	if r == nil || len(r.Timed) != 1 {
		t.Fatalf("the row %+v", r)
	}
	for at, dear := range map[string]bool{
		"2026-09-30T02:00:00Z": true,
		"2026-09-30T04:00:00Z": false,
		"2026-09-30T09:59:59Z": true,
		"2026-09-30T10:00:00Z": false,
		"2026-10-03T02:00:00Z": false, // a Saturday
	} {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Timed[0].in(moment); got != dear {
			t.Errorf("at %s dear is %t", at, got)
		}
	}
}

// The table is pinned, so that what the guard would take from it can be looked at once:
// Google asked 23 times the input's price for thinking, and a router adds an hour's
// storage to the price of writing.
func TestTheGuardWouldTakeFromTheBuiltInTableOnlyWhatWasLookedAt(t *testing.T) {
	l := *Builtin()
	l.Rows, l.Faults = slices.Clone(l.Rows), nil
	Guard(&l)
	var got []string
	for _, f := range l.Faults {
		got = append(got, f.Provider+" "+f.Key)
	}
	slices.Sort(got)
	want := []string{
		"openrouter gemini-2.5-flash-preview-05-20:thinking",
		"openrouter gemini-2.5-flash-preview:thinking",
		"openrouter gemini-flash-1.5",
		"openrouter google/gemini-2.5-flash-preview:thinking",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the guard takes %q, want %q", got, want)
	}
}

func TestOfTheBuiltInTableOnlyVoicesAreLeftOut(t *testing.T) {
	for _, f := range Builtin().Faults {
		if f.Provider != "xai" || !strings.HasPrefix(f.Key, "grok-voice-") {
			t.Errorf("left out: %s", f)
		}
	}
}

func BenchmarkBuiltin(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		l, err := parseBuiltin(builtinJSON, supplementJSON)
		if err != nil {
			b.Fatal(err)
		}
		NewTable(l.AsOf, l.Rows)
	}
	b.ReportMetric(float64(retained(func() any {
		l, err := parseBuiltin(builtinJSON, supplementJSON)
		if err != nil {
			b.Fatal(err)
		}
		return NewTable(l.AsOf, l.Rows)
	}))/(1<<20), "MiB-kept")
}

// retained is how many bytes what f returns keeps.
func retained(f func() any) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
}

func TestClaudeCostsMoreInRegionsOfVertex(t *testing.T) {
	b, at := builtinBook(t, Options{})
	for model, tenths := range map[string]int64{
		"claude-sonnet-4-5@20250929": 11, "claude-opus-4-6": 11, "claude-opus-5": 11, "claude-fable-5-1": 11,
		"claude-sonnet-4@20250514": 10, "claude-opus-4-1": 10, "claude-3-5-haiku": 10,
	} {
		c := Call{Host: "aiplatform.googleapis.com", API: usage.AnthropicMessages, Requested: model, Usage: tokens(1_000_000, 0), At: at}
		global := b.Price(&c)
		for _, host := range []string{"us-east5-aiplatform.googleapis.com", "aiplatform.eu.rep.googleapis.com"} {
			c.Host = host
			if got := b.Price(&c); global.Status != Calculated || int64(got.USD)*10 != int64(global.USD)*tenths {
				t.Errorf("%s at %s: %s, %s at the global host", model, host, got.USD, global.USD)
			}
		}
	}
}
