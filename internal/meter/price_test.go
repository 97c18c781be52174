package meter

import (
	"bytes"
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// tariff is a pricer of tests: a dollar for each token that one model reads, and two for
// each that it writes.
type tariff struct {
	model    string
	reported bool // the provider's word is believed

	mu    sync.Mutex
	calls []Priced
}

func (p *tariff) Price(q *Priced) (money.USD, CostStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, *q)
	if p.model != "" && p.model != q.Served && p.model != q.Requested {
		return 7, CostUnpriced // what it says here must not count
	}
	q.Basis.Key = "the tariff"
	if p.reported && q.Terms.CostKnown {
		return q.Terms.Cost, CostReported
	}
	return tokens(q.Usage.Input + 2*q.Usage.Output), CostCalculated
}

func tokens(n int64) money.USD { return money.USD(n) * money.Dollar }

func (p *tariff) Expect(*Priced, int64, int64) (money.USD, bool) { return 0, false }
func (p *tariff) Worst(*Priced, int64, int64) (money.USD, bool)  { return 0, false }
func (p *tariff) Denies(bool) bool                               { return false }

// times is how often it was asked.
func (p *tariff) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// prices is a handler with prices, further in or further out than limiters.
type prices struct {
	m         *Meter
	p         Pricer
	byDefault bool
}

func (h prices) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := h.m.Call(r)
	if err := c.Inspect(r); err != nil {
		return err
	}
	c.Meter(r)
	if h.byDefault {
		c.PriceByDefault(h.p)
	} else {
		c.Price(h.p)
	}
	return c.Serve(w, r, next)
}

// chain runs handlers, the outermost first.
func chain(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler, hs ...caddyhttp.MiddlewareHandler) error {
	for i := len(hs) - 1; i >= 0; i-- {
		h, inner := hs[i], next
		next = handler(func(w http.ResponseWriter, r *http.Request) error { return h.ServeHTTP(w, r, inner) })
	}
	return next.ServeHTTP(w, r)
}

func TestACallIsPricedOnceBeforeLimitersSettle(t *testing.T) {
	for _, order := range []string{"pl", "lp", "plpl", "llp", "ppl", "dlp", "pld", "ldp", "d l p"} {
		t.Run(order, func(t *testing.T) {
			m := New()
			p, other := &tariff{}, &tariff{model: "of nobody"}
			var ls []*limiter
			var hs []caddyhttp.MiddlewareHandler
			for _, kind := range order {
				switch kind {
				case 'p':
					hs = append(hs, prices{m: m, p: p})
				case 'd':
					hs = append(hs, prices{m: m, p: other, byDefault: true})
				case 'l':
					l := newLimiter(m, string(rune('a'+len(ls))))
					ls = append(ls, l)
					hs = append(hs, l)
				}
			}
			if err := chain(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), answer(200, document, chatAnswer), hs...); err != nil {
				t.Fatal(err)
			}
			for _, l := range ls {
				if o := l.wait(t); o.Cost != tokens(9+24) || o.CostStatus != CostCalculated {
					t.Errorf("%s settles at %s %s", l.name, o.Cost, o.CostStatus)
				}
				l.once(t)
			}
			if p.times() != 1 || other.times() != 0 {
				t.Errorf("priced %d and %d times", p.times(), other.times())
			}
		})
	}
}

func TestTheInnermostPricesCount(t *testing.T) {
	m := New()
	l := newLimiter(m, "l")
	outer, inner := &tariff{model: "of nobody"}, &tariff{}
	err := chain(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), answer(200, document, chatAnswer),
		prices{m: m, p: outer}, l, prices{m: m, p: inner})
	if err != nil {
		t.Fatal(err)
	}
	if o := l.wait(t); o.Cost != tokens(33) || outer.times() != 0 {
		t.Errorf("got %s, and the outer one was asked %d times", o.Cost, outer.times())
	}
}

func TestCosts(t *testing.T) {
	const reported = `{"id":"c","model":"grok-4","choices":[{"index":0,"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21,"cost":0.5}}`
	expected := tokens(promptTokens + 2*unknownOutput)
	for _, tc := range []struct {
		name   string
		path   string
		p      *tariff
		next   handler
		cost   money.USD
		status CostStatus
		log    any // cost_usd
	}{
		{"reported usage", chatPath, &tariff{}, answer(200, document, chatAnswer), tokens(33), CostCalculated, "33.000000000000"},
		{"a cost that the provider says", chatPath, &tariff{reported: true}, answer(200, document, reported), money.Dollar / 2, CostReported, "0.500000000000"},
		{"a cost that nobody believes", chatPath, &tariff{}, answer(200, document, reported), tokens(33), CostCalculated, "33.000000000000"},
		{"an estimate", chatPath, &tariff{}, answer(200, document, `{"choices":[{"message":{"content":"x"}}]}`), expected, CostEstimated, expected.String()},
		{"refused by the provider", chatPath, &tariff{}, answer(429, document, `{"error":{"message":"slow down"}}`), 0, CostCalculated, "0.000000000000"},
		{"refused by the provider, of an unknown model", chatPath, &tariff{model: "x"}, answer(429, document, `{}`), 0, CostCalculated, "0.000000000000"},
		{"free", "/v1/moderations", &tariff{}, answer(200, document, `{"results":[]}`), 0, CostCalculated, "0.000000000000"},
		{"an unknown model", chatPath, &tariff{model: "x"}, answer(200, document, chatAnswer), 0, CostUnpriced, nil},
		{"an estimate of an unknown model", chatPath, &tariff{model: "x"}, answer(200, document, `{}`), 0, CostUnpriced, nil},
		{"let pass unmetered", "/v1/batches", &tariff{}, answer(200, document, `{"id":"b"}`), 0, CostUnpriced, nil},
		{"let pass unmetered, and refused by the provider", "/v1/batches", &tariff{}, answer(500, document, `{}`), 0, CostCalculated, "0.000000000000"},
		{"by the served model", chatPath, &tariff{model: "gpt-5-2025-08-07"}, answer(200, document, chatAnswer), tokens(33), CostCalculated, "33.000000000000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			r := newRequest(http.MethodPost, tc.path, plainBody)
			if err := chain(httptest.NewRecorder(), r, tc.next, prices{m: m, p: tc.p}, l); err != nil {
				t.Fatal(err)
			}
			if o := l.wait(t); o.Cost != tc.cost || o.CostStatus != tc.status {
				t.Errorf("got %s %s, want %s %s", o.Cost, o.CostStatus, tc.cost, tc.status)
			}
			if got := logObject(r)["cost_usd"]; got != tc.log {
				t.Errorf("the log says %v, want %v", got, tc.log)
			}
			if line := logObject(r); line["cost_status"] != string(tc.status) || (line["price_key"] == "the tariff") != (tc.cost > 0) {
				t.Errorf("the log says %v by %v", line["cost_status"], line["price_key"])
			}
			if got := Var(r, VarCostStatus); got != string(tc.status) {
				t.Errorf("the status is %q, want %q", got, tc.status)
			}
			if want, _ := tc.log.(string); Var(r, VarCost) != want {
				t.Errorf("the variable is %q, want %q", Var(r, VarCost), want)
			}
		})
	}
}

func TestCostsOfACutAnswer(t *testing.T) {
	// 12 output tokens at most, of which the answer says something, and then breaks off
	const cut = `{"id":"c","model":"grok-4","choices":[{"index":0,"delta":{"content":"Hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"cost":`
	for _, tc := range []struct {
		name string
		cost string
		want money.USD
	}{
		{"the provider's word is less than the estimate", "0.5", tokens(9 + 2*unknownOutput)},
		{"the provider's word is more", "9000", tokens(9000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			next := handler(func(w http.ResponseWriter, _ *http.Request) error {
				w.Header().Set("Content-Type", sse)
				_, _ = io.WriteString(w, "data: "+cut+tc.cost+"}}\n\n")
				panic(http.ErrAbortHandler)
			})
			func() {
				defer func() { _ = recover() }()
				_ = chain(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, streamBody), next, prices{m: m, p: &tariff{reported: true}}, l)
			}()
			if o := l.wait(t); o.Cost != tc.want || o.CostStatus != CostEstimated {
				t.Errorf("got %s %s, want %s", o.Cost, o.CostStatus, tc.want)
			}
		})
	}
}

func TestARefusedCallHasNoCost(t *testing.T) {
	for _, outer := range []bool{true, false} {
		m := New()
		p := &tariff{}
		l := newLimiter(m, "l")
		l.refuse = http.StatusTooManyRequests
		hs := []caddyhttp.MiddlewareHandler{prices{m: m, p: p}, l}
		if !outer {
			hs[0], hs[1] = hs[1], hs[0]
		}
		r := newRequest(http.MethodPost, chatPath, plainBody)
		if err := chain(httptest.NewRecorder(), r, answer(200, document, chatAnswer), hs...); err != nil {
			t.Fatal(err)
		}
		if p.times() != 0 || Var(r, VarCostStatus) != "" || logObject(r)["cost_usd"] != nil {
			t.Errorf("priced %d times, status %q, log %v", p.times(), Var(r, VarCostStatus), logObject(r))
		}
	}
}

func TestTheUpstreamIsToldByTheProxyNotByTheClient(t *testing.T) {
	m := New()
	p := &tariff{}
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", document)
		_, _ = io.WriteString(w, chatAnswer)
	})
	g := newGateway(t, []object{use(t, prices{m: m, p: p}), proxy(up)}, nil)
	res := g.post(context.Background(), t, chatPath, plainBody, "Host", "api.deepseek.com")
	readAll(t, res)
	<-g.log
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.calls) != 1 || p.calls[0].Host != "127.0.0.1" {
		t.Errorf("priced as %+v", p.calls)
	}
}

func TestCostsAreLearned(t *testing.T) {
	m := New()
	call := func() *Call {
		r := newRequest(http.MethodPost, chatPath, plainBody)
		c := m.Call(r)
		if err := c.Inspect(r); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for i := range learnEnough {
		if _, ok := call().TypicalCost(); ok {
			t.Fatalf("known after %d calls", i)
		}
		if err := chain(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), answer(200, document, chatAnswer), prices{m: m, p: &tariff{}}); err != nil {
			t.Fatal(err)
		}
	}
	if usd, ok := call().TypicalCost(); !ok || usd < tokens(33) || usd > tokens(33)*5/4 {
		t.Errorf("calls cost %s, %t", usd, ok)
	}
	// what was told of so many calls says what the next one costs, which is cut
	for _, n := range []int64{1, 77_500} {
		rate := tokens(33) / (9 + 12*outputWeight)
		if usd := call().Presumed(&tariff{}, &Priced{}, 0, n); usd < rate*outputWeight*money.USD(n) || usd > rate*outputWeight*money.USD(n)*5/4 {
			t.Errorf("%d tokens are presumed to cost %s", n, usd)
		}
	}
	// neither what was estimated nor what has no price teaches
	m = New()
	for range learnEnough {
		for _, h := range []caddyhttp.MiddlewareHandler{prices{m: m, p: &tariff{model: "x"}}, prices{m: m, p: &tariff{}}} {
			next := answer(200, document, chatAnswer)
			if h.(prices).p.(*tariff).model == "" {
				next = answer(200, document, `{}`)
			}
			if err := chain(httptest.NewRecorder(), newRequest(http.MethodPost, chatPath, plainBody), next, h); err != nil {
				t.Fatal(err)
			}
		}
	}
	if usd, ok := call().TypicalCost(); ok {
		t.Errorf("calls cost %s", usd)
	}
	if usd := call().Presumed(&tariff{}, &Priced{}, 10, 10); usd != 0 {
		t.Errorf("presumed to cost %s", usd)
	}
}

func TestTurnsOfASessionArePricedOneByOne(t *testing.T) {
	m := New()
	r := newRequest(http.MethodGet, "/v1/realtime?model=gpt-realtime", "")
	c := m.Call(r)
	c.Request = &usage.Request{Endpoint: c.Endpoint, Choices: 1}
	p := &tariff{model: "gpt-realtime"}
	c.Price(p)
	ch := &charges{call: c}
	turn := func(in, out int64) *usage.Turn {
		return &usage.Turn{Report: usage.Report{Found: true, Model: "gpt-realtime", Usage: usage.Usage{Input: in, Output: out}}}
	}
	ch.add(turn(10, 1))
	ch.add(turn(100, 2))
	if o := ch.used; o.Cost != tokens(116) || o.CostStatus != CostCalculated || p.times() != 2 {
		t.Errorf("got %s %s by %d turns", o.Cost, o.CostStatus, p.times())
	}
	if p.calls[1].Usage.Input != 100 {
		t.Errorf("the second turn was priced at %+v", p.calls[1].Usage)
	}
	p.model = "x"
	ch.add(turn(1, 1))
	if o := ch.used; o.Cost != tokens(116) || o.CostStatus != CostUnpriced {
		t.Errorf("with a turn that has no price: %s %s", o.Cost, o.CostStatus)
	}
	o := ch.used
	if c.price(&o); o.Cost != tokens(116) || p.times() != 3 {
		t.Errorf("priced again: %s", o.Cost)
	}
}

// perSecond is a pricer of recordings: a dollar for each second, and nothing for tokens.
type perSecond struct{ tariff }

func (p *perSecond) Price(q *Priced) (money.USD, CostStatus) {
	if q.Usage.Total() > 0 && q.Usage.AudioMillis == 0 {
		return 0, CostUnpriced
	}
	return money.USD(q.Usage.AudioMillis) * money.Dollar / 1000, CostCalculated
}

func TestARecordingOfUnknownLengthIsNotFree(t *testing.T) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if err := w.WriteField("model", "whisper-1"); err != nil {
		t.Fatal(err)
	}
	file, err := w.CreateFormFile("file", "a.mp3")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write(make([]byte, 40_000))
	w.Close()
	for _, tc := range []struct {
		name, body string
		cost       money.USD
		status     CostStatus
	}{
		{"the answer tells its length", `{"text":"Hi","usage":{"type":"duration","seconds":3}}`, 3 * money.Dollar, CostCalculated},
		{"the answer is text alone", `{"text":"Hi"}`, 53_333 * money.Dollar / 1000, CostEstimated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := New()
			l := newLimiter(m, "l")
			r := newRequest(http.MethodPost, "/v1/audio/transcriptions", form.String(), "Content-Type", w.FormDataContentType())
			if err := chain(httptest.NewRecorder(), r, answer(200, document, tc.body), prices{m: m, p: &perSecond{}}, l); err != nil {
				t.Fatal(err)
			}
			if o := l.wait(t); o.Cost != tc.cost || o.CostStatus != tc.status {
				t.Errorf("got %s %s, want %s %s", o.Cost, o.CostStatus, tc.cost, tc.status)
			}
		})
	}
}

// Interface guards
var (
	_ Pricer                      = (*tariff)(nil)
	_ caddyhttp.MiddlewareHandler = prices{}
	_ caddy.Module                = (*probe)(nil)
)
