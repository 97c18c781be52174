//go:build unix

package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// ownUsage is what llm_usage tells a caller, as far as these tests look at it.
type ownUsage struct {
	Consumer string
	KeyID    string `json:"key_id"`
	Current  bool
	Limits   []struct {
		Instance, Rule, Model string
		Limit, Used           json.RawMessage
	}
}

// usage asks what a key's caller has used.
func (g *gateway) usage(key string) (u ownUsage) {
	g.t.Helper()
	a := g.askUsage("GET", key)
	if a.Status != http.StatusOK {
		g.t.Fatalf("got %d: %s", a.Status, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), &u); err != nil {
		g.t.Fatalf("%v in %s", err, a.Body)
	}
	return u
}

// askUsage asks for it as often as it takes: a caller is answered 20 times a second.
func (g *gateway) askUsage(method, key string, header ...string) (a answer) {
	g.t.Helper()
	patiently(g.t, "answered", func() bool {
		a = g.call(method, "/llm/usage", key, "", header...)
		return a.Status != http.StatusTooManyRequests
	})
	return a
}

// lines are the limits of an answer: rule, model, used and limit.
func (u *ownUsage) lines() (lines []string) {
	for _, l := range u.Limits {
		lines = append(lines, fmt.Sprintf("%s %s/%s", strings.TrimSpace(l.Rule+" "+l.Model), strings.Trim(string(l.Used), `"`), strings.Trim(string(l.Limit), `"`)))
	}
	return lines
}

// usageLimits are limits of all kinds, behind llm_usage.
const usageLimits = `llm_usage
	` + halfDollar + `
	token_limit apps {
		consumer_based
		limit 120 tokens per month
		limit 50 requests per month
		model gpt-* {
			limit 10k tokens per month
			per_model
		}
	}
	token_limit all {
		limit 1M tokens per month
	}
	cost_limit budget {
		consumer_based
		limit $10 per month
	}`

func TestReplicasTellTheSameUsage(t *testing.T) {
	t.Parallel()
	f := newFleet(t, sixtyTokens, usageLimits)
	f.store = "timeout 10s"
	replicas := f.replicas(2)
	replicas[0].chats(1)
	replicas[1].chats(1)
	want := []string{"tokens per month 120/120", "requests per month 2/50", "tokens per month (gpt-*) gpt-4o-mini 120/10000", "usd per month 1/10"}
	for i, r := range replicas {
		// what was called through the other may take a moment
		patiently(t, "the same at replica "+fmt.Sprint(i), func() bool {
			u := r.usage(keyA)
			return slices.Equal(u.lines(), want) && u.Current
		})
		// the budget of tokens is gone, and asking is answered and costs nothing
		if a := r.chat(keyA); a.Status != http.StatusTooManyRequests {
			t.Errorf("replica %d: got %d: %s", i, a.Status, a.Body)
		}
		u := r.usage(keyA)
		if got := u.lines(); !slices.Equal(got, want) {
			t.Errorf("replica %d: got %q after a refusal", i, got)
		}
		b := r.usage(keyB)
		if got := strings.Join(b.lines(), ", "); b.Consumer != "app-b" || got != "tokens per month 0/120, requests per month 0/50, tokens per month (gpt-*) 0/10000, usd per month 0/10" {
			t.Errorf("replica %d: app-b has used %q", i, got)
		}
	}
}

func TestUsageInAnOutage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		policy string
		status int
	}{
		{"local", http.StatusOK},
		{"deny", http.StatusServiceUnavailable},
	} {
		t.Run(tc.policy, func(t *testing.T) {
			f := newFleet(t, sixtyTokens, usageLimits)
			f.store = "on_outage " + tc.policy
			r := f.run(t.TempDir())
			r.chats(1)
			f.server.Stop()
			// whoever asks meets the outage; the charge of the call may have been there before
			patiently(t, "in an outage", func() bool {
				r.call("GET", "/llm/usage", keyA, "")
				return r.remote().Outage
			})
			a := r.call("GET", "/llm/usage", keyA, "")
			switch {
			case a.Status != tc.status:
				t.Errorf("got %d: %s", a.Status, a.Body)
			case tc.status == http.StatusOK && (!strings.Contains(a.Body, `"current":false`) || !strings.Contains(a.Body, `"used":60,`)):
				t.Errorf("got %s", a.Body)
			case tc.status != http.StatusOK && (a.Header.Get("Retry-After") == "" || !strings.Contains(a.Body, "usage_unavailable")):
				t.Errorf("got %v: %s", a.Header, a.Body)
			}
			page := r.call("GET", "/llm/usage", keyA, "", "Accept", "text/html")
			if page.Status != tc.status || !strings.Contains(page.Body, `<p class="notice">`) {
				t.Errorf("the page is %d: %s", page.Status, page.Body)
			}
			if strings.Contains(a.Body+page.Body, f.redis) {
				t.Error("the address of the server is told")
			}
		})
	}
}

// A caller sees nothing of others, however it asks.
func TestUsageOfOthersIsNotTold(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {`+auth+`
		llm_usage
		token_limit {name} {
			consumer_based
			limit 777 tokens per hour
		}
		token_limit {name}-all {
			limit 888_777_666 tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	for range 3 {
		if a := g.chat(keyB); a.Status != http.StatusOK {
			t.Fatalf("got %d: %s", a.Status, a.Body)
		}
	}
	before := up.calls()
	secrets := func(name, text string) {
		t.Helper()
		for _, other := range []string{"app-b", keyA, keyB, "888777666", "888,777", `"used":180`, ">180<"} {
			if strings.Contains(text, other) {
				t.Errorf("%s: %q is in %s", name, other, text)
			}
		}
	}
	for _, header := range [][2]string{
		{"X-Wso2-Application-Id", "app-b"},
		{"X-Application", "app-b"},
		{"X-Consumer", "app-b"},
		{"X-Key-Id", "b"},
		{"X-Forwarded-User", "b"},
		{"X-Http-Method-Override", "DELETE"},
		{"X-Original-Url", "/llm/usage?consumer=app-b"},
		{"X-Rewrite-Url", "/llm/usage?consumer=app-b"},
		{"Forwarded", "for=127.0.0.1"},
		{"X-Forwarded-For", "127.0.0.1"},
		{"Origin", "http://evil.test"},
		{"Cookie", "consumer=app-b"},
		{"If-None-Match", "*"},
		{"Range", "bytes=0-10"},
	} {
		for _, accept := range []string{"*/*", "text/html"} {
			a := g.askUsage("GET", keyA, header[0], header[1], "Accept", accept)
			if a.Status != http.StatusOK || !strings.Contains(a.Body, "app-a") || a.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%v: %d %s", header, a.Status, a.Body)
			}
			secrets(fmt.Sprint(header), a.Body)
		}
	}
	if got := up.calls(); got != before {
		t.Errorf("%d requests came to the provider", got-before)
	}

	for _, target := range []string{
		"/llm/usage?consumer=app-b", "/llm/usage?consumer=app-b&instance=all", "/llm/usage?application=app-b&key=b&after=x/y", "/llm/usage?",
		"//llm/usage", "/llm//usage", "/llm/./usage", "/x/../llm/usage", "/llm%2fusage", "/llm%2Fusage?consumer=app-b", "/%6clm/usage", "/LLM/USAGE",
		"/llm/usage/", "/llm/usage;consumer=app-b", "/llm/usage/app-b", "/llm/usage%00", "/llm/usage%3fconsumer=app-b", "/llm\\usage",
		"http://other.test/llm/usage?consumer=app-b",
	} {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY", "get"} {
			said := ""
			patiently(t, "answered", func() bool {
				said = g.spelled(method, target, keyA)
				return !strings.Contains(said, "times a second")
			})
			secrets(method+" "+target, said)
		}
	}
	if a := g.askUsage("HEAD", keyA); a.Status != http.StatusOK || a.Body != "" || a.Header.Get("Content-Length") == "" {
		t.Errorf("HEAD is %d, %v: %s", a.Status, a.Header, a.Body)
	}
	if a := g.call("POST", "/llm/usage", keyA, "", "X-Http-Method-Override", "GET"); a.Status != http.StatusMethodNotAllowed || a.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST is %d, %v", a.Status, a.Header)
	}
	for _, key := range []string{"", "sk-wrong"} {
		if a := g.call("GET", "/llm/usage", key, ""); a.Status != http.StatusUnauthorized || strings.Contains(a.Body, "777") {
			t.Errorf("with the key %q: %d %s", key, a.Status, a.Body)
		}
	}
	if a := g.call("GET", "/llm/usage", keyUnbound, ""); a.Status != http.StatusForbidden || strings.Contains(a.Body, "777") {
		t.Errorf("with a key of no application: %d %s", a.Status, a.Body)
	}
	logs := g.logs.text()
	for _, key := range []string{keyA, keyB, "sk-wrong"} {
		if strings.Contains(logs, key) {
			t.Errorf("%s is in the log", key)
		}
	}
}

// spelled sends a request as it is written, and returns what comes back.
func (g *gateway) spelled(method, target, key string) string {
	g.t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		g.t.Fatal(err)
	}
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", method, target, g.addr, key)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var text strings.Builder
	if err := resp.Write(&text); err != nil {
		return text.String() + err.Error()
	}
	return text.String()
}

// llmUsage runs `caddy llm-usage` against a process.
func (p *process) llmUsage(args ...string) (stdout string, err error) {
	p.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"llm-usage"}, args...)...)
	cmd.Env = append(os.Environ(), beCaddy+"=1", "LANG=C.UTF-8", "LC_ALL=")
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return said.String(), err
	}
	return out.String(), nil
}

func TestUsageCommand(t *testing.T) {
	t.Parallel()
	k := newKeeper(t, nil)
	p := k.run(t)
	p.chats(2)
	admin := "unix/" + p.admin

	table, err := p.llmUsage("--address", admin)
	if err != nil {
		t.Fatalf("%v: %s", err, table)
	}
	lines := strings.Split(table, "\n")
	if !strings.HasPrefix(lines[0], "CONSUMER  INSTANCE  RULE") || strings.Contains(table, "\x1b") ||
		!slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "app-a") && strings.Contains(l, " 120 ") && strings.Contains(l, "░")
		}) {
		t.Errorf("got\n%s", table)
	}

	// the address stands in the config, too
	args := k.command(t, "run", p.addr, p.admin).Args[2:]
	text, err := p.llmUsage(append(args, "--json", "--instance", "apps", "--consumer", "app-a")...)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var rows []row
	if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) == 0 || rows[0].Consumer != "app-a" {
		t.Errorf("got %v: %s", err, text)
	}

	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"an unknown instance", []string{"--address", admin, "--instance", "nobody"}, "nobody"},
		{"nobody there", []string{"--address", admin + ".not"}, "no such file"},
		{"a word too many", []string{"--address", admin, "app-a"}, "unknown command"},
		{"watching JSON", []string{"--address", admin, "--json", "--watch"}, "--watch shows a table"},
		{"watching too often", []string{"--address", admin, "--watch=10ms"}, "less than a second"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said, err := p.llmUsage(tc.args...)
			if err == nil || !strings.Contains(said, tc.want) {
				t.Errorf("got %v: %s", err, said)
			}
		})
	}
}
