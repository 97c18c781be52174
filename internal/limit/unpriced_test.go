package limit

import (
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// guessing is a pricer that takes calls without a price for a cent a token.
type guessing struct{ cents }

func (guessing) Presume(_ *meter.Priced, input, output int64) money.USD {
	return money.Dollar / 100 * money.USD(input+output)
}

func TestWhatACallWithoutAPriceUsedIsCharged(t *testing.T) {
	const mill = money.Dollar / 1000
	million := usage.Usage{Input: 20, Output: 1_000_000}
	knows, lax := &cents{models: "m", rate: mill}, &cents{models: "x"}
	for _, tc := range []struct {
		name   string
		pricer meter.Pricer
		o      meter.Outcome
		hold   money.USD
		want   money.USD
	}{
		{
			"reported, at the price it was admitted by",
			&candidates{[]meter.Pricer{knows, lax}},
			meter.Outcome{Usage: million, Source: meter.SourceReported},
			(askTokens + 2*1024) * mill, (20 + 2_000_000) * mill,
		},
		{
			"reported to be less than expected",
			&candidates{[]meter.Pricer{knows, lax}},
			meter.Outcome{Usage: usage.Usage{Input: 1, Output: 1}, Source: meter.SourceReported},
			(askTokens + 2*1024) * mill, 3 * mill,
		},
		{
			"estimated, no less than expected",
			&candidates{[]meter.Pricer{knows, lax}},
			meter.Outcome{Usage: usage.Usage{Input: 1, Output: 1}, Source: meter.SourceEstimated},
			(askTokens + 2*1024) * mill, (askTokens + 2*1024) * mill,
		},
		{
			"presumed",
			&candidates{[]meter.Pricer{lax, &guessing{}}},
			meter.Outcome{Usage: usage.Usage{Input: 20, Output: 77_500}, Source: meter.SourceEstimated},
			(askTokens + 1024) * money.Dollar / 100, 77_520 * money.Dollar / 100,
		},
		{
			"presumed, of what was reported", &guessing{},
			meter.Outcome{Usage: usage.Usage{Input: 1, Output: 1}, Source: meter.SourceReported},
			(askTokens + 1024) * money.Dollar / 100, 2 * money.Dollar / 100,
		},
		{"let pass by the operator's word", lax, meter.Outcome{Usage: million, Source: meter.SourceReported}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			call := newCall(t, meter.New(), newRequest("POST", "/v1/chat/completions", `{"model":"m",`+ask+`}`))
			l := newCostLimiter(t, Config{ConsumerBased: true}, Rule{Amount: "$10", Window: "day"})
			q, f := quoteOf(l, tc.pricer, call)
			if f != nil {
				t.Fatal(f)
			}
			tc.o.CostStatus = meter.CostUnpriced
			e := &entry{l: l, rules: l.rules, quote: q}
			if got := money.USD(e.cost(&tc.o)); money.USD(q.hold) != tc.hold || got != tc.want {
				t.Errorf("holds %s and is charged %s, want %s and %s", money.USD(q.hold), got, tc.hold, tc.want)
			}
		})
	}
}
