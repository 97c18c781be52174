package limit

import (
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// pieces prices by the picture, by the character and by what a name costs at a host.
type pieces struct{ hosts map[string]money.USD }

func (p *pieces) Price(q *meter.Priced) (money.USD, meter.CostStatus) {
	usd, ok := p.Expect(q, 0, 0)
	if !ok {
		return 0, meter.CostUnpriced
	}
	return usd, meter.CostCalculated
}

func (p *pieces) Expect(q *meter.Priced, _, _ int64) (money.USD, bool) {
	if p.hosts != nil {
		usd, ok := p.hosts[q.Host]
		return usd, ok
	}
	size := money.USD(1)
	if q.Hints.ImageQuality == "hd" {
		size = 2
	}
	return money.Dollar * (size*money.USD(q.Usage.Images) + money.USD(q.Hints.Characters)), true
}

func (p *pieces) Worst(q *meter.Priced, input, output int64) (money.USD, bool) {
	return p.Expect(q, input, output)
}

func (*pieces) Denies(budget bool) bool { return budget }

func TestStrictAdmitsWhatIsBilledByThePiece(t *testing.T) {
	for _, tc := range []struct {
		name, path, body string
		hold             int64 // dollars
	}{
		{"pictures", "/v1/images/generations", `{"model":"m","prompt":"a cat","n":3}`, 3},
		{"dear pictures", "/v1/images/generations", `{"model":"m","prompt":"a cat","n":3,"quality":"hd"}`, 6},
		{"speech by the character", "/v1/audio/speech", `{"model":"m","input":"Hello"}`, 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			call := newCall(t, meter.New(), newRequest("POST", tc.path, tc.body, "Content-Type", "application/json"))
			l := newCostLimiter(t, Config{Mode: Strict, ConsumerBased: true}, Rule{Amount: "$1", Window: "day"})
			w, f := l.want(call, l.rules)
			if f != nil {
				t.Fatal(f)
			}
			if w.quote, f = l.quoteBy(&pieces{}, "", call, &w); f != nil {
				t.Fatal(f)
			}
			if w.writeCap || w.quote.hold != tc.hold*int64(money.Dollar) {
				t.Errorf("holds %s, cap to write: %t", money.USD(w.quote.hold), w.writeCap)
			}
			if tc.path != "/v1/images/generations" {
				return
			}
			e, takes := refused(l, []int64{w.quote.hold}, store.Result{Exceeded: true})
			if f = l.violated(e, takes, &w); !strings.Contains(f.Message, "fewer or smaller pictures fit") {
				t.Errorf("told %q", f.Message)
			}
		})
	}
}

func TestStrictLimitsOfTokens(t *testing.T) {
	l := newTestLimiter(t, Config{Mode: Strict, ConsumerBased: true, Limits: parse(t, "100k tokens per hour")})
	call := newCall(t, meter.New(), newRequest("POST", "/v1/images/generations", `{"model":"m","prompt":"a cat","n":2,"size":"1024x1024","quality":"low"}`, "Content-Type", "application/json"))
	if w, f := l.want(call, l.rules); f != nil || w.writeCap || w.output != 2*(272+300) {
		t.Errorf("of pictures: %+v, %v", w, f)
	}
	call = newCall(t, meter.New(), newRequest("POST", "/v1/audio/speech", `{"model":"m","input":"Hello"}`, "Content-Type", "application/json"))
	if _, f := l.want(call, l.rules); f == nil || f.Code != "request_not_bounded" || !strings.Contains(f.Message, "the length of the speech") {
		t.Errorf("of speech: %v", f)
	}
}

func TestNobodyHoldsASharedBudgetByAskingForMuch(t *testing.T) {
	for _, tc := range []struct{ path, body string }{
		{"/v1/images/generations", `{"model":"m","prompt":"a cat","n":1000}`},
		{"/v1/audio/speech", `{"model":"m","input":"` + strings.Repeat("a", 100_000) + `"}`},
	} {
		call := newCall(t, meter.New(), newRequest("POST", tc.path, tc.body, "Content-Type", "application/json"))
		for _, shared := range []bool{true, false} {
			l := newCostLimiter(t, Config{ConsumerBased: !shared}, Rule{Amount: "$10", Window: "day"})
			q, f := quoteOf(l, &pieces{}, call)
			if f != nil {
				t.Fatal(f)
			}
			if much := q.hold > 1_000*int64(money.Dollar) || q.hold == 1_000*int64(money.Dollar) && strings.Contains(tc.path, "images"); much == shared {
				t.Errorf("%s, shared %t: holds %s", tc.path, shared, money.USD(q.hold))
			}
		}
	}
}

func TestCallsToSeveralVendorsAreTheDearest(t *testing.T) {
	own := &pieces{hosts: map[string]money.USD{"api.groq.com": 3, "": 2}}
	none := &meter.Priced{}
	for _, tc := range []struct {
		name  string
		ahead *llmapp.Ahead
		want  money.USD
		known bool
	}{
		{"of two, one of which has it", &llmapp.Ahead{Upstreams: []string{"api.groq.com", "api.openai.com"}}, 3, true},
		{"of two, none of which has it", &llmapp.Ahead{Upstreams: []string{"api.x.ai", "api.openai.com"}}, 0, false},
		{"of one that is known and others", &llmapp.Ahead{Upstreams: []string{"", "api.groq.com"}}, 3, true},
		{"not known", &llmapp.Ahead{Upstreams: []string{""}}, 2, true},
		{"of prices further in", &llmapp.Ahead{Pricers: []meter.Pricer{&pieces{hosts: map[string]money.USD{"api.x.ai": 9}}}, Upstreams: []string{"api.x.ai", "api.groq.com"}}, 9, true},
		{"of prices that all meet", &llmapp.Ahead{Pricers: []meter.Pricer{own}, Always: true, Upstreams: []string{"api.x.ai", "api.groq.com"}}, 3, true},
	} {
		p, host := Foresee(tc.ahead, own)
		if usd, ok := p.Expect(none, 1, 1); usd != tc.want || ok != tc.known || host != "" {
			t.Errorf("%s: %d, %t, towards %q", tc.name, usd, ok, host)
		}
		if usd, ok := p.Worst(none, 1, 1); usd != tc.want || ok != tc.known {
			t.Errorf("%s: %d, %t at worst", tc.name, usd, ok)
		}
		if usd, status := p.Price(none); usd != tc.want || (status != meter.CostUnpriced) != tc.known {
			t.Errorf("%s: %d, %s", tc.name, usd, status)
		}
	}
	if p, host := Foresee(nil, own); p != meter.Pricer(own) || host != "" {
		t.Errorf("nothing known: %v %q", p, host)
	}
	if p, host := Foresee(&llmapp.Ahead{Upstream: "api.groq.com", Upstreams: []string{"api.groq.com"}}, own); p != meter.Pricer(own) || host != "api.groq.com" {
		t.Errorf("one upstream: %v %q", p, host)
	}
}
