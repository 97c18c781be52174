package limit

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// cents prices every token of the models it knows, output twice as high as input; at
// worst it is three times as dear.
type cents struct {
	models string // separated by blanks
	rate   money.USD
	denies bool
}

func (c *cents) knows(model string) bool {
	return model != "" && strings.Contains(" "+c.models+" ", " "+model+" ")
}

func (c *cents) Price(p *meter.Priced) (money.USD, meter.CostStatus) {
	if !c.knows(p.Served) && !c.knows(p.Requested) {
		return 0, meter.CostUnpriced
	}
	return c.rate * money.USD(p.Usage.Input+2*p.Usage.Output), meter.CostCalculated
}

func (c *cents) Expect(p *meter.Priced, input, output int64) (money.USD, bool) {
	return c.rate * money.USD(input+2*output), c.knows(p.Requested)
}

func (c *cents) Worst(p *meter.Priced, input, output int64) (money.USD, bool) {
	return 3 * c.rate * money.USD(input+2*output), c.knows(p.Requested)
}

func (c *cents) Denies(budget bool) bool { return c.denies && budget }

func TestAmountsOfDollars(t *testing.T) {
	for _, tc := range []struct {
		text string
		want money.USD
		err  string
	}{
		{text: "$10", want: 10 * money.Dollar},
		{text: "$0.10", want: money.Dollar / 10},
		{text: "$1_000", want: 1000 * money.Dollar},
		{text: "$1_000_000", want: maxDollars},
		{text: "$0.000000000001", want: money.Picodollar},
		{text: "10", err: "has no dollar sign"},
		{text: "0.10", err: "has no dollar sign"},
		{text: "10k", err: "has no dollar sign"},
		{text: "$", err: "not an amount of dollars"},
		{text: "$10k", err: "not an amount of dollars"},
		{text: "$1e3", err: "not an amount of dollars"},
		{text: "$0", err: "must be greater than zero"},
		{text: "$-1", err: "must be greater than zero"},
		{text: "$1_000_000.01", err: "larger than $1_000_000"},
		{text: "$0.0000000000001", err: "finer than a picodollar"},
	} {
		got, err := parseDollars(tc.text)
		switch {
		case tc.err == "" && (err != nil || got != int64(tc.want)):
			t.Errorf("%s: got %d, %v", tc.text, got, err)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), tc.text)):
			t.Errorf("%s: error %v, want it quoted and %q", tc.text, err, tc.err)
		}
	}
}

// newCostLimiter is a limiter of dollars that no app knows.
func newCostLimiter(t testing.TB, c Config, limits ...Rule) *Limiter {
	t.Helper()
	c.Limits = limits
	l, err := newLimiter(&c, CostLimit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestUnitOfDollarsNeedNotBeSaid(t *testing.T) {
	l := newCostLimiter(t, Config{}, Rule{Amount: "$10", Window: "day"}, Rule{Amount: "$1", Unit: USD, Window: "hour"})
	if l.rules[0].words != "usd per day" || l.rules[0].limit != int64(10*money.Dollar) {
		t.Errorf("got %q of %d", l.rules[0].words, l.rules[0].limit)
	}
	for _, tc := range []struct {
		name string
		c    Config
		want string
	}{
		{"tokens", Config{Limits: []Rule{{Amount: "10", Unit: Tokens, Window: "day"}}}, `unit "tokens" is none of usd`},
		{"fields", Config{UsageFields: []string{"usage.total"}, Limits: []Rule{{Amount: "$10", Window: "day"}}}, "usage_fields do not tell input from output"},
		{"nothing", Config{}, "limit $10 per day"},
	} {
		if _, err := newLimiter(&tc.c, CostLimit); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	if _, err := newLimiter(&Config{Limits: []Rule{{Amount: "$10", Unit: USD, Window: "day"}}}, TokenLimit); err == nil {
		t.Error("token_limit takes dollars")
	}
}

// quoteOf is what a call may cost, as a limiter is told.
func quoteOf(l *Limiter, p meter.Pricer, call *meter.Call) (*quote, *Refusal) {
	w, f := l.want(call, l.rules)
	if f != nil {
		return nil, f
	}
	return l.quoteBy(p, "", call, &w)
}

func TestWhatCallsHoldOfABudget(t *testing.T) {
	const rate = money.Dollar / 1000
	for _, tc := range []struct {
		name, body string
		mode       Mode
		shared     bool
		models     string
		hold, more int64 // in thousandths of a dollar
	}{
		{name: "charge_after holds nothing", mode: ChargeAfter, body: `"max_tokens":5`},
		{name: "reserve holds what is expected", mode: Reserve, hold: askTokens + 2*1024},
		{name: "reserve holds no more than the cap", mode: Reserve, body: `"max_tokens":5`, hold: askTokens + 10},
		{name: "reserve holds the dearer of two models", mode: Reserve, body: `"max_tokens":5,"models":["m","n"]`, models: "m n", hold: askTokens + 1 + 10}, // a token for the names
		{name: "reserve holds what is usual of a shared budget", mode: Reserve, shared: true, body: `"max_tokens":1000000`, hold: 2 * 4096},
		{name: "strict holds the worst", mode: Strict, body: `"max_tokens":5`, hold: -5},
		{name: "strict holds the least cap where there is none, and more", mode: Strict, hold: -16, more: 3 * 2 * (4096 - 16)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			body := `{"model":"m",` + ask
			if tc.body != "" {
				body += "," + tc.body
			}
			if tc.models == "" {
				tc.models = "m"
			}
			call := newCall(t, meter.New(), newRequest("POST", "/v1/chat/completions", body+"}"))
			l := newCostLimiter(t, Config{Mode: tc.mode, ConsumerBased: !tc.shared}, Rule{Amount: "$10", Window: "day"})
			q, f := quoteOf(l, &cents{models: tc.models, rate: rate, denies: true}, call)
			if f != nil {
				t.Fatal(f)
			}
			if tc.hold < 0 {
				tc.hold = 3 * (call.Request.PromptWorst() - 2*tc.hold)
			}
			if q.hold != tc.hold*int64(rate) || q.more != tc.more*int64(rate) {
				t.Errorf("holds %s and %s more, want %d and %d thousandths", money.USD(q.hold), money.USD(q.more), tc.hold, tc.more)
			}
		})
	}
}

func TestModelsWithoutAPriceAreDenied(t *testing.T) {
	for _, tc := range []struct {
		name, body  string
		path        string
		denies      bool
		shadow      bool
		refused     bool
		known, none bool
	}{
		{name: "priced", body: `"model":"m"`, denies: true, known: true},
		{name: "not priced", body: `"model":"x"`, denies: true, refused: true},
		{name: "not named", body: `"user":"u"`, denies: true, refused: true},
		{name: "a fallback that is not priced", body: `"model":"m","models":["m","x"]`, denies: true, refused: true},
		{name: "let pass", body: `"model":"x"`},
		{name: "let pass with a fallback that is priced", body: `"model":"x","models":["m"]`, known: true},
		{name: "counted in shadow", body: `"model":"x"`, denies: true, shadow: true},
		{name: "free", path: "/v1/moderations", body: `"model":"x"`, denies: true, none: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.path == "" {
				tc.path = "/v1/chat/completions"
			}
			call := newCall(t, meter.New(), newRequest("POST", tc.path, `{`+tc.body+`,`+ask+`}`))
			l := newCostLimiter(t, Config{}, Rule{Amount: "$10", Window: "day", Shadow: tc.shadow})
			q, f := quoteOf(l, &cents{models: "m", rate: 1, denies: tc.denies}, call)
			if (f != nil) != tc.refused {
				t.Fatalf("got %v", f)
			}
			if f != nil {
				if f.Status != http.StatusBadRequest || f.Code != "model_not_priced" {
					t.Errorf("got %d %s", f.Status, f.Code)
				}
				return
			}
			if (q == nil) != tc.none || q != nil && q.known != tc.known {
				t.Errorf("got %+v", q)
			}
		})
	}
}

func TestTheCapIsTheLargestThatIsPaidFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &cents{models: "m", rate: money.USD(rapid.Int64Range(1, 1e9).Draw(rt, "rate"))}
		q := &quote{pricer: c, call: new(meter.Priced), models: []string{"m"}, input: rapid.Int64Range(0, 1e5).Draw(rt, "input"), choices: rapid.Int64Range(1, 8).Draw(rt, "choices")}
		usd := rapid.Int64Range(0, 1e15).Draw(rt, "usd")
		bound := rapid.Int64Range(0, 1e5).Draw(rt, "bound")
		n := q.outputWithin(usd, bound)
		if n < 0 || n > bound || n > 0 && q.worst(n*q.choices) > usd {
			rt.Errorf("%d tokens cost %d of %d", n, q.worst(n*q.choices), usd)
		}
		if n < bound && q.worst((n+1)*q.choices) <= usd {
			rt.Errorf("one more than %d tokens would do", n)
		}
	})
}

func TestACallThatTurnsOutUnpricedIsChargedItsEstimate(t *testing.T) {
	l := newCostLimiter(t, Config{}, Rule{Amount: "$10", Window: "day"})
	for _, tc := range []struct {
		name  string
		quote *quote
		o     meter.Outcome
		want  int64
	}{
		{"priced", &quote{owed: 7}, meter.Outcome{Cost: 3, CostStatus: meter.CostCalculated, Source: meter.SourceReported}, 3},
		{"priced at nothing", &quote{owed: 7}, meter.Outcome{CostStatus: meter.CostReported, Source: meter.SourceReported}, 0},
		{"unpriced", &quote{owed: 7}, meter.Outcome{CostStatus: meter.CostUnpriced, Source: meter.SourceReported}, 7},
		{"a session that is unpriced in part", &quote{owed: 7}, meter.Outcome{Cost: 9, CostStatus: meter.CostUnpriced, Source: meter.SourceReported}, 9},
		{"let pass by the operator's word", nil, meter.Outcome{CostStatus: meter.CostUnpriced, Source: meter.SourceNone}, 0},
		{"nothing was used", &quote{owed: 7}, meter.Outcome{CostStatus: meter.CostCalculated, Source: meter.SourceNone}, 0},
	} {
		e := &entry{l: l, rules: l.rules, quote: tc.quote}
		if got := e.amount(0, &tc.o, &usage.Usage{Input: 1000}); got != tc.want {
			t.Errorf("%s: charged %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestBudgetsInAnswers(t *testing.T) {
	l := newCostLimiter(t, Config{ConsumerBased: true}, Rule{Amount: "$0.20", Window: "day"})
	res := store.Result{Limit: l.rules[0].limit, Used: int64(money.Dollar) * 3 / 20, Held: 1, ResetAt: noon.Add(time.Hour)}
	h := make(http.Header)
	writeQuotas(h, []quota{{l.rules[0], &res}}, noon)
	for name, want := range map[string]string{
		"Ratelimit-Policy": `"usd per day";q=200000;qu="microdollars";w=86400`,
		"Ratelimit":        `"usd per day";r=49999;t=3600`, "X-Ratelimit-Limit": "0.20", "X-Ratelimit-Remaining": "0.049999999999",
		"X-Ratelimit-Cost-Limit-Dollars": "0.20", "X-Ratelimit-Cost-Remaining-Dollars": "0.049999999999", "X-Ratelimit-Limit-Tokens": "",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}

	e, takes := refused(l, nil, store.Result{Exceeded: true, Limit: l.rules[0].limit, Used: int64(money.Dollar) / 5, Held: int64(money.Dollar) / 10, ResetAt: noon.Add(time.Hour)})
	f := l.violated(e, takes, &wants{})
	if want := "limit of usd per day reached: limit $0.20, used $0.20, held by calls at work $0.10"; !strings.HasPrefix(f.Message, want) {
		t.Errorf("the message is %q", f.Message)
	}
	f.violation.ban(h, "m", "text", noon)
	if h.Get("X-RateLimit-Limit") != "0.20" || h.Get("X-RateLimit-Unit") != "usd" || h.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("got %v", h)
	}
}

func TestACallLargerThanTheBudgetIsToldWhatFits(t *testing.T) {
	const rate = money.Dollar / 1000
	call := newCall(t, meter.New(), newRequest("POST", "/v1/chat/completions", `{"model":"m","max_tokens":10000,`+ask+`}`))
	l := newCostLimiter(t, Config{Mode: Strict, ConsumerBased: true}, Rule{Amount: "$1", Window: "day"})
	w, f := l.want(call, l.rules)
	if f != nil {
		t.Fatal(f)
	}
	if w.quote, f = l.quoteBy(&cents{models: "m", rate: rate}, "", call, &w); f != nil {
		t.Fatal(f)
	}
	take := l.take(l.rules[0], &w)
	if take.Need != w.quote.hold || take.Hold != take.Need {
		t.Errorf("takes %+v of %d", take, w.quote.hold)
	}
	e, takes := refused(l, []int64{take.Need}, store.Result{Exceeded: true})
	f = l.violated(e, takes, &w)
	fits := (333 - call.Request.PromptWorst()) / 2
	if f.Code != "request_too_large" || !strings.Contains(f.Message, "this call may use up to $6") ||
		!strings.Contains(f.Message, "of a limit of $1 usd per day; a cap of "+Tokens.number(fits)+" output tokens fits") {
		t.Errorf("got %s, want a cap of %d", f, fits)
	}
}

func TestCandidatesAreTheDearest(t *testing.T) {
	cheap, dear, other := &cents{models: "m", rate: 1}, &cents{models: "m", rate: 5, denies: true}, &cents{models: "x", rate: 9, denies: true}
	ps := &candidates{[]meter.Pricer{cheap, dear, other}}
	if usd, ok := ps.Expect(&meter.Priced{Requested: "m"}, 10, 0); usd != 50 || !ok {
		t.Errorf("expects %d %t", usd, ok)
	}
	if usd, ok := ps.Worst(&meter.Priced{Requested: "x"}, 10, 0); usd != 270 || !ok {
		t.Errorf("at worst %d %t", usd, ok)
	}
	if usd, status := ps.Price(&meter.Priced{Requested: "m", Usage: usage.Usage{Input: 2}}); usd != 10 || status != meter.CostCalculated {
		t.Errorf("costs %d %s", usd, status)
	}
	if _, ok := ps.Expect(&meter.Priced{Requested: "y"}, 1, 1); ok {
		t.Error("a model that none knows has a price")
	}
	if ps.Denies(true) || !(&candidates{[]meter.Pricer{dear, other}}).Denies(true) {
		t.Error("denied by some, or let pass by none")
	}
}

func TestStrictBudgetsRefuseWhatTheRequestDoesNotBound(t *testing.T) {
	for _, tc := range []struct {
		path, body string
		mode       Mode
		refused    bool
	}{
		{"/v1/ocr", `{"model":"m","document":{"type":"image_url","image_url":"data:image/png;base64,aGk="}}`, Strict, true},
		{"/v1/ocr", `{"model":"m","document":{"type":"image_url","image_url":"data:image/png;base64,aGk="}}`, Reserve, false},
		{"/v2/rerank", `{"model":"m","query":"q","documents":["d"]}`, Strict, true},
		{"/v1/audio/speech", `{"model":"m","input":"hi"}`, Strict, true},
		{"/v1/audio/speech", `{"model":"m","input":"hi"}`, Reserve, false},
		{"/v1/embeddings", `{"model":"m","input":"hi"}`, Strict, false},
		{"/v1/images/generations", `{"model":"m","prompt":"a cat"}`, Strict, false},
	} {
		call := newCall(t, meter.New(), newRequest("POST", tc.path, tc.body, "Content-Type", "application/json"))
		l := newCostLimiter(t, Config{Mode: tc.mode, ConsumerBased: true}, Rule{Amount: "$10", Window: "day"})
		_, f := quoteOf(l, &cents{models: "m", rate: 1}, call)
		if (f != nil) != tc.refused || f != nil && f.Code != "request_not_bounded" {
			t.Errorf("%s %s: got %v", tc.mode, tc.path, f)
		}
	}
}

// A block of a model that was used inside a call pays for that alone.
func TestAModelInsideACallCostsItsBlockItsShare(t *testing.T) {
	c := Config{Limits: []Rule{{Amount: "$1", Window: "day"}}}
	p, err := c.compile(CostLimit)
	if err != nil {
		t.Fatal(err)
	}
	o := &meter.Outcome{
		Cost: 5 * money.Dollar, CostStatus: meter.CostCalculated, ServedModel: "main", Terms: usage.Terms{CostKnown: true, Cost: 5 * money.Dollar},
		Other: []usage.ModelUsage{{Model: "tool", Usage: usage.Usage{Input: 1, Output: 1}}, {Model: "another", Usage: usage.Usage{Input: 9}}},
	}
	all := o.All()
	call := newCall(t, meter.New(), newRequest("POST", "/v1/chat/completions", `{"model":"main",`+ask+`}`))
	for _, tc := range []struct {
		name   string
		share  share
		models string // that have a price
		want   money.USD
	}{
		{"its share", share{models: []string{"tool"}}, "main tool", 3 * money.Dollar / 100},
		{"all, without a price of its own", share{models: []string{"tool"}}, "main", 5 * money.Dollar},
		{"all, of the model that was asked for", share{models: []string{"main"}, always: true}, "main tool", 5 * money.Dollar},
		{"nothing, of one that was not used", share{models: []string{"idle"}}, "main idle", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := &entry{
				rules: p.base.rules, special: &special{models: []string{"main", "tool", "idle"}, shares: []share{tc.share}},
				quote: &quote{pricer: &cents{models: tc.models, rate: money.Dollar / 100}, of: call},
			}
			if got := money.USD(e.amount(0, o, &all)); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
