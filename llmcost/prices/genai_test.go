package prices

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// genAIModel is a document with one model of the provider acme.
func genAIModel(model string) string {
	return `[{"id": "acme", "models": [` + model + `]}]`
}

func parseGenAI(t testing.TB, doc string) *Layer {
	t.Helper()
	l, err := ParseGenAI([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestPricesOfGenAIAreReadToTheLastDigit(t *testing.T) {
	prices := map[string]struct {
		value string
		unit  Unit
		want  money.Rate // femtodollars
	}{
		"input_mtok":                      {"0.075", Input, 75_000_000},
		"output_mtok":                     {"3.9999990000000002e0", Output, 3_999_999_000},
		"cache_read_mtok":                 {`"0.0028"`, CacheRead, 2_800_000},
		"cache_write_mtok":                {"6.25", CacheWrite5m, 6_250_000_000},
		"cache_write_1h_mtok":             {"1e1", CacheWrite1h, 10_000_000_000},
		"output_reasoning_mtok":           {"3", Reasoning, 3_000_000_000},
		"output_citation_mtok":            {"2", Citation, 2_000_000_000},
		"input_audio_mtok":                {"32", AudioIn, 32_000_000_000},
		"cache_audio_read_mtok":           {"0.4", AudioCached, 400_000_000},
		"output_audio_mtok":               {"64", AudioOut, 64_000_000_000},
		"input_image_mtok":                {"10", ImageIn, 10_000_000_000},
		"cache_image_read_mtok":           {"2.5", ImageCached, 2_500_000_000},
		"output_image_mtok":               {"40", ImageOut, 40_000_000_000},
		"input_video_mtok":                {"12", VideoIn, 12_000_000_000},
		"output_video_mtok":               {"17.5", VideoOut, 17_500_000_000},
		"input_audio_hours":               {"0.111", SecondIn, 30_833_333_333},
		"audio_hours":                     {"0.111", SecondIn, 30_833_333_333},
		"input_document_kpages":           {"4", Page, 4_000_000_000_000},
		"input_annotated_document_kpages": {"5", AnnotatedPage, 5_000_000_000_000},
		"requests_kcount":                 {"14", Request, 14_000_000_000_000},
		"web_searches_kcount":             {"10", SearchMedium, 10_000_000_000_000},
		"storage_searches_kcount":         {"2.5", FileSearch, 2_500_000_000_000},
		"code_executions_kcount":          {"30", CodeSession, 30_000_000_000_000},
		"input_mchars":                    {"15", CharacterIn, 15_000_000_000},
		"cache_audio_write_mtok":          {"0", AudioWrite, 0},
	}
	for key, tt := range prices {
		l := parseGenAI(t, genAIModel(fmt.Sprintf(`{"id": "m", "prices": {%q: %s}}`, key, tt.value)))
		if len(l.Rows) != 1 {
			t.Errorf("%s: %d rows, %v", key, len(l.Rows), l.Faults)
			continue
		}
		if got, set := l.Rows[0].Rates.Base(tt.unit); !set || got != tt.want {
			t.Errorf("%s: %s is %d (%t), want %d", key, tt.unit, got, set, tt.want)
		}
	}
	for key := range genAIUnits {
		if _, tested := prices[key]; !tested {
			t.Errorf("%s is not tested", key)
		}
	}
}

func TestModelsOfGenAIAreKnownByWhatIsSpelledOut(t *testing.T) {
	l := parseGenAI(t, `[{"id": "acme", "models": [
		{"id": "wide", "match": {"starts_with": "m-"}, "prices": {"input_mtok": 1}},
		{"id": "m-1", "match": {"or": [{"equals": "m-1"}, {"equals": "m-one"}, {"regex": "^m-1-\\d+$"}, {"contains": "one-m"}]}, "context_window": 9000, "prices": {"input_mtok": 2}},
		{"id": "m-2", "match": {"and": [{"starts_with": "m-two"}, {"regex": "x"}]}, "prices": {"input_mtok": 3}},
		{"id": "other", "match": {"or": [{"starts_with": "m-one"}, {"equals": "M-1"}]}, "prices": {"input_mtok": 4}},
		{"id": "unpriced", "match": {"equals": "nothing"}, "prices": {}}
	]}]`)
	got := make(map[string]string)
	for _, r := range l.Rows {
		rate, _ := r.Rates.Base(Input)
		got[r.Key] = perMillionText(rate)
		if r.Provider != "acme" || (r.ContextWindow == 9000) != (got[r.Key] == "2") {
			t.Errorf("the row %+v", r)
		}
	}
	want := map[string]string{"wide": "1", "m-": "1", "m-1": "2", "m-one": "2", "one-m": "2", "m-2": "3", "other": "4"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestProvidersOfGenAIHaveLiteLLMsNames(t *testing.T) {
	l := parseGenAI(t, `[
		{"id": "anthropic", "models": [{"id": "claude-1", "prices": {"input_mtok": 1}}, {"id": "claude-2", "prices": {"input_mtok": 2}}]},
		{"id": "aws", "models": [{"id": "regional.anthropic.claude-1", "prices": {"input_mtok": 1.1}}, {"id": "global.anthropic.claude-1", "prices": {"input_mtok": 1}}]},
		{"id": "google", "fallback_model_providers": ["anthropic"], "models": [{"id": "gemini-1", "prices": {"input_mtok": 1}}, {"id": "claude-1", "prices": {"input_mtok": 3}}]},
		{"id": "x-ai", "models": [{"id": "grok-1", "prices": {"input_mtok": 1}}]}
	]`)
	tab := NewTable(time.Time{}, l.Rows)
	for _, tt := range []struct{ provider, key, want string }{
		{"anthropic", "claude-1", "1"},
		{"bedrock", "anthropic.claude-1", "1.1"},
		{"bedrock", "us.anthropic.claude-1", "1.1"},
		{"bedrock", "ca.anthropic.claude-1", "1.1"},
		{"bedrock", "us-gov.anthropic.claude-1", ""},
		{"bedrock", "global.anthropic.claude-1", "1"},
		{"bedrock", "regional.anthropic.claude-1", ""},
		{"gemini", "gemini-1", "1"},
		{"vertex_ai", "claude-1", "3"},
		{"vertex_ai", "claude-2", "2"}, // resold
		{"gemini", "claude-2", ""},
		{"xai", "grok-1", "1"},
		{"openai", "grok-1", ""},
	} {
		got := ""
		if r := tab.Lookup(tt.provider, tt.key, time.Now()); r != nil {
			rate, _ := r.Rates.Base(Input)
			got = perMillionText(rate)
		}
		if got != tt.want {
			t.Errorf("%q of %s costs %q, want %q", tt.key, tt.provider, got, tt.want)
		}
	}
}

func TestTiersOfGenAIAreOfTheWholePrompt(t *testing.T) {
	l := parseGenAI(t, genAIModel(`{"id": "m", "prices": {
		"input_mtok": {"base": 1, "tiers": [{"start": 512000, "price": 4}, {"start": 199999, "price": 2}]},
		"output_mtok": {"base": 5, "tiers": [{"start": 512000, "price": 7}]},
		"cache_read_mtok": 0.1}}`))
	if len(l.Rows) != 1 {
		t.Fatal(l.Faults)
	}
	r := l.Rows[0]
	if want := []Tier{{200_000, true}, {512_000, false}}; !slices.Equal(r.Tiers, want) {
		t.Errorf("tiers %v, want %v", r.Tiers, want)
	}
	for tier, want := range []struct{ in, out, cached string }{{"1", "5", "0.1"}, {"2", "5", ""}, {"4", "7", ""}} {
		rateIs(t, r, Input, Standard, tier, want.in)
		rateIs(t, r, Output, Standard, tier, want.out)
		rateIs(t, r, CacheRead, Standard, tier, want.cached)
	}
}

func TestDatedPricesOfGenAIFollowOneAnother(t *testing.T) {
	l := parseGenAI(t, genAIModel(`{"id": "m", "prices": [
		{"prices": {"input_mtok": 1}},
		{"constraint": {"start_date": "2026-03-01"}, "prices": {"input_mtok": 2}},
		{"constraint": {"start_date": "2026-05-01", "type": "start_date"}, "prices": {"input_mtok": 3}},
		{"constraint": {"start_time": "01:00:00Z", "end_time": "04:00:00Z"}, "prices": {"input_mtok": 6}},
		{"constraint": {"start_time": "23:30:00+02:00", "end_time": "00:30:00Z"}, "prices": {"input_mtok": 7}}]}`))
	tab := NewTable(time.Time{}, l.Rows)
	for at, want := range map[string]string{
		"2020-01-01T12:00:00Z": "1",
		"2026-02-28T23:59:59Z": "7",
		"2026-03-01T12:00:00Z": "2",
		"2026-04-30T12:00:00Z": "2",
		"2026-05-01T00:30:00Z": "3",
		"2026-05-01T01:00:00Z": "6",
		"2026-05-01T03:59:59Z": "6",
		"2026-05-01T04:00:00Z": "3",
		"2026-05-01T21:29:59Z": "3",
		"2026-05-01T21:30:00Z": "7",
		"2026-05-02T00:29:59Z": "7",
	} {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		r := tab.Lookup("acme", "m", moment)
		if r == nil {
			t.Errorf("at %s: no row", at)
			continue
		}
		rate, _ := r.Rates.Base(Input)
		for _, o := range r.Timed {
			if o.in(moment) {
				rate, _ = o.Rates.Base(Input)
				break
			}
		}
		if got := perMillionText(rate); got != want {
			t.Errorf("at %s: %s, want %s", at, got, want)
		}
	}
}

func TestAModelOfGenAIThatCannotBeReadIsLeftOut(t *testing.T) {
	tests := []struct{ name, prices, want string }{
		{"an unknown price", `{"input_mtok": 1, "moon_phases": 2}`, "moon_phases"},
		{"a price below zero", `{"input_mtok": -1}`, "less than nothing"},
		{"a price in words", `{"input_mtok": "free"}`, "free"},
		{"a price that is a list", `{"input_mtok": [1]}`, "no number"},
		{"a price beyond counting", `{"input_mtok": 1e30}`, "range"},
		{"no prices", `null`, "no prices"},
		{"an empty list", `[]`, "no prices"},
		{"an unknown constraint", `[{"prices": {"input_mtok": 1}}, {"constraint": {"moon": "full"}, "prices": {"input_mtok": 2}}]`, "moon"},
		{"a day that is none", `[{"constraint": {"start_date": "2026-02-30"}, "prices": {"input_mtok": 2}}]`, "start date"},
		{"an hour that is none", `[{"prices": {"input_mtok": 1}}, {"constraint": {"start_time": "25:00:00Z", "end_time": "01:00:00Z"}, "prices": {"input_mtok": 2}}]`, "time of day"},
		{"half a minute", `[{"prices": {"input_mtok": 1}}, {"constraint": {"start_time": "01:00:30Z", "end_time": "02:00:00Z"}, "prices": {"input_mtok": 2}}]`, "whole minute"},
		{"some hours only", `[{"constraint": {"start_time": "01:00:00Z", "end_time": "02:00:00Z"}, "prices": {"input_mtok": 2}}]`, "some hours"},
		{"other things at some hours", `[{"prices": {"input_mtok": 1}}, {"constraint": {"start_time": "01:00:00Z", "end_time": "02:00:00Z"}, "prices": {"output_mtok": 2}}]`, "other things"},
		{"a span for nothing", `[{"prices": {"input_mtok": 1}}, {"constraint": {"start_date": "2026-01-01"}, "prices": {}}]`, "from 2026-01-01"},
		{"a tier in the middle of a token", `{"input_mtok": {"base": 1, "tiers": [{"start": 1.5, "price": 2}]}}`, "tier"},
		{"a tier for nothing", `{"input_mtok": {"base": 1, "tiers": [{"start": 1000}]}}`, "no number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := parseGenAI(t, genAIModel(`{"id": "m", "prices": `+tt.prices+`}, {"id": "good", "prices": {"input_mtok": 1}}`))
			if len(l.Rows) != 1 || l.Rows[0].Key != "good" {
				t.Errorf("%d rows", len(l.Rows))
			}
			if len(l.Faults) != 1 || l.Faults[0].Key != "m" || !strings.Contains(l.Faults[0].Reason, tt.want) {
				t.Errorf("faults %v, want %q in one", l.Faults, tt.want)
			}
		})
	}
}

func TestWhatIsNoTableOfGenAIIsAnError(t *testing.T) {
	for _, doc := range []string{``, `{`, `{}`, `"x"`, `[1]`, `[{"id": "a"}]`, `[{"models": []}]`, `{"as_of": "soon", "providers": []}`} {
		if l, err := ParseGenAI([]byte(doc)); !errors.Is(err, errNotGenAI) {
			t.Errorf("%s: %v, %v", doc, l, err)
		}
	}
}

// Whatever prices a model has, a row says the same as the text.
func TestEveryPriceOfGenAIKeepsItsValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		micro := rapid.Int64Range(0, 999_999_999).Draw(t, "price in millionths")
		text := fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6)
		doc := genAIModel(`{"id": "m", "prices": {"input_mtok": ` + text + `}}`)
		l, err := ParseGenAI([]byte(doc))
		if err != nil || len(l.Rows) != 1 {
			t.Fatal(err, l)
		}
		if got, _ := l.Rows[0].Rates.Base(Input); int64(got) != micro*1000 {
			t.Errorf("%s is %d femtodollars a token", text, got)
		}
	})
}

func TestAPublishedTableOfGenAI(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", "shared", "cases", "prices", "genai_prices_v2_git_2026-08-21.json"))
	if err != nil { // it does not stand beside every checkout
		data = builtinJSON
	}
	l, err := ParseGenAI(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Rows) < 2000 || len(l.Faults) > 3 {
		t.Errorf("%d rows, %v", len(l.Rows), l.Faults)
	}
}

func FuzzParseGenAI(f *testing.F) {
	f.Add([]byte(genAIModel(`{"id": "m", "match": {"or": [{"equals": "a"}, {"starts_with": "b"}]}, "prices": {"input_mtok": {"base": 1, "tiers": [{"start": 199999, "price": 2}]}}}`)))
	f.Add([]byte(genAIModel(`{"id": "m", "prices": [{"prices": {"input_mtok": 1}}, {"constraint": {"start_date": "2026-03-01"}, "prices": {"input_mtok": 2}}]}`)))
	f.Add([]byte(`{"as_of": "2026-01-01", "providers": [{"id": "aws", "fallback_model_providers": ["aws"], "models": [{"id": "regional.x", "prices": {"audio_hours": "1"}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ParseGenAI(data)
		if err != nil {
			return
		}
		checkRows(t, l)
		if more, err := builtinSupplement(); err != nil || more.complete(l.Rows) != nil {
			t.Fatal("the supplement cannot be applied")
		}
		Guard(l)
		checkRows(t, l)
	})
}

// checkRows checks what every loader promises.
func checkRows(t *testing.T, l *Layer) {
	t.Helper()
	for _, r := range l.Rows {
		if r.Key == "" || r.Provider == "" || !r.priced() || len(r.Tiers) > MaxTiers {
			t.Fatalf("the row %+v", r)
		}
		if !r.Until.IsZero() && !r.From.Before(r.Until) {
			t.Fatalf("a row in force from %s until %s", r.From, r.Until)
		}
		r.Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
			if u >= numUnits || s >= numServices || tier > len(r.Tiers) || rate < 0 {
				t.Fatalf("the rate %d of %s, %s, tier %d", rate, u, s, tier)
			}
			return true
		})
	}
	NewTable(l.AsOf, l.Rows)
}

func BenchmarkParseGenAI(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(builtinJSON)))
	for b.Loop() {
		if _, err := ParseGenAI(builtinJSON); err != nil {
			b.Fatal(err)
		}
	}
}
