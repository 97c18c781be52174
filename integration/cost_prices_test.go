package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// priceList is a table of LiteLLM's with one model, at so many dollars per token of
// either kind.
func priceList(usd string) string {
	return fmt.Sprintf(`{"house-model":{"litellm_provider":"openai","mode":"chat","input_cost_per_token":%s,"output_cost_per_token":%s}}`, usd, usd)
}

// house sends a call of the model that only the tests' tables know.
func (g *gateway) house() answer {
	return g.call("POST", "/v1/chat/completions", keyA, `{"model":"house-model","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`)
}

// houseModel answers as that model, with 60 tokens.
func houseModel(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"object":"chat.completion","model":"house-model","choices":[{"index":0,"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}`)
}

func TestPricesOfAFileAreReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prices.json")
	write := func(usd string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(priceList(usd)), 0o600); err != nil {
			t.Fatal(err)
		}
		later := time.Now().Add(time.Hour) // whatever the file system's clock resolves
		if err := os.Chtimes(file, later, later); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte(priceList("0.000001")), 0o600); err != nil {
		t.Fatal(err)
	}
	up := newUpstream(t, houseModel)
	site := `{site} {` + auth + `
		log
		cost_limit {name} {
			consumer_based
			limit $10 per hour
		}
		llm_cost {
			prices ` + file + `
		}
		reverse_proxy {upstream}
	}`
	g := start(t, up, site)
	if a := g.house(); a.Status != http.StatusOK {
		t.Fatalf("%d: %s", a.Status, a.Body)
	}
	if c := g.spent("app-a"); c.Used != "0.00006" {
		t.Errorf("spent %s", c.Used)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil { // a copy that cannot be used
		t.Fatal(err)
	}
	eventually(t, "the fault is logged", func() bool { return strings.Contains(g.logs.text(), "refreshing prices") })
	before := g.spent("app-a").Used
	if a := g.house(); a.Status != http.StatusOK || g.spent("app-a").Used == before {
		t.Errorf("under the last good copy: %d, spent %s", a.Status, g.spent("app-a").Used)
	}
	write("0.000002")
	call := func() {
		t.Helper()
		if a := g.house(); a.Status != http.StatusOK {
			t.Fatalf("%d: %s", a.Status, a.Body)
		}
	}
	const dearer = `"cost_usd":"0.000120000000"`
	eventually(t, "the new price is in force", func() bool {
		call()
		return strings.Contains(g.logs.text(), dearer)
	})
	g.reload(up, site+"\n# another config with the same tables\n")
	n := strings.Count(g.logs.text(), dearer)
	call()
	eventually(t, "the price outlives the config", func() bool { return strings.Count(g.logs.text(), dearer) > n })
}

func TestPricesOfAnURLAreFetchedInTheBackground(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	var hits atomic.Int64
	release := make(chan struct{})
	list := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		<-release
		fmt.Fprint(w, priceList("0.000001"))
	}))
	t.Cleanup(list.Close)
	up := newUpstream(t, houseModel)
	site := `{site} {` + auth + `
		log
		cost_limit {name} {
			consumer_based
			limit $10 per hour
		}
		llm_cost {
			prices ` + list.URL + `/prices.json
		}
		reverse_proxy {upstream}
	}`
	g := start(t, up, site)
	// the start waits for nobody
	if a := g.house(); a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "model_not_priced") {
		t.Errorf("before there is a price: %d %s", a.Status, a.Body)
	}
	close(release)
	eventually(t, "the price is in force", func() bool { return g.house().Status == http.StatusOK })
	g.reload(up, site+"\n# again\n")
	if a := g.house(); a.Status != http.StatusOK {
		t.Errorf("after a reload: %d %s", a.Status, a.Body)
	}
	if n := hits.Load(); n != 1 {
		t.Errorf("the list was fetched %d times", n)
	}

	// a check of a config dials nothing
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	t.Cleanup(other.Close)
	config, err := g.adapt(up, strings.ReplaceAll(site, list.URL, other.URL))
	if err != nil {
		t.Fatal(err)
	}
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	c.Admin = &caddy.AdminConfig{Disabled: true}
	c.Logging = nil
	if err := caddy.Validate(&c); err != nil {
		t.Fatal(err)
	}
	if n := hits.Load(); n != 1 {
		t.Errorf("validating fetched %d lists", n-1)
	}
}

func TestRealtimeSocketIsClosedWhenABudgetIsSpent(t *testing.T) {
	up := newRealtime(t, turns)
	site := strings.Replace(realtimeSite("10k", ""), "reverse_proxy", `cost_limit {name}-usd {
			consumer_based
			limit $0.20 per hour
		}
		llm_cost {
			price gpt-realtime* {
				input 1000
				output 2000
				audio_output 2000
			}
		}
		reverse_proxy`, 1)
	g := start(t, up.upstream, site)
	p := g.session(realtimePath)
	g.do(p.messages(1))
	for range 2 { // turns of $0.10
		g.do(p.message(askEvent))
		g.do(p.messages(3))
	}
	opcode, payload, err := p.next()
	if opcode != 8 || string(payload) != "\x03\xf0rate_limit_exceeded" {
		t.Fatalf("got %d %q, %v", opcode, payload, err)
	}
	g.do(p.frame(0x88, string(payload)))
	<-up.peers
	eventually(t, "the session is charged", func() bool {
		return g.budget("-usd", "app-a") == dollars{"0.20", "0.20", "0", "0"}
	})
}
