package pricing

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// table has one model of OpenAI's, at so many dollars per million tokens.
func table(t testing.TB, usd string) *prices.Table {
	t.Helper()
	rate, err := money.ParseRatePerMillion(usd)
	if err != nil {
		t.Fatal(err)
	}
	r := &prices.Row{Key: "m", Provider: "openai"}
	r.Rates.Set(prices.Input, prices.Standard, 0, rate)
	r.Rates.Set(prices.Output, prices.Standard, 0, rate)
	return prices.NewTable(noon, []*prices.Row{r})
}

func pricer(t testing.TB, o Options) *Pricer {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func million(model string) *meter.Priced {
	return &meter.Priced{API: usage.OpenAIChat, Requested: model, Usage: usage.Usage{Input: 1e6}, At: noon}
}

func TestANewTablePricesTheNextCall(t *testing.T) {
	var current atomic.Pointer[prices.Table]
	current.Store(table(t, "1"))
	p := pricer(t, Options{Table: current.Load, Own: func() []*prices.Own {
		o, err := prices.NewOwn("own-*")
		if err != nil {
			t.Error(err)
			return nil
		}
		if err := o.Set("input", "5"); err != nil {
			t.Error(err)
		}
		return []*prices.Own{o}
	}})
	for _, usd := range []string{"1", "2", "3"} {
		current.Store(table(t, usd))
		if got, status := p.Price(million("m")); got.Short() != usd || status != meter.CostCalculated {
			t.Errorf("got %s %s, want %s", got, status, usd)
		}
		if got, _ := p.Price(million("own-1")); got.Short() != "5" {
			t.Errorf("the operator's price is %s", got)
		}
	}
}

func TestTablesAreReplacedWhileCallsArePriced(t *testing.T) {
	tables := []*prices.Table{table(t, "1"), table(t, "2")}
	var current atomic.Pointer[prices.Table]
	current.Store(tables[0])
	p := pricer(t, Options{Table: current.Load})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if got, _ := p.Price(million("m")); got != money.Dollar && got != 2*money.Dollar {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	for i := range 500 {
		current.Store(tables[i%2])
	}
	wg.Wait()
}

func TestPoliciesOfUnknownModels(t *testing.T) {
	of := func(input, output string) func() *prices.Own {
		return func() *prices.Own {
			o, err := prices.NewOwn("*")
			if err == nil {
				err = o.Set("input", input)
			}
			if err == nil {
				err = o.Set("output", output)
			}
			if err != nil {
				t.Error(err)
			}
			return o
		}
	}
	for _, tc := range []struct {
		name           string
		o              Options
		budget, always bool // denies
		cost           string
		status         meter.CostStatus
		known          bool
	}{
		{"nothing said", Options{}, true, false, "0", meter.CostUnpriced, false},
		{"unpriced", Options{Unknown: Unpriced}, false, false, "0", meter.CostUnpriced, false},
		{"deny", Options{Unknown: Deny}, true, true, "0", meter.CostUnpriced, false},
		{"zero", Options{Unknown: Zero, AnyModel: of("0", "0")}, false, false, "0", meter.CostCalculated, true},
		{"default", Options{Unknown: AtDefault, AnyModel: of("7", "9")}, false, false, "7", meter.CostCalculated, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tb := table(t, "1")
			tc.o.Table = func() *prices.Table { return tb }
			p := pricer(t, tc.o)
			if p.Denies(true) != tc.budget || p.Denies(false) != tc.always {
				t.Errorf("denies %t under a budget, %t without", p.Denies(true), p.Denies(false))
			}
			if got, status := p.Price(million("x")); got.Short() != tc.cost || status != tc.status {
				t.Errorf("got %s %s", got.Short(), status)
			}
			if _, ok := p.Expect(million("x"), 10, 10); ok != tc.known {
				t.Errorf("expected: %t", ok)
			}
			if _, ok := p.Worst(million("x"), 10, 10); ok != tc.known {
				t.Errorf("at worst: %t", ok)
			}
			// what is served counts; where nobody knows it, what was asked for
			q := million("m")
			q.Served = "x"
			if got, status := p.Price(q); got != money.Dollar || status != meter.CostCalculated {
				t.Errorf("an unknown served model: %s %s", got, status)
			}
		})
	}
}

func TestTheWorstIsNeverLessThanThePrice(t *testing.T) {
	p := Default()
	for _, model := range []string{"gpt-4o", "gpt-5", "gpt-5-mini", "gpt-4.1", "o3"} {
		for _, n := range []int64{1, 1000, 300_000} {
			q := &meter.Priced{API: usage.OpenAIChat, Requested: model, Usage: usage.Usage{Input: n, Output: n, CacheRead: n / 2, Reasoning: n / 2}, At: noon}
			cost, status := p.Price(q)
			worst, ok := p.Worst(q, n, n)
			expected, _ := p.Expect(q, n, n)
			if status != meter.CostCalculated || cost <= 0 || !ok || worst < cost || worst < expected {
				t.Errorf("%s, %d tokens: costs %s (%s), at worst %s, expected %s", model, n, cost, status, worst, expected)
			}
		}
	}
}

func TestModelsWithoutAPriceAreLoggedNowAndThen(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	tb := table(t, "1")
	p := pricer(t, Options{Table: func() *prices.Table { return tb }, Logger: zap.New(core)})
	ask := func(model string, at time.Time) {
		q := million(model)
		q.At = at
		p.Price(q)
	}
	for range 100 {
		ask("x", noon)
	}
	if logs.Len() != 1 {
		t.Errorf("one model is logged %d times", logs.Len())
	}
	for i := range 1000 {
		ask(string(rune('a'+i)), noon.Add(time.Second))
	}
	if logs.Len() > remindMost {
		t.Errorf("a minute has %d lines", logs.Len())
	}
	before := logs.Len()
	ask("x", noon.Add(remindEvery))
	if logs.Len() != before+1 {
		t.Error("the next minute says nothing")
	}
}

func BenchmarkPrice(b *testing.B) {
	p := Default()
	q := &meter.Priced{API: usage.OpenAIChat, Requested: "gpt-4o", Served: "gpt-4o-2024-08-06", Usage: usage.Usage{Input: 1000, Output: 500, CacheRead: 800}, At: noon}
	b.ReportAllocs()
	for b.Loop() {
		p.Price(q)
	}
}

// BenchmarkCall is what the pricing of a call takes: as it is expected to be, and as it was
// by the model that served it.
func BenchmarkCall(b *testing.B) {
	p := Default()
	q := &meter.Priced{API: usage.OpenAIChat, Requested: "gpt-4o-mini", TextOnly: true, At: noon}
	b.ReportAllocs()
	for b.Loop() {
		q.Served, q.Usage = "", usage.Usage{}
		p.Expect(q, 300, 1024)
		q.Served, q.Usage = "gpt-4o-mini-2024-07-18", usage.Usage{Input: 300, CacheRead: 100, Output: 200}
		p.Price(q)
	}
}
