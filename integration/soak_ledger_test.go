//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// charge is what calls used: tokens in the normal form, and what they cost.
type charge struct {
	requests, input, cacheRead, cacheWrite, output int64
	cost                                           money.USD
}

// Prices of the soak, in femtodollars per token: such that the cost of nearly every call
// has to be rounded to the picodollar.
const (
	soakInput      = 123_456_701
	soakOutput     = 765_432_103
	soakCacheRead  = 12_345_607
	soakCacheWrite = 234_567_809
)

// soakPrices are the same in the words of a Caddyfile, in dollars per million tokens.
const soakPrices = `llm_cost {
		price * {
			input 0.123456701
			output 0.765432103
			cache_read 0.012345607
			cache_write 0.234567809
		}
	}`

// priced is the cost of one call: rounded once, half away from zero.
func (c charge) priced() charge {
	femto := (c.input-c.cacheRead-c.cacheWrite)*soakInput + c.cacheRead*soakCacheRead + c.cacheWrite*soakCacheWrite + c.output*soakOutput
	c.requests, c.cost = 1, money.USD((femto+500)/1000)
	return c
}

// counter is what one limiter counts, of whom and of which model.
type counter struct{ instance, rule, consumer, model string }

// soakLimits are limits that no call comes to, but for those of one limiter, which refuses
// what has passed all others.
const soakLimits = soakPrices + `
	token_limit apps {
		consumer_based
		limit {n} requests per 3650d
		limit {n} tokens per 3650d
		limit {n} input_tokens per 3650d
		limit {n} output_tokens per 3650d
		limit {n} uncached_tokens per 3650d
	}
	token_limit models {
		consumer_based
		model * {
			limit {n} tokens per 3650d
			per_model
		}
	}
	token_limit backend {
		limit {n} requests per 3650d
		limit {n} tokens per 3650d
	}
	cost_limit budget {
		consumer_based
		limit $1_000_000 per 3650d
	}
	@tight header X-Tight *
	token_limit @tight tight {
		consumer_based
		limit 5 requests per 1s
		limit 2 concurrent
	}`

// ledger is what the provider has served, and so what the counters must say.
type ledger struct {
	mu     sync.Mutex
	counts map[counter]int64
}

func (l *ledger) book(p *plan) {
	c := p.used().priced()
	l.mu.Lock()
	defer l.mu.Unlock()
	who := p.caller.application
	for at, n := range map[counter]int64{
		{"apps", "requests per 3650d", who, ""}:              c.requests,
		{"apps", "tokens per 3650d", who, ""}:                c.input + c.output,
		{"apps", "input_tokens per 3650d", who, ""}:          c.input,
		{"apps", "output_tokens per 3650d", who, ""}:         c.output,
		{"apps", "uncached_tokens per 3650d", who, ""}:       c.input + c.output - c.cacheRead,
		{"models", "tokens per 3650d (*)", who, p.api.model}: c.input + c.output,
		{"backend", "requests per 3650d", "", ""}:            c.requests,
		{"backend", "tokens per 3650d", "", ""}:              c.input + c.output,
		{"budget", "usd per 3650d", who, ""}:                 int64(c.cost),
	} {
		l.counts[at] += n
	}
}

func (l *ledger) copy() map[counter]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// lasting are the counters of a replica whose windows do not end. It tells whether calls
// hold anything.
func (r *replica) lasting() (counts map[counter]int64, held bool) {
	r.t.Helper()
	var rows []struct {
		Instance, Rule, Consumer, Model, Unit string
		Used, Reserved                        json.RawMessage
	}
	r.adminGet("/llm/usage", &rows)
	counts = make(map[counter]int64)
	for _, row := range rows {
		held = held || amountOf(r.t, row.Unit, row.Reserved) != 0
		if row.Instance != "tight" {
			counts[counter{row.Instance, row.Rule, row.Consumer, row.Model}] = amountOf(r.t, row.Unit, row.Used)
		}
	}
	return counts, held
}

// amountOf reads an amount of the admin endpoint: a number, or dollars as picodollars.
func amountOf(t testing.TB, unit string, raw json.RawMessage) (n int64) {
	t.Helper()
	var err error
	if unit == "usd" {
		var text string
		if err = json.Unmarshal(raw, &text); err == nil {
			var usd money.USD
			usd, err = money.ParseUSD(text)
			n = int64(usd)
		}
	} else {
		err = json.Unmarshal(raw, &n)
	}
	if err != nil {
		t.Fatalf("an amount of %s: %v in %s", unit, err, raw)
	}
	return n
}

// differences are where counters are not what they should be.
func differences(got, want map[counter]int64) (lines []string) {
	for at, n := range want {
		if got[at] != n {
			lines = append(lines, fmt.Sprintf("%+v: %d, the provider served %d (%+d)", at, got[at], n, got[at]-n))
		}
	}
	for at, n := range got {
		if _, ok := want[at]; !ok && n != 0 {
			lines = append(lines, fmt.Sprintf("%+v: %d, which was never served", at, n))
		}
	}
	return lines
}

// serve is the provider: it does with a call what the plan says, and books it.
func (s *soak) serve(w http.ResponseWriter, r *http.Request) {
	v, ok := s.plans.Load(r.Header.Get("X-Call"))
	if !ok {
		s.t.Errorf("a call that nobody made: %s %s", r.Method, r.URL)
		return
	}
	p := v.(*plan)
	if s.arrives(p) > 1 {
		s.t.Errorf("call %s came twice", p.id)
		return
	}
	s.ledger.book(p) // it may end long after its client has gone
	body, err := io.ReadAll(r.Body)
	q := question{N: 1}
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil {
		s.t.Errorf("call %s: %v in %s", p.id, err, body)
	}
	close(p.arrived)
	switch p.ending {
	case failed:
		http.Error(w, `{"error":{"message":"overloaded","type":"server_error"}}`, http.StatusInternalServerError)
		return
	case leftEarly:
		<-p.gone
	}
	rp := &reply{w: &pausing{ResponseWriter: w, rc: http.NewResponseController(w), after: p.pause, pause: func() { s.amid(p, r) }}, r: r, q: q}
	p.api.answer(rp, p.serves)
}

// amid is what happens amid a stream.
func (s *soak) amid(p *plan, r *http.Request) {
	switch p.ending {
	case broken:
		panic(http.ErrAbortHandler)
	case left:
		close(p.paused)
		<-p.gone
	case leftForLonger:
		close(p.paused)
		<-p.gone
		since := time.Now()
		select {
		case <-r.Context().Done():
			if d := time.Since(since); d < soakDrain-time.Second {
				s.t.Errorf("call %s was read on for %s after its client had gone", p.id, d)
			}
		case <-time.After(time.Minute):
			s.t.Errorf("call %s was not broken off", p.id)
		}
		panic(http.ErrAbortHandler)
	}
}

// pausing calls pause once, when some events have been sent.
type pausing struct {
	http.ResponseWriter
	rc    *http.ResponseController
	after int
	pause func()
}

func (p *pausing) FlushError() error {
	err := p.rc.Flush()
	if p.after--; p.after == 0 {
		p.pause()
	}
	return err
}
