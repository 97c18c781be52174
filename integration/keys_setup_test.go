//go:build unix

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/internal/redistest"
)

// keysGateways are replicas with keys that are issued at run time.
type keysGateways struct {
	t       testing.TB
	up      *upstream
	store   string // the option's lines
	auth    string // lines of api_key_auth beside keys_store
	secrets []string
	seen    bytes.Buffer // all that was answered to anybody
	all     []*process
}

// caddyfile logs as much as can be.
func (g *keysGateways) caddyfile(addr, admin string) string {
	return fmt.Sprintf(`{
	admin unix/%s
	auto_https off
	persist_config off
	grace_period 30s
	metrics
	debug
	log {
		format filter {
			request>headers>X-Api-Key delete
		}
	}
	llm {
		%s
	}
}
http://%s {
	log
	api_key_auth {
		key stated %s {
			application app-a
		}
		keys_store
		%s
	}
	token_limit apps {
		consumer_based
		limit 1_000_000 tokens per month
		limit 1_000_000 requests per week
	}
	reverse_proxy %s
}
`, admin, g.store, addr, hashOf(keyA), g.auth, g.up.addr)
}

func (g *keysGateways) run(data string) *process {
	g.t.Helper()
	k := &keeper{up: g.up, data: data, config: g.caddyfile}
	p := k.run(g.t)
	g.all = append(g.all, p)
	return p
}

// status is what a call with a key is answered with.
func (g *keysGateways) status(p *process, key string) int {
	g.t.Helper()
	body := `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	req, err := http.NewRequest(http.MethodPost, "http://"+p.addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	fmt.Fprintln(&g.seen, resp.Header, string(answer))
	return resp.StatusCode
}

// command runs caddy llm-key against a replica. Its output may have a new key in it,
// which is noted.
func (g *keysGateways) command(p *process, args ...string) (out string, err error) {
	g.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		g.t.Fatal(err)
	}
	args = append([]string{"llm-key"}, args...)
	cmd := exec.Command(exe, append(args, "--address", "unix/"+p.admin, "--json")...)
	cmd.Env = append(os.Environ(), beCaddy+"=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	fmt.Fprintln(&g.seen, stderr.String())
	if err != nil {
		return stderr.String(), err
	}
	return stdout.String(), nil
}

// key runs a command that shows a new key.
func (g *keysGateways) key(p *process, args ...string) (id, key string) {
	g.t.Helper()
	out, err := g.command(p, args...)
	if err != nil {
		g.t.Fatalf("llm-key %q: %v: %s", args, err, out)
	}
	var answer struct{ ID, Key string }
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Key == "" {
		g.t.Fatalf("llm-key %q: %v in %s", args, err, out)
	}
	g.secrets = append(g.secrets, answer.Key)
	return answer.ID, answer.Key
}

func (g *keysGateways) must(p *process, args ...string) string {
	g.t.Helper()
	out, err := g.command(p, args...)
	if err != nil {
		g.t.Fatalf("llm-key %q: %v: %s", args, err, out)
	}
	fmt.Fprintln(&g.seen, out)
	return out
}

// ask reads a page of the admin endpoint.
func (g *keysGateways) ask(p *process, method, path, body string) (int, string) {
	g.t.Helper()
	req, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := adminClient(p.admin).Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	fmt.Fprintln(&g.seen, resp.Header, string(answer))
	return resp.StatusCode, string(answer)
}

// showNothing fails the test if a secret, or half of one, is anywhere it can be read.
func (g *keysGateways) showNothing(server *redistest.Server) {
	g.t.Helper()
	places := map[string]string{"an answer": g.seen.String()}
	for i, p := range g.all {
		places[fmt.Sprintf("the log of replica %d", i)] = p.out.String()
		for _, path := range []string{"/metrics", "/llm/keys", "/llm/usage", "/llm/limits", "/config/"} {
			_, places[fmt.Sprintf("%s of replica %d", path, i)] = g.ask(p, http.MethodGet, path, "")
		}
	}
	if server != nil {
		places["Redis"] = dump(g.t, server)
	}
	for where, text := range places {
		if len(text) == 0 {
			g.t.Errorf("%s is empty", where)
		}
		for _, secret := range g.secrets {
			for _, part := range []string{secret, secret[5:30], secret[30:]} {
				if i := strings.Index(text, part); i >= 0 {
					g.t.Errorf("a key shows in %s: …%s…", where, text[max(0, i-80):min(len(text), i+40)])
				}
			}
		}
	}
}

// dump is all keys and values of a Redis.
func dump(t testing.TB, server *redistest.Server) string {
	t.Helper()
	c := server.Client()
	defer c.Close()
	var all strings.Builder
	for it := c.Scan(t.Context(), 0, "*", 1000).Iterator(); it.Next(t.Context()); {
		var value any
		var err error
		switch kind := c.Type(t.Context(), it.Val()).Val(); kind {
		case "hash":
			value, err = c.HGetAll(t.Context(), it.Val()).Result()
		case "zset":
			value, err = c.ZRangeWithScores(t.Context(), it.Val(), 0, -1).Result()
		case "string":
			value, err = c.Get(t.Context(), it.Val()).Result()
		default:
			t.Errorf("%s is a %s", it.Val(), kind)
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&all, it.Val(), value)
	}
	return all.String()
}
