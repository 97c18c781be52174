package integration

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/browsertest"
)

// openUI runs `caddy llm-ui` beside a gateway and returns a link to it, the second that
// it prints: it is asked for another by Enter.
func openUI(t testing.TB, g *gateway) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "llm-ui", "--address", "unix/"+g.admin, "--no-open")
	cmd.Env = append(os.Environ(), beCaddy+"=1")
	var stderr output
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("llm-ui ends with %v: %s", err, &stderr)
		}
	})
	first := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		link := lines.Text()
		switch {
		case !strings.HasPrefix(link, "http://127.0.0.1:"):
		case first != "":
			if link == first {
				t.Errorf("the second link is the first, %s", link)
			}
			return link
		default:
			first = link
			if _, err := io.WriteString(stdin, "\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatalf("llm-ui prints no link: %s", &stderr)
	return ""
}

// uiArgs are what the scripts of a page are told about the gateway.
type uiArgs struct {
	Gateway  string `json:"gateway"`
	Key      string `json:"key"`
	Instance string `json:"instance"`
}

// appsSite counts the calls of app-a, of 60 tokens each.
var appsSite = `{site} {` + auth + `
	token_limit {name} {
		consumer_based
		limit 100 tokens per hour
		limit 50 requests per day
	}
	token_limit {name}-all {
		limit 1M tokens per hour
	}
	reverse_proxy {upstream}
}`

// modelsSite counts the models of app-a apart, and those of all.
var modelsSite = `{site} {` + auth + `
	token_limit {name} {
		consumer_based
		model gpt-* {
			limit 100 tokens per hour
			per_model
		}
	}
	token_limit {name}-all {
		model * {
			limit 1M tokens per day
			per_model
		}
	}
	reverse_proxy {upstream}
}`

// startUI is a gateway whose app-a has used up its tokens, and the page beside it.
func startUI(t *testing.T, site string) (g *gateway, link string, args uiArgs) {
	t.Helper()
	g = start(t, newUpstream(t, nil), site)
	for i, want := range []int{200, 200, 429} {
		if a := g.chat(keyA); a.Status != want {
			t.Fatalf("call %d: %d, want %d", i+1, a.Status, want)
		}
	}
	return g, openUI(t, g), uiArgs{Gateway: "http://" + g.addr, Key: keyA, Instance: g.testName()}
}

func TestUIRaisesALimitInThreeClicks(t *testing.T) {
	g, link, args := startUI(t, appsSite)
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/raise.mjs", URL: link, Args: args}, nil)
	// the page has taken the override back in the end
	if u := g.used("", "app-a", "tokens per hour"); u.Limit != 100 || u.Used != 180 {
		t.Errorf("app-a has used %d of %d, want 180 of 100", u.Used, u.Limit)
	}
}

func TestUIRaisesTheLimitOfAModel(t *testing.T) {
	g, link, args := startUI(t, modelsSite)
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/model.mjs", URL: link, Args: args}, nil)
	var rows []row
	g.adminGet("/llm/overrides", &rows)
	limits := map[string]int64{}
	for _, r := range rows {
		limits[r.Consumer+" "+r.Model] = r.Limit
	}
	if want := map[string]int64{"app-a gpt-4o-mini": 1000, " gpt-4o-mini": 5_000_000}; !maps.Equal(limits, want) {
		t.Errorf("overrides are %v, want %v", limits, want)
	}
}

func TestUIWorksByKeyboardAlone(t *testing.T) {
	_, link, args := startUI(t, appsSite)
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/keyboard.mjs", URL: link, Args: args}, nil)
}

func TestUIGrantsAndCharges(t *testing.T) {
	g, link, args := startUI(t, appsSite)
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/adjust.mjs", URL: link, Args: args}, nil)
	if u := g.used("", "app-a", "tokens per hour"); u.Used != 180-100+7 {
		t.Errorf("app-a has used %d, want %d", u.Used, 180-100+7)
	}
}

func TestUIEditsLimitsAndKeepsCounts(t *testing.T) {
	g, link, args := startUI(t, appsSite)
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/edit.mjs", URL: link, Args: args}, nil)
	for rule, want := range map[string]row{
		"tokens per hour": {Limit: 1000, Used: 180}, "tokens per month": {Limit: 2_000_000, Used: 60},
	} {
		if u := g.used("", "app-a", rule); u.Limit != want.Limit || u.Used != want.Used {
			t.Errorf("%s: %d of %d, want %d of %d", rule, u.Used, u.Limit, want.Used, want.Limit)
		}
	}
	var rows []row
	g.adminGet("/llm/usage?instance="+g.testName(), &rows)
	for _, r := range rows {
		if r.Rule == "requests per day" {
			t.Errorf("the limit that was removed is there: %+v", r)
		}
	}
}

// A gateway as operators have it, for the looks of the page: many consumers, some near
// their limits and some past them.
func lookSite(consumers int) string {
	var b strings.Builder
	b.WriteString("{site} {\n\tapi_key_auth {\n\t\tkeys_store\n")
	for i := range consumers {
		fmt.Fprintf(&b, "\t\tkey k%d %s {\n\t\t\tapplication %s\n\t\t}\n", i, hashOf(lookKey(i)), lookName(i))
	}
	b.WriteString(`	}
	llm_limits {name} {
		consumer {
			limit 30 requests per minute
			limit 1_000 tokens per hour
			limit $0.05 per day
		}
		backend {
			limit 1000 requests per minute
			limit 8_000 tokens per hour
			limit $100 per month
		}
	}
	token_limit {name}-groups {
		consumer_based
		limit 1M tokens per day
		model gpt-4o* o3* {
			limit 20k output_tokens per day
			per_model
		}
		group premium {
			limit 50M tokens per day
		}
	}
	reverse_proxy {upstream}
}`)
	return b.String()
}

func lookKey(i int) string { return fmt.Sprintf("sk-test-look-%d", i) }

func lookName(i int) string {
	return []string{"checkout", "search", "support-bot", "nightly-batch", "mobile-app", "internal-wiki", "data-science", "an-application-with-quite-a-long-name-of-its-own", "recommender"}[i]
}

func TestUILooks(t *testing.T) {
	const consumers = 9
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hi."},"finish_reason":"stop"}],"usage":{"prompt_tokens":40,"completion_tokens":20,"total_tokens":60}}`)
	})
	g := start(t, up, lookSite(consumers))
	link := openUI(t, g)
	for i := range consumers {
		for range 1 + i*i/3 {
			g.call("POST", "/v1/chat/completions", lookKey(i), chatBody)
		}
	}
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/looks.mjs", URL: link, Args: uiArgs{
		Gateway: "http://" + g.addr, Key: lookKey(0), Instance: g.testName(),
	}}, nil)
}

func TestUIKeysAreIssuedRotatedAndRevoked(t *testing.T) {
	g := start(t, newUpstream(t, nil), `{site} {
	api_key_auth {
		keys_store
	}
	token_limit {name} {
		consumer_based
		limit 1M tokens per hour
	}
	reverse_proxy {upstream}
}`)
	var secrets []string
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/keys.mjs", URL: openUI(t, g), Args: uiArgs{Gateway: "http://" + g.addr}}, &secrets)
	if len(secrets) != 4 {
		t.Fatalf("%d secrets were shown, want 4", len(secrets))
	}
	for _, secret := range secrets {
		if strings.Contains(g.logs.text(), secret) {
			t.Error("the log has a secret")
		}
	}
}

func TestUISaysWhatToConfigureForKeys(t *testing.T) {
	_, link, args := startUI(t, appsSite)
	browsertest.Run(t, browsertest.Script{Path: "testdata/ui/nokeys.mjs", URL: link, Args: args}, nil)
}

func TestUICommandSaysWhatItCannotDo(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"another interface", []string{"--listen", "0.0.0.0:0"}, `listen address "0.0.0.0:0" is not of a loopback interface`},
		{"no port", []string{"--listen", "127.0.0.1"}, `listen address "127.0.0.1": `},
		{"many admin endpoints", []string{"--address", "localhost:2019-2021"}, `admin address "localhost:2019-2021" names no one socket`},
		{"a config that is not there", []string{"--config", "nothing.json"}, "finding the admin endpoint: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), exe, append([]string{"llm-ui", "--no-open"}, tc.args...)...)
			cmd.Env = append(os.Environ(), beCaddy+"=1")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v: %s, want %s", err, out, tc.want)
			}
		})
	}
}
