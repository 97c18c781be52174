package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// retrying is a route with retries in front of the upstream.
func retrying(options string) string {
	return "log\n" + limits + "llm_retry {\n" + options + "\n}\n" + "reverse_proxy {upstream}"
}

// tooMany answers that there is no room for a second.
func tooMany(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
	io.WriteString(w, `{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}`)
}

func overloaded(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "event: error\ndata: {\"error\":{\"type\":\"overloaded_error\"}}\n\n")
}

func overloadedStatus(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529) }

// asked is the body of the first request; empty if none has arrived.
func (u *upstream) asked() string {
	if all := u.all(); len(all) > 0 {
		return all[0].Body
	}
	return ""
}

// all are the requests that have arrived.
func (u *upstream) all() []seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.requests)
}

// hangs answers nothing until the gateway gives up.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// cuts closes the connection.
func cuts(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cutsLater closes it once the header is out.
func cutsLater(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err != nil {
		return
	}
	panic(http.ErrAbortHandler)
}

func TestOneWaitAndOneCharge(t *testing.T) {
	up := newUpstream(t, once(tooMany, sixtyTokens))
	g := start(t, up, drainSite("2s", retrying("")))
	begin := time.Now()
	a := g.chat(keyA)
	if took := time.Since(begin); a.Status != 200 || took < time.Second || up.calls() != 2 {
		t.Errorf("got %d after %s and %d calls", a.Status, took, up.calls())
	}
	g.charged(60, 1)
	if l := g.logged(); l.Attempts != 2 || l.ServedBy != "primary" {
		t.Errorf("logged %+v", l)
	}
}

// logged is what the access log says of the last call.
func (g *gateway) logged() (l struct {
	Attempts    int    `json:"attempts"`
	ServedBy    string `json:"served_by"`
	ServedModel string `json:"served_model"`
	RefusedBy   string `json:"refused_by"`
},
) {
	g.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		lines := strings.Split(g.logs.text(), "\n")
		for i := len(lines) - 1; i >= 0; i-- {
			var entry struct {
				LLM json.RawMessage `json:"llm"`
			}
			if json.Unmarshal([]byte(lines[i]), &entry) == nil && entry.LLM != nil {
				if err := json.Unmarshal(entry.LLM, &l); err != nil {
					g.t.Fatal(err)
				}
				return l
			}
		}
		time.Sleep(time.Millisecond)
	}
	g.t.Fatal("no call is logged")
	return l
}

func TestChaos(t *testing.T) {
	const timeout = " {\n transport http {\n  response_header_timeout 300ms\n }\n}\n"
	const expected = 8 + 40 // of a request that had no answer, or none to its end
	routes := "log\n" + limits + "llm_retry {\n attempts 2\n fallback spare-model {\n  rewrite * /spare{uri}\n  reverse_proxy {spare}\n }\n}\n"
	for _, tt := range []struct {
		name    string
		primary http.HandlerFunc // nil refuses connections
		spare   http.HandlerFunc
		options string
		status  int
		served  string
		tokens  int64
		atLeast time.Duration // two timeouts, or what the provider asks for
	}{
		{name: "the upstream is fine", primary: sixtyTokens, spare: cuts, status: 200, served: "primary", tokens: 60},
		{name: "it refuses connections", spare: sixtyTokens, status: 200, served: "fallback 1", tokens: 60},
		{name: "it hangs", primary: hangs, spare: sixtyTokens, status: 200, served: "fallback 1", tokens: 60 + 2*expected, atLeast: 600 * time.Millisecond},
		{name: "it cuts", primary: cuts, spare: sixtyTokens, status: 200, served: "fallback 1", tokens: 60 + 2*expected},
		{name: "it cuts behind the header", primary: cutsLater, spare: sixtyTokens, status: 200, served: "fallback 1", tokens: 60 + 2*expected},
		{name: "it sends 200 with an error", primary: overloaded, spare: sixtyTokens, status: 200, served: "fallback 1", tokens: 60},
		{name: "it flaps", primary: once(cuts, sixtyTokens), spare: cuts, status: 200, served: "primary", tokens: 60 + expected},
		{name: "it refuses and the fallback too", primary: tooMany, spare: cuts, status: 429, served: "primary", atLeast: time.Second, tokens: expected},
		{name: "it hangs and the fallback refuses", primary: hangs, spare: overloadedStatus, status: 529, served: "fallback 1", atLeast: 600 * time.Millisecond, tokens: 2 * expected},
		{name: "it sends 200 with an error and the fallback too", primary: overloaded, spare: overloaded, status: 200, served: "fallback 1"},
		{name: "both are gone", spare: cuts, status: 502, served: "fallback 1", tokens: expected},
		{name: "the proxy retries, too", primary: once(cuts, sixtyTokens), spare: cuts, options: " {\n lb_retries 1\n lb_retry_match {\n method POST\n }\n request_buffers 1MiB\n transport http {\n  response_header_timeout 300ms\n }\n}\n", status: 200, served: "primary", tokens: 60 + expected},
		{name: "the proxy knows it to be down", primary: cuts, spare: sixtyTokens, options: " {\n fail_duration 1m\n unhealthy_status 5xx\n}\n", status: 200, served: "fallback 1", tokens: 60 + expected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := &upstream{addr: deadAddr(t)}
			if tt.primary != nil {
				up = newUpstream(t, tt.primary)
			}
			spare := newUpstream(t, tt.spare)
			options := tt.options
			if options == "" {
				options = timeout
			}
			g := start(t, up, drainSite("2s", strings.ReplaceAll(routes, "{spare}", spare.addr)+"reverse_proxy {upstream}"+options))
			begin := time.Now()
			a := g.chat(keyA)
			// the longest of them waits for two timeouts and half a second
			if took := time.Since(begin); took < tt.atLeast || took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if a.Status != tt.status || tt.status == 200 && tt.tokens > 0 && !strings.Contains(a.Body, "Hello there.") {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
			if tt.status == 429 && (a.Header.Get("Retry-After") == "" || !strings.Contains(a.Body, "slow down") || a.Header.Get("X-RateLimit-Ban-Level") != "") {
				t.Errorf("it is not the provider's answer: %v %s", a.Header, a.Body)
			}
			g.charged(tt.tokens, 1)
			if l := g.logged(); l.ServedBy != tt.served || l.RefusedBy != "" {
				t.Errorf("logged %+v", l)
			}
			if spare.calls() > 0 {
				want := strings.Replace(up.asked(), "gpt-4o-mini", "spare-model", 1)
				if s := spare.last(); s.URI != "/spare/v1/chat/completions" || !strings.Contains(s.Body, `"model":"spare-model"`) || want != "" && s.Body != want || s.Header.Get("Content-Length") != fmt.Sprint(len(s.Body)) {
					t.Errorf("the fallback got %s %s", s.URI, s.Body)
				}
			}
			for _, s := range up.all() {
				if s.URI != "/v1/chat/completions" || s.Body != up.asked() || !strings.Contains(s.Body, `"model":"gpt-4o-mini"`) {
					t.Errorf("the upstream got %s %s", s.URI, s.Body)
				}
			}
		})
	}
}

func TestFallbackIsPricedByWhatServes(t *testing.T) {
	up := newUpstream(t, cuts)
	spare := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":1000,"completion_tokens":1000,"total_tokens":2000}}`)
	})
	g := start(t, up, drainSite("2s", "log\n"+limits+`
		cost_limit {name}-cost {
			consumer_based
			limit $100 per day
		}
		llm_cost {
			price gpt-4o-mini {
				input 1
				output 1
			}
			price spare-model {
				input 10
				output 20
			}
		}
		llm_retry {
			attempts 1
			fallback no-price {
				reverse_proxy {upstream}
			}
			fallback spare-model {
				reverse_proxy `+spare.addr+`
			}
		}
		reverse_proxy {upstream}
	`))
	if a := g.chat(keyA); a.Status != 200 {
		t.Fatalf("got %d %s", a.Status, a.Body)
	}
	g.charged(2000+8+40, 1) // the first had no answer
	var rows []struct{ Used string }
	g.adminGet("/llm/usage?"+url.Values{"instance": {g.testName() + "-cost"}, "consumer": {"app-a"}}.Encode(), &rows)
	if len(rows) != 1 || !strings.HasPrefix(rows[0].Used, "0.03") {
		t.Errorf("charged %+v, want $0.03", rows)
	}
	if up.calls() != 1 {
		t.Errorf("a model without a price is asked for: %d calls", up.calls())
	}
	if l := g.logged(); l.ServedBy != "fallback 2" || l.Attempts != 2 || l.ServedModel != "spare-model" {
		t.Errorf("logged %+v", l)
	}
}

func TestLimiterWithinRetriesIsRefused(t *testing.T) {
	for _, routes := range []string{
		"route {\nllm_retry\n" + limits + "reverse_proxy {upstream}\n}",
		limits + "llm_retry {\nfallback {\ntoken_limit {name}-inner {\nlimit 1 requests per hour\n}\nreverse_proxy {upstream}\n}\n}\nreverse_proxy {upstream}",
	} {
		g := &gateway{t: t, run: runs.Add(1), admin: t.TempDir() + "/a.sock", logs: &logFile{path: t.TempDir() + "/log"}, addr: loopback.Address(t)}
		err := g.tryLoad(newUpstream(t, nil), drainSite("2s", routes))
		if err == nil || !strings.Contains(err.Error(), "llm_retry stands outside of token_limit") {
			t.Errorf("got %v", err)
		}
	}
}

// failsHalf is an upstream that fails every second call.
func failsHalf() (h http.HandlerFunc, served *atomic.Int64) {
	var calls atomic.Int64
	served = new(atomic.Int64)
	return func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		served.Add(1)
		sixtyTokens(w, r)
	}, served
}

func TestThousandCallsOfWhichHalfFail(t *testing.T) {
	site := drainSite("2s", retrying("max_wait 20ms"))
	for _, tt := range []struct {
		name  string
		store func() string
	}{
		{"memory", func() string { return "" }},
		{"redis", func() string { return "store redis {\naddress " + redistest.Start(t).Addr() + "\n}\n" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, served := failsHalf()
			up := newUpstream(t, h)
			g := start(t, up, strings.Replace(site, "llm {\n", "llm {\n"+tt.store(), 1))
			g.thousand(up, served)
		})
	}
}

// thousand makes 1,000 calls and holds the sums to what the upstream served.
func (g *gateway) thousand(up *upstream, served *atomic.Int64) {
	g.t.Helper()
	const calls, atOnce = 1000, 20
	begin := time.Now()
	var ok, failed atomic.Int64
	var work sync.WaitGroup
	for range atOnce {
		work.Go(func() {
			for range calls / atOnce {
				a, err := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`)
				switch {
				case err != nil:
					g.t.Error(err)
				case a.Status == 200:
					ok.Add(1)
				default:
					failed.Add(1)
				}
			}
		})
	}
	work.Wait()
	if ok.Load() != served.Load() || ok.Load()+failed.Load() != calls {
		g.t.Errorf("%d calls succeeded and %d failed; the upstream served %d", ok.Load(), failed.Load(), served.Load())
	}
	g.charged(60*served.Load(), calls)
	retries, most := int64(up.calls())-calls, 10+calls/5+int64(time.Since(begin).Seconds())+1
	if retries < calls/10 || retries > most {
		g.t.Errorf("%d retries, at most %d are allowed", retries, most)
	}
}
