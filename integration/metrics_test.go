package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// scrape reads the metrics of these modules, by their lines without the value.
func (g *gateway) scrape() map[string]float64 {
	g.t.Helper()
	values := make(map[string]float64)
	for line := range strings.Lines(g.exposition()) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "llm_") {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			g.t.Fatalf("%q: %v", line, err)
		}
		if _, ok := values[line[:i]]; ok {
			g.t.Errorf("%s stands there twice", line[:i])
		}
		values[line[:i]] = v
	}
	return values
}

// exposition is what Prometheus reads.
func (g *gateway) exposition() string {
	g.t.Helper()
	status, body := g.adminRead("/metrics")
	if status != http.StatusOK {
		g.t.Fatalf("%d: %s", status, body)
	}
	return string(body)
}

// expectMetrics waits for metrics to have values: a call is counted when it has ended,
// which is after its client has read the answer.
func (g *gateway) expectMetrics(want map[string]float64) {
	g.t.Helper()
	var got map[string]float64
	eventually(g.t, "counted", func() bool {
		got = g.scrape()
		for series, v := range want {
			if got[series] < v {
				return false
			}
		}
		return true
	})
	for series, v := range want {
		if got[series] != v {
			g.t.Errorf("%s is %v, want %v", series, got[series], v)
		}
	}
}

// keyed is api_key_auth with a key of an application that no other test uses.
var keyed = `
	api_key_auth {
		key a ` + hashOf(keyA) + ` {
			application {name}-app
			models *
		}
	}
`

func TestMetricsTellWhatACallUsed(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {`+keyed+`
		token_limit {name}-shadow {
			consumer_based
			shadow
			limit 1 requests per day
		}
		token_limit {name} {
			consumer_based
			limit 100 tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	before := g.scrape()
	for i, want := range []int{200, 200, 429} {
		if a := g.chat(keyA); a.Status != want {
			t.Fatalf("call %d: %d", i+1, a.Status)
		}
	}
	if a := g.chat("sk-of-nobody"); a.Status != http.StatusUnauthorized {
		t.Fatalf("a wrong key: %d", a.Status)
	}
	app, name := g.testName()+"-app", g.testName()
	tokens := func(kind string) string {
		return fmt.Sprintf(`llm_tokens_total{consumer="%s",kind="%s",model="gpt-4o-mini"}`, app, kind)
	}
	calls := func(status string) string {
		return fmt.Sprintf(`llm_requests_total{api="openai.chat",consumer="%s",status="%s"}`, app, status)
	}
	refusals := func(instance, rule string, shadow bool) string {
		return fmt.Sprintf(`llm_refusals_total{limiter="%s",rule="%s",shadow="%v"}`, instance, rule, shadow)
	}
	const unknown = `llm_auth_failures_total{reason="unknown"}`
	g.expectMetrics(map[string]float64{
		tokens("input"): 40, tokens("output"): 80,
		calls("2xx"): 2, calls("refused"): 1,
		refusals(name, "tokens per hour", false):           1,
		refusals(name+"-shadow", "requests per day", true): 2,
		unknown:          before[unknown] + 1,
		"llm_holds":      0,
		"llm_drains":     0,
		"llm_body_bytes": 0,
	})
	after := g.scrape()
	const reserved = `llm_store_seconds_count{op="reserve"}`
	if n := after[reserved] - before[reserved]; n != 6 {
		t.Errorf("%v reservations were timed, want 6", n)
	}
	if after["llm_store_entities"] < 2 {
		t.Errorf("%v entities", after["llm_store_entities"])
	}
	if _, ok := after["llm_store_outage"]; ok {
		t.Error("a store in the process is said to be away, or not")
	}
	const reported = `llm_estimate_reported_tokens_total{kind="output",model="gpt-4o-mini"}`
	if n := after[reported] - before[reported]; n != 80 {
		t.Errorf("%v tokens were compared with what was expected, want 80", n)
	}
}

func TestMetricsTellWhatCallsCost(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		model := "gpt-4o-mini-2024-07-18"
		if strings.Contains(string(body), "nobody") {
			model = "model-that-nobody-prices"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"object":"chat.completion","model":"%s","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}`, model)
	})
	g := start(t, up, recording+`{site} {`+keyed+`
		llm_cost {
			price gpt-4o-mini* {
				input 1000000
				output 2000000
			}
			unknown_model unpriced
		}
		cost_limit {name} {
			consumer_based
			mode charge_after
			limit $250 per day
		}
		reverse_proxy {upstream}
	}`)
	const unpriced = `llm_cost_unpriced_total{model="model-that-nobody-prices"}`
	before := g.scrape()[unpriced]
	for range 2 { // $100 each
		if a := g.chat(keyA); a.Status != http.StatusOK {
			t.Fatalf("%d: %s", a.Status, a.Body)
		}
	}
	a := g.call("POST", "/v1/chat/completions", keyA, `{"model":"model-that-nobody-prices","messages":[]}`)
	if a.Status != http.StatusOK {
		t.Fatalf("%d: %s", a.Status, a.Body)
	}
	g.expectMetrics(map[string]float64{
		fmt.Sprintf(`llm_cost_usd_total{consumer="%s-app",model="gpt-4o-mini"}`, g.testName()): 200,
		unpriced: before + 1,
		fmt.Sprintf(`llm_thresholds_total{consumer="%s-app",limiter="%s",percent="80",rule="usd per day"}`, g.testName(), g.testName()): 1,
	})
	eventually(t, "told", func() bool { return len(g.events("llm.threshold")) == 1 })
	if e := g.events("llm.threshold")[0]; e["used"] != "200.000000000000" || e["limit"] != "250.000000000000" || e["unit"] != "usd" {
		t.Errorf("%v", e)
	}
}

func TestMetricsOfAStreamUnderWay(t *testing.T) {
	release := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		sixtyTokens(w, r)
	})
	g := start(t, up, `{site} {`+keyed+`
		token_limit {name} {
			consumer_based
			limit 100k tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	done := make(chan answer)
	go func() {
		a, _ := g.try(context.Background(), "POST", "/v1/chat/completions", keyA, `{"model":"m","messages":[]}`)
		done <- a
	}()
	eventually(t, "under way", func() bool { return up.calls() == 1 })
	if got := g.scrape(); got["llm_holds"] != 1 || got["llm_body_bytes"] == 0 {
		t.Errorf("holds %v, body bytes %v", got["llm_holds"], got["llm_body_bytes"])
	}
	close(release)
	if a := <-done; a.Status != http.StatusOK {
		t.Fatal(a.Status)
	}
	g.expectMetrics(map[string]float64{"llm_holds": 0, "llm_body_bytes": 0})
}

func TestMetricsGoOnThroughReloads(t *testing.T) {
	up := newUpstream(t, nil)
	site := func(limit int) string {
		return `{site} {` + keyed + fmt.Sprintf(`
		token_limit {name} {
			consumer_based
			limit %d tokens per hour
		}
		reverse_proxy {upstream} {
			transport http {
				keepalive off # an idle connection keeps the config that it was made for
			}
		}
	}`, limit)
	}
	g := start(t, up, site(1_000_000))
	series := fmt.Sprintf(`llm_tokens_total{consumer="%s-app",kind="input",model="gpt-4o-mini"}`, g.testName())

	const reloads = 20
	var freed atomic.Int64
	names := 0
	for i := range reloads {
		ctx := caddy.ActiveContext()
		runtime.AddCleanup(ctx.GetMetricsRegistry(), func(*struct{}) { freed.Add(1) }, nil)
		g.chat(keyA)
		g.expectMetrics(map[string]float64{series: float64(20 * (i + 1))})
		if i == 0 {
			names = len(g.scrape())
		}
		g.reload(up, site(1_000_000+i))
		if got := g.scrape()[series]; got != float64(20*(i+1)) {
			t.Fatalf("%v after reload %d, want %d", got, i+1, 20*(i+1))
		}
	}
	// the other tests' calls are over, so that there is nothing new to count
	if n := len(g.scrape()); n != names {
		t.Errorf("%d series, and %d before the reloads", n, names)
	}
	// the last ones may still be referred to, but not all that ever were
	eventually(t, "the registries of most configs that are gone are freed", func() bool {
		runtime.GC()
		return freed.Load() >= reloads/2
	})
}

func TestReloadThatFailsLeavesTheMetrics(t *testing.T) {
	up := newUpstream(t, nil)
	site := `{site} {` + keyed + `
		token_limit {name} {
			consumer_based
			limit 1M tokens per hour
		}
		reverse_proxy {upstream}
	}`
	g := start(t, up, site)
	g.chat(keyA)
	series := fmt.Sprintf(`llm_requests_total{api="openai.chat",consumer="%s-app",status="2xx"}`, g.testName())
	g.expectMetrics(map[string]float64{series: 1})
	if err := g.tryLoad(up, site+"\nhttp://{upstream} {\n\trespond ok\n}"); err == nil {
		t.Fatal("two listeners on one address")
	}
	g.chat(keyA)
	g.expectMetrics(map[string]float64{series: 2, "llm_holds": 0})
}

func TestMetricsHoldNothingThatClientsInvent(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		// a server that serves whatever it is asked for
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"model":"`)
		model, _, _ := strings.Cut(rest, `"`)
		fmt.Fprintf(w, `{"object":"chat.completion","model":"%s","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, model)
	})
	g := start(t, up, `{site} {`+auth+`
		vars x-wso2-application-id {http.request.header.X-Team}
		token_limit {name} {
			key {http.request.header.X-Team}
			limit 1M tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	before := len(g.scrape())
	for i := range 300 {
		model := fmt.Sprintf("invented-%d", i)
		switch i % 3 {
		case 1:
			model = keyA
		case 2:
			model = fmt.Sprintf("%x-%s", i, strings.Repeat("9f", 16))
		}
		a := g.call("POST", "/v1/chat/completions", "", `{"model":"`+model+`","messages":[]}`, "X-Team", fmt.Sprintf("team-%d-%s", i, keyA))
		if a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		g.call("POST", "/v1/chat/completions", fmt.Sprintf("%s-wrong-secret-%d", keyA, i), `{"model":"m","messages":[]}`)
	}
	text := g.exposition()
	if holdsKey(text) || strings.Contains(text, "9f9f9f") || strings.Contains(text, "team-") {
		t.Error("what a client sent is in the metrics")
	}
	// 100 models with tokens and estimates of two kinds, and a few reasons and classes
	if n := len(g.scrape()) - before; n > 100*6+20 {
		t.Errorf("%d new series", n)
	}
}
