package prices

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// TestEveryPriceOfLiteLLMIsRead takes the table's field names apart in another way than
// the loader does.
func TestEveryPriceOfLiteLLMIsRead(t *testing.T) {
	path := liteLLMFull
	if _, err := os.Stat(path); err != nil {
		path = "testdata/litellm.json"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]map[string]json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	layer := parseLayer(t, path)
	if len(layer.Faults) > 0 {
		t.Errorf("faults: %v", layer.Faults)
	}
	rows := make(map[string]*Row)
	for _, r := range layer.Rows {
		rows[r.Key] = r
	}
	shape := regexp.MustCompile(`^(.+?)(?:_above_(\d+)k_tokens)?(?:_(flex|priority|batches))?$`)
	// What is no price of a call, or is billed in a currency of the vendor's own.
	other := regexp.MustCompile(`_dbu_|_interval$|_gb_per_day$|_per_credit$|_1080p$|^search_context|_per_1k_tokens$|cache_hit$`)
	seen := 0
	for key, fields := range doc {
		if key == "sample_spec" || key == "fallback_generalizations" {
			continue
		}
		for name, v := range fields {
			if !strings.Contains(name, "cost") || other.MatchString(name) {
				continue
			}
			parts := shape.FindStringSubmatch(name)
			unit, ok := liteLLMUnits[parts[1]]
			if !ok {
				t.Errorf("%s: no unit of %s", key, name)
				continue
			}
			tier := 0
			if parts[2] != "" {
				n, _ := strconv.ParseInt(parts[2], 10, 64)
				tier = 1 + slices.IndexFunc(rows[key].Tiers, func(t Tier) bool { return t.Above == n*1000 })
			}
			service := map[string]Service{"": Standard, "flex": Flex, "priority": Priority, "batches": Batch}[parts[3]]
			want, err := money.ParseRate(strings.Trim(string(v), `"`))
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := rows[key].Rates.Get(unit, service, tier); !ok || got != want {
				t.Errorf("%s of %s: got %d, %v, want %d", name, key, got, ok, want)
			}
			seen++
		}
	}
	if seen < 200 {
		t.Errorf("only %d prices", seen)
	}
}

func TestQuirksOfLiteLLMsTable(t *testing.T) {
	tests := []struct {
		name, fields string
		check        func(r *Row) bool
	}{
		{
			"numbers as strings and with fractions", `"input_cost_per_token":"0.0000025","max_input_tokens":"128000","max_output_tokens":4096.0`,
			func(r *Row) bool {
				rate, _ := r.Rates.Base(Input)
				return rate == 2_500_000_000 && r.MaxInput == 128_000 && r.MaxOutput == 4096
			},
		},
		{
			"the noise of binary fractions", `"input_cost_per_token":2.9999900000000002e-06`,
			func(r *Row) bool { rate, _ := r.Rates.Base(Input); return rate == 2_999_990_000 },
		},
		{
			"limits that are no numbers", `"max_input_tokens":"the most","max_tokens":8192`,
			func(r *Row) bool { return r.MaxInput == 8192 && r.ContextWindow == 8192 },
		},
		{
			"zero is a price, null and absence are none", `"input_cost_per_token":0,"output_cost_per_token":null`,
			func(r *Row) bool {
				_, in := r.Rates.Base(Input)
				_, out := r.Rates.Base(Output)
				return in && !out
			},
		},
		{
			"an entry of the provider's that is no number", `"provider_specific_entry":{"bedrock_invocation_schema":"titan_v2","fast":1.5}`,
			func(r *Row) bool { return r.Fast == Ratio{3, 2} && r.GeoUS == Ratio{} },
		},
		{
			"tiers by range", `"tiered_pricing":[{"range":[0,32000.0],"input_cost_per_token":1e-6},{"range":["32000.0",1.28e5],"input_cost_per_token":2e-6,"output_cost_per_reasoning_token":3e-6}]`,
			func(r *Row) bool {
				rate, ok := r.Rates.Get(Reasoning, Standard, 1)
				return slices.Equal(r.Tiers, []Tier{{32_000, false}}) && ok && rate == 3_000_000_000
			},
		},
		{
			"prices by results, the dearest", `"tiered_pricing":[{"max_results_range":[0,25],"input_cost_per_query":0.005},{"max_results_range":[26,100],"input_cost_per_query":0.025}]`,
			func(r *Row) bool { rate, _ := r.Rates.Base(Query); return rate == 25_000_000_000_000 },
		},
		{
			"an inclusive threshold", `"input_cost_per_token_above_200k_tokens":1e-6,"threshold_inclusive":true`,
			func(r *Row) bool { return slices.Equal(r.Tiers, []Tier{{200_000, true}}) },
		},
		{
			"a second name gives way", `"cache_read_input_token_cost":1e-7,"input_cost_per_token_cache_hit":2e-7`,
			func(r *Row) bool { rate, _ := r.Rates.Base(CacheRead); return rate == 100_000_000 },
		},
		{
			"in any order", `"input_cost_per_token_cache_hit":2e-7,"cache_read_input_token_cost":1e-7`,
			func(r *Row) bool { rate, _ := r.Rates.Base(CacheRead); return rate == 100_000_000 },
		},
		{
			"a second name alone", `"input_cost_per_token_cache_hit":2e-7`,
			func(r *Row) bool { rate, _ := r.Rates.Base(CacheRead); return rate == 200_000_000 },
		},
		{
			"searches of files by the thousand", `"file_search_cost_per_1k_calls":2.5`,
			func(r *Row) bool { rate, _ := r.Rates.Base(FileSearch); return rate == 2_500_000_000_000 },
		},
		{
			"a day it is in force from", `"effective_from":"2026-10-01"`,
			func(r *Row) bool { return r.From.Equal(time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)) },
		},
		{
			"hours off-peak", `"input_cost_per_token":2e-6,"off_peak_pricing":{"hours_utc":"16:30-00:30","weekdays":["Sat",7],"weekday_timezone":"Asia/Shanghai","input_cost_per_token":1e-6}`,
			func(r *Row) bool {
				o := r.Timed[0]
				rate, _ := o.Rates.Base(Input)
				return len(r.Timed) == 1 && slices.Equal(o.Windows, []Window{{990, 30, 1<<time.Saturday | 1<<time.Sunday}}) &&
					o.Zone.String() == "Asia/Shanghai" && rate == 1_000_000_000
			},
		},
		{
			"hours without prices", `"off_peak_pricing":{"hours_utc":"16:30-00:30"}`,
			func(r *Row) bool { return r.Timed == nil },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if r := row(t, "m", `{"litellm_provider":"p",`+tt.fields+`}`); !tt.check(r) {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func TestRowsThatCannotBeReadAreLeftOut(t *testing.T) {
	tests := []struct{ name, fields, want string }{
		{"no provider", `"mode":"chat"`, "no litellm_provider"},
		{"a price that is a word", `"litellm_provider":"p","input_cost_per_token":"low"`, `input_cost_per_token: price "low"`},
		{"a price that is an object", `"litellm_provider":"p","input_cost_per_token":{}`, "not a decimal number"},
		{"a price below nothing", `"litellm_provider":"p","output_cost_per_token":-1`, "less than nothing"},
		{"a search that costs a word", `"litellm_provider":"p","search_context_cost_per_query":{"search_context_size_low":"x"}`, "search_context_cost_per_query"},
		{"a multiplier of zero", `"litellm_provider":"p","provider_specific_entry":{"fast":0}`, "must be above 0"},
		{"too fine a multiplier", `"litellm_provider":"p","regional_processing_uplift_multiplier_eu":1.0001`, "three decimals"},
		{"too large a multiplier", `"litellm_provider":"p","regional_endpoint_uplift_multiplier":61`, "at most 60"},
		{"no day", `"litellm_provider":"p","effective_from":"soon"`, "neither a day nor a time"},
		{"tiers that are no list", `"litellm_provider":"p","tiered_pricing":3`, "no list"},
		{"a tier without a range", `"litellm_provider":"p","tiered_pricing":[{"input_cost_per_token":1}]`, "no number of tokens"},
		{"hours that are none", `"litellm_provider":"p","off_peak_pricing":{"hours_utc":"25:00-26:00","input_cost_per_token":1}`, "write it as"},
		{"a weekday that is none", `"litellm_provider":"p","off_peak_pricing":{"hours_utc":"0:00-1:00","weekdays":[8]}`, "weekday 8 is unknown"},
		{"no weekday", `"litellm_provider":"p","off_peak_pricing":{"hours_utc":"0:00-1:00","weekdays":[]}`, "no weekday"},
		{"a zone that is none", `"litellm_provider":"p","off_peak_pricing":{"weekday_timezone":"Moon/Sea"}`, "unknown"},
		{"off-peak of a word", `"litellm_provider":"p","off_peak_pricing":"yes"`, "no object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := ParseLiteLLM([]byte(`{"bad":{` + tt.fields + `},"good":{"litellm_provider":"p"},"sample_spec":{},"last_updated":3}`))
			if err != nil || len(l.Rows) != 1 || len(l.Faults) != 1 {
				t.Fatal(err, l)
			}
			if f := l.Faults[0]; f.Key != "bad" || !strings.Contains(f.Reason, tt.want) {
				t.Errorf("got %q, want %q", f.Reason, tt.want)
			}
		})
	}
}

func TestDocumentsThatAreNoTableAreRefused(t *testing.T) {
	for _, doc := range []string{"", "[]", "3", `{"a":`, "{}", `{"sample_spec":{}}`, "<html>"} {
		if l, err := ParseLiteLLM([]byte(doc)); !errors.Is(err, errNotLiteLLM) {
			t.Errorf("%q: got %v, %v", doc, l, err)
		}
	}
}

func FuzzParseLiteLLM(f *testing.F) {
	data, err := os.ReadFile("testdata/litellm.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"m":{"litellm_provider":"p","input_cost_per_token_above_9k_tokens_flex":1e-6,"max_tokens":1e99,
		"tiered_pricing":[{"range":[0,1e3],"input_cost_per_token":"1"},{"max_results_range":[1],"input_cost_per_query":2}],
		"off_peak_pricing":{"windows":[{"hours_utc":["23:00-01:00"],"weekdays":["mon",7]}],"output_cost_per_token":1,"weekday_timezone":"UTC"},
		"provider_specific_entry":{"fast":"6"},"effective_from":"2026-01-01"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ParseLiteLLM(data)
		if err != nil {
			return
		}
		table := NewTable(l.AsOf, l.Rows)
		b := mustBook(t, table, Options{})
		table.All(func(r *Row) bool {
			r.Rates.All(func(u Unit, s Service, tier int, rate money.Rate) bool {
				if rate < 0 || tier > len(r.Tiers) || s >= numServices || u >= numUnits {
					t.Errorf("%s: %s %s %d: %d", r.Key, u, s, tier, rate)
				}
				return true
			})
			c := &Call{Provider: r.Provider, Requested: r.Key, Usage: tokens(5000, 5000), At: noon}
			if got := b.Price(c); got.USD < 0 || got.Status == Unpriced && got.USD != 0 {
				t.Errorf("%s: %+v", r.Key, got)
			}
			return true
		})
	})
}

func FuzzResolve(f *testing.F) {
	b := mustBook(f, someLiteLLM(f), Options{Aliases: map[string]string{"a": "gpt-5"}})
	for _, name := range []string{"gpt-5-2026-01-01", "ft:gpt-4o:x", "arn%3Aaws%3A:inference-profile/us.", "a:free", "publishers/x/models/", "@default", "-20260101", "%zz"} {
		f.Add("openai", name)
		f.Add("bedrock", name)
		f.Add("", name)
	}
	f.Fuzz(func(t *testing.T, provider, name string) {
		m := b.Resolve(provider, name, "", noon)
		if m.Row == nil && (m.Key != "" || m.Why == "") {
			t.Errorf("got %+v", m)
		}
		if again := b.Resolve(provider, name, name, noon); again != m {
			t.Errorf("got %+v, then %+v", m, again)
		}
	})
}
