package integration

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

func init() { caddy.RegisterModule(new(recorder)) }

// recorder is an event handler that keeps what it is told, whichever config told it.
type recorder struct {
	ID string `json:"id"`
}

var recorded struct {
	mu   sync.Mutex
	data map[string][]map[string]any // by recorder and event
}

func (*recorder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.test_recorder", New: func() caddy.Module { return new(recorder) }}
}

// UnmarshalCaddyfile reads `test_recorder <id>`.
func (rc *recorder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&rc.ID) {
		return d.ArgErr()
	}
	return nil
}

// Handle implements caddyevents.Handler.
func (rc *recorder) Handle(_ context.Context, e caddy.Event) error {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	if recorded.data == nil {
		recorded.data = make(map[string][]map[string]any)
	}
	key := rc.ID + " " + e.Name()
	data := maps.Clone(e.Data)
	data["origin"] = e.Origin().CaddyModule().ID.Name()
	recorded.data[key] = append(recorded.data[key], data)
	return nil
}

// events are those of a gateway's that a recorder was told.
func (g *gateway) events(name string) []map[string]any {
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	return recorded.data[g.testName()+" "+name]
}

const recording = `{
	events {
		on llm.threshold test_recorder {name}
		on llm.refused test_recorder {name}
	}
}
`

func TestThresholdsAndRefusalsAreEvents(t *testing.T) {
	up := newUpstream(t, nil)
	site := func(limit int) string {
		return recording + `{site} {` + keyed + fmt.Sprintf(`
		token_limit {name} {
			consumer_based
			limit %d tokens per day
			limit 1000 requests per minute
		}
		reverse_proxy {upstream}
	}`, limit)
	}
	g := start(t, up, site(300))
	for i, want := range []int{200, 200, 200} { // 180 of 300
		if a := g.chat(keyA); a.Status != want {
			t.Fatalf("call %d: %d", i+1, a.Status)
		}
	}
	g.reload(up, site(300)) // what is known of the counter outlives the config
	if a := g.chat(keyA); a.Status != http.StatusOK {
		t.Fatal(a.Status) // 240
	}
	eventually(t, "told of 80 percent", func() bool { return len(g.events("llm.threshold")) == 1 })
	g.chat(keyA) // 300
	eventually(t, "told of 100 percent", func() bool { return len(g.events("llm.threshold")) == 2 })
	for range 2 {
		if a := g.chat(keyA); a.Status != http.StatusTooManyRequests {
			t.Fatal(a.Status)
		}
	}
	eventually(t, "told of refusals", func() bool { return len(g.events("llm.refused")) == 2 })

	for i, percent := range []int64{80, 100} {
		e := g.events("llm.threshold")[i]
		if e["percent"] != percent || e["instance"] != g.testName() || e["rule"] != "tokens per day" || e["limit"] != int64(300) ||
			e["used"] != []int64{240, 300}[i] || e["consumer"] != g.testName()+"-app" || e["origin"] != "llm" || e["resets_at"] == nil {
			t.Errorf("threshold %d: %v", percent, e)
		}
	}
	if n := len(g.events("llm.threshold")); n != 2 {
		t.Errorf("told %d times", n)
	}
	for _, e := range g.events("llm.refused") {
		if e["instance"] != g.testName() || e["rule"] != "tokens per day" || e["code"] != "rate_limit_exceeded" ||
			e["status"] != 429 || e["consumer"] != g.testName()+"-app" || e["key_id"] != "a" {
			t.Errorf("refused: %v", e)
		}
	}
	series := func(percent int) string {
		return fmt.Sprintf(`llm_thresholds_total{consumer="%s-app",limiter="%s",percent="%d",rule="tokens per day"}`, g.testName(), g.testName(), percent)
	}
	g.expectMetrics(map[string]float64{series(80): 1, series(100): 1})
}

func TestThresholdOfASharedCounterNamesNobody(t *testing.T) {
	g := start(t, newUpstream(t, nil), recording+`{site} {`+keyed+`
		token_limit {name} {
			limit 5 requests per hour
		}
		reverse_proxy {upstream}
	}`)
	for range 4 {
		g.chat(keyA)
	}
	eventually(t, "told", func() bool { return len(g.events("llm.threshold")) == 1 })
	if e := g.events("llm.threshold")[0]; e["consumer"] != "" || e["percent"] != int64(80) || e["used"] != int64(4) {
		t.Errorf("%v", e)
	}
	g.expectMetrics(map[string]float64{
		fmt.Sprintf(`llm_thresholds_total{consumer="",limiter="%s",percent="80",rule="requests per hour"}`, g.testName()): 1,
	})
}

func TestCallsThatCrossALineTogetherTellOnce(t *testing.T) {
	g := start(t, newUpstream(t, nil), recording+`{site} {`+keyed+`
		token_limit {name} {
			consumer_based
			mode charge_after
			limit 3000 tokens per day
		}
		reverse_proxy {upstream}
	}`)
	count := parallel(g, 48, keyA, `{"model":"m","messages":[]}`) // 2880
	if count[http.StatusOK] != 48 {
		t.Fatal(count)
	}
	eventually(t, "told", func() bool { return len(g.events("llm.threshold")) >= 1 })
	parallel(g, 8, keyA, `{"model":"m","messages":[]}`)
	eventually(t, "told of both", func() bool { return len(g.events("llm.threshold")) >= 2 })
	g.chat(keyA)
	if n := len(g.events("llm.threshold")); n != 2 {
		t.Errorf("told %d times: %v", n, g.events("llm.threshold"))
	}
}

// Interface guards
var (
	_ caddyevents.Handler   = (*recorder)(nil)
	_ caddyfile.Unmarshaler = (*recorder)(nil)
)
