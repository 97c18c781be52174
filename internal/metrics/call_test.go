package metrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// countAll counts something in each metric.
func countAll(s *Set) {
	s.Ended(&Call{
		Consumer: Consumer{"app-a", true}, API: "openai.chat", Status: 200, Source: "reported", Model: "gpt-5",
		Usage:         &usage.Usage{Input: 100, Output: 50, CacheRead: 10, CacheWrite5m: 3, CacheWrite1h: 4, Reasoning: 20},
		Other:         []usage.ModelUsage{{Model: "gpt-image-1", Usage: usage.Usage{Input: 7, Output: 8}}},
		ExpectedInput: 90, ExpectedOutput: 1024, Cost: money.Dollar / 4, Unpriced: true, Approximate: true,
	})
	s.Refused("tier", "tokens per hour", false)
	s.Threshold(&Consumer{"app-a", true}, "tier", "usd per day", 80)
	s.AuthFailed("expired")
	s.StoreOp(Reserve, time.Millisecond, store.ErrUnavailable)
	n := func() int64 { return 3 }
	s.SetGauges(Gauges{Holds: n, Drains: n, BodyBytes: n, Entities: n, Pending: n, Outage: func() bool { return true }})
	s.SetKeys(func() (KeysState, bool) {
		return KeysState{Store: "redis", Known: 12, Age: 1500 * time.Millisecond}, true
	})
	s.KeysReread()
	s.SetTable(func() Table { return Table{AsOf: time.Unix(1_800_000_000, 0), ActivatedAfter: 2} })
}

func TestCallIsCountedByWhatItUsed(t *testing.T) {
	s := New()
	countAll(s)
	expect(t, s, "llm_requests_total", map[string]float64{"api=openai.chat,consumer=app-a,status=2xx": 1})
	expect(t, s, "llm_tokens_total", map[string]float64{
		"consumer=app-a,kind=input,model=gpt-5":        100,
		"consumer=app-a,kind=output,model=gpt-5":       50,
		"consumer=app-a,kind=cache_read,model=gpt-5":   10,
		"consumer=app-a,kind=cache_write,model=gpt-5":  7,
		"consumer=app-a,kind=reasoning,model=gpt-5":    20,
		"consumer=app-a,kind=input,model=gpt-image-1":  7,
		"consumer=app-a,kind=output,model=gpt-image-1": 8,
	})
	expect(t, s, "llm_cost_usd_total", map[string]float64{"consumer=app-a,model=gpt-5": .25})
	expect(t, s, "llm_cost_approximate_total", map[string]float64{"model=gpt-5": 1})
	expect(t, s, "llm_cost_unpriced_total", map[string]float64{"model=gpt-5": 1})
	expect(t, s, "llm_estimate_expected_tokens_total", map[string]float64{"kind=input,model=gpt-5": 90, "kind=output,model=gpt-5": 1024})
	expect(t, s, "llm_estimate_reported_tokens_total", map[string]float64{"kind=input,model=gpt-5": 100, "kind=output,model=gpt-5": 50})
	expect(t, s, "llm_usage_source_total", map[string]float64{"source=reported": 1})
	expect(t, s, "llm_cost_table_as_of_timestamp_seconds", map[string]float64{"": 1_800_000_000})
	expect(t, s, "llm_store_outage", map[string]float64{"": 1})
	expect(t, s, "llm_keys", map[string]float64{"store=redis": 12})
	expect(t, s, "llm_keys_age_seconds", map[string]float64{"store=redis": 1.5})
	expect(t, s, "llm_keys_rereads_total", map[string]float64{"": 1})
}

func TestCallByHowItEnded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		call   Call
		status string
		source string
	}{
		{"answered", Call{Status: 200, Source: "reported"}, "2xx", "reported"},
		{"switched", Call{Status: 101, Source: "estimated"}, "1xx", "estimated"},
		{"refused by the provider", Call{Status: 429, Source: "none"}, "4xx", "none"},
		{"failed", Call{Status: 502, Source: "none"}, "5xx", "none"},
		{"client gone", Call{Status: 499, Source: "none"}, "4xx", "none"},
		{"never answered", Call{Source: "none"}, "none", "none"},
		{"with a status of its own making", Call{Status: 999, Source: "none"}, "none", "none"},
		{"refused by a limiter", Call{Status: 429, Refused: true, Source: "none"}, "refused", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New()
			tt.call.API, tt.call.Usage = "openai.chat", new(usage.Usage)
			s.Ended(&tt.call)
			expect(t, s, "llm_requests_total", map[string]float64{"api=openai.chat,consumer=default,status=" + tt.status: 1})
			want := map[string]float64{}
			if tt.source != "" {
				want["source="+tt.source] = 1
			}
			expect(t, s, "llm_usage_source_total", want)
			expect(t, s, "llm_tokens_total", nil)
		})
	}
}

func TestCostIsSummedToThePicodollar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d dollars
		var whole, rest int64
		for _, n := range rapid.SliceOf(rapid.Int64Range(0, math.MaxInt64)).Draw(t, "amounts") {
			d.add(money.USD(n))
			whole += n / int64(money.Dollar)
			rest += n % int64(money.Dollar)
		}
		whole, rest = whole+rest/int64(money.Dollar), rest%int64(money.Dollar)
		if d.whole != whole || int64(d.rest) != rest {
			t.Fatalf("%d dollars and %d, want %d and %d", d.whole, d.rest, whole, rest)
		}
	})
}

func TestCallWithoutUseMakesNoSeries(t *testing.T) {
	s := New()
	for _, cost := range []money.USD{0, -1} {
		s.Ended(&Call{Status: 200, Source: "none", Model: "m", Usage: new(usage.Usage), Cost: cost})
	}
	for _, name := range []string{"llm_tokens_total", "llm_cost_usd_total", "llm_cost_unpriced_total"} {
		expect(t, s, name, nil)
	}
}

func TestCallThatCostsWithoutTokens(t *testing.T) {
	s := New()
	s.Ended(&Call{Status: 200, Source: "reported", Model: "dall-e-3", Usage: &usage.Usage{Images: 2}, Cost: money.Dollar})
	s.Ended(&Call{Status: 200, Source: "none", Model: "batch", Usage: new(usage.Usage), Unpriced: true})
	expect(t, s, "llm_cost_usd_total", map[string]float64{"consumer=default,model=dall-e-3": 1})
	expect(t, s, "llm_cost_unpriced_total", map[string]float64{"model=other": 1})
	expect(t, s, "llm_tokens_total", nil)
}

func TestInventedConsumersShareOneLabel(t *testing.T) {
	s := New()
	for i := range 10_000 {
		for _, named := range []bool{false, true} {
			s.Ended(&Call{
				Consumer: Consumer{fmt.Sprintf("app-%d-%v", i, named), named}, API: "openai.chat", Status: 200,
				Source: "reported", Model: "gpt-5", Usage: &usage.Usage{Input: 1},
			})
		}
	}
	for _, name := range []string{"llm_requests_total", "llm_tokens_total"} {
		total := 0.
		got := values(t, s, name)
		for labels, v := range got {
			total += v
			if strings.Contains(labels, "false") {
				t.Errorf("a consumer that nobody named: %s", labels)
			}
		}
		if len(got) != consumersMost+1 || total != 20_000 {
			t.Errorf("%s: %d series, %v in all; want %d and 20000", name, len(got), total, consumersMost+1)
		}
	}
}

func TestInventedModelsShareOneLabel(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		most         int
	}{
		{"that answers name", "reported", modelsMost + 1},
		{"that nobody answers for", "estimated", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New()
			for i := range 10_000 {
				s.Ended(&Call{Status: 200, Source: tt.source, Model: fmt.Sprintf("m-%d", i), Usage: &usage.Usage{Input: 1}, ExpectedInput: 1, Cost: 1})
			}
			total := 0.
			got := values(t, s, "llm_tokens_total")
			for _, v := range got {
				total += v
			}
			if len(got) != tt.most || total != 10_000 {
				t.Errorf("%d series with %v tokens, want %d with 10000", len(got), total, tt.most)
			}
			if n := len(values(t, s, "llm_cost_usd_total")); n != tt.most {
				t.Errorf("%d series of costs", n)
			}
			if n := len(s.models.names); n > namesMost {
				t.Errorf("%d names are remembered", n)
			}
		})
	}
}

func TestNamesThatWouldBreakAScrapeAreOther(t *testing.T) {
	s := New()
	for _, name := range []string{"app-\xff", "app-\xfe", Other} {
		s.Ended(&Call{Consumer: Consumer{name, true}, Status: 200, Source: "reported", Model: "m-\xff", Usage: &usage.Usage{Input: 1}, Cost: 1})
	}
	expect(t, s, "llm_tokens_total", map[string]float64{"consumer=other,kind=input,model=other": 3})
}

func TestConsumersTimesModelsAreBounded(t *testing.T) {
	s := New()
	for c := range 200 {
		for m := range 100 {
			s.Ended(&Call{
				Consumer: Consumer{fmt.Sprintf("app-%d", c), true}, Status: 200, Source: "reported",
				Model: fmt.Sprintf("m-%d", m), Usage: &usage.Usage{Output: 1}, Cost: 1,
			})
		}
	}
	total := 0.
	got := values(t, s, "llm_tokens_total")
	for _, v := range got {
		total += v
	}
	if len(got) > pairsMost+200 || total != 20_000 {
		t.Errorf("%d series, %v tokens", len(got), total)
	}
	if n := len(values(t, s, "llm_cost_usd_total")); n != len(got) {
		t.Errorf("%d series of costs, want %d", n, len(got))
	}
}

func TestCountsAreKeptFromManyGoroutines(t *testing.T) {
	s := New()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				s.Ended(&Call{
					Consumer: Consumer{fmt.Sprintf("app-%d", i%7), true}, API: "x", Status: 200, Source: "reported",
					Model: fmt.Sprintf("m-%d", (g+i)%11), Usage: &usage.Usage{Input: 2}, Cost: money.Dollar / 2,
				})
			}
		})
	}
	wg.Wait()
	for name, want := range map[string]float64{"llm_tokens_total": 8000, "llm_requests_total": 4000, "llm_cost_usd_total": 2000} {
		total := 0.
		for _, v := range values(t, s, name) {
			total += v
		}
		if total != want {
			t.Errorf("%s: %v in all, want %v", name, total, want)
		}
	}
}

func TestStoreOperations(t *testing.T) {
	s := New()
	for _, err := range []error{
		nil, fmt.Errorf("x: %w", store.ErrFull), fmt.Errorf("x: %w", store.ErrUnavailable), errors.New("x"),
		fmt.Errorf("x: %w: %w", store.ErrUnavailable, context.Canceled),
	} {
		s.StoreOp(Renew, time.Millisecond, err)
	}
	expect(t, s, "llm_store_seconds", map[string]float64{"op=renew": 5})
	expect(t, s, "llm_store_errors_total", map[string]float64{
		"op=renew,reason=full": 1, "op=renew,reason=unavailable": 1, "op=renew,reason=other": 1,
	})
}

func TestThresholdOfASharedCounterHasNoConsumer(t *testing.T) {
	s := New()
	s.Threshold(nil, "tier", "usd per day", 100)
	s.Threshold(&Consumer{"made-up", false}, "tier", "usd per day", 80)
	expect(t, s, "llm_thresholds_total", map[string]float64{
		"consumer=,limiter=tier,percent=100,rule=usd per day":     1,
		"consumer=other,limiter=tier,percent=80,rule=usd per day": 1,
	})
}

func TestGaugesOfWhatIsNotThereHaveNoSeries(t *testing.T) {
	s := New()
	countAll(s)
	s.SetGauges(Gauges{})
	s.SetTable(nil)
	s.SetKeys(func() (KeysState, bool) { return KeysState{}, false })
	got := scrape(t, s)
	for _, m := range all {
		if m.kind == gauge && got[m.name] != nil {
			t.Errorf("%s is there", m.name)
		}
	}
}
