package llmusage_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	_ "github.com/llmlimits/caddy-llm-limits" // for the order of the directives
	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
)

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// Keys of the sites of these tests: those of two applications, one that is bound to none,
// and one in the group `gold`.
const (
	keyA       = "sk-demo-a"
	keyB       = "sk-demo-b"
	keyUnbound = "sk-demo-unbound"
	keys       = `
	api_key_auth {
		key key-a sha256:d044463b6a7678708e01561788c68427a73e3ed92652940783ca56df4689fe1e {
			application app-a
			group gold
		}
		key key-b sha256:fc312e02ca199c763c451ee0e75457886a118ab18ff6e0b52f33c3064b22800d {
			application app-b
		}
		key key-u sha256:9222ad4d3ba844ef202b5b98973fe6f50560ed5cad2eeaa87e7e85b8e46a8cfd
		optional
	}
`
	// provider answers each call with 60 tokens.
	provider = `
	respond ` + "`" + `{"id":"c","object":"chat.completion","model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":20,"completion_tokens":40,"total_tokens":60}}` + "`" + `
`
)

// gateway is a config that runs in this process, without listeners. There is one at a time.
type gateway struct {
	t      testing.TB
	server *caddyhttp.Server
}

// start runs a site: its keys, some lines, and the provider.
func start(t testing.TB, lines string) *gateway {
	t.Helper()
	g, err := load(t, ":0 {\n"+keys+lines+provider+"}\n")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// load runs a Caddyfile.
func load(t testing.TB, text string) (*gateway, error) {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return nil, err
	}
	if err := caddy.Load(quiet(t, config), true); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, srv := range app.(*caddyhttp.App).Servers {
		return &gateway{t, srv}, nil
	}
	t.Fatal("no server")
	return nil, nil
}

// quiet takes out what would need ports, or write files or to the console.
func quiet(t testing.TB, config []byte) []byte {
	t.Helper()
	type object = map[string]any
	var c object
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	c["storage"] = object{"module": "file_system", "root": t.TempDir()}
	c["logging"] = object{"logs": object{"default": object{"writer": object{"output": "discard"}}}}
	c["admin"] = object{"disabled": true, "config": object{"persist": false}}
	for _, srv := range c["apps"].(object)["http"].(object)["servers"].(object) {
		delete(srv.(object), "listen")
		srv.(object)["automatic_https"] = object{"disable": true}
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// do sends a request with a key; an empty one sends none. Headers are given as name,
// value, ….
func (g *gateway) do(method, target, key, body string, headers ...string) *httptest.ResponseRecorder {
	g.t.Helper()
	var content io.Reader = http.NoBody
	if body != "" {
		content = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, content)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.server.ServeHTTP(w, r)
	return w
}

// chat makes a call, and wants a status.
func (g *gateway) chat(key string, status int) {
	g.t.Helper()
	w := g.do("POST", "/v1/chat/completions", key, `{"model":"gpt-4o","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`, "Content-Type", "application/json")
	if w.Code != status {
		g.t.Fatalf("got %d, want %d: %s", w.Code, status, w.Body)
	}
}

// answer is what llm_usage tells, as far as these tests look at it.
type answer struct {
	Consumer string
	KeyID    string `json:"key_id"`
	Group    string
	Current  bool
	Limits   []struct {
		Instance, Rule, Group, Model, Unit, Currency string
		Models                                       []string
		PerModel                                     bool `json:"per_model"`
		Limit, Used, Reserved, Remaining             json.RawMessage
	}
}

// usage asks for what a key has used.
func (g *gateway) usage(key string, headers ...string) answer {
	g.t.Helper()
	w := g.do("GET", "/llm/usage", key, "", headers...)
	if w.Code != http.StatusOK {
		g.t.Fatalf("got %d: %s", w.Code, w.Body)
	}
	var a answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		g.t.Fatalf("%v in %s", err, w.Body)
	}
	return a
}

// used is a line for each limit of an answer: its instance, rule, model and what is used.
func (a *answer) used() (lines []string) {
	for _, l := range a.Limits {
		line := l.Instance + " " + l.Rule + " "
		if l.Model != "" {
			line += l.Model + " "
		}
		lines = append(lines, line+strings.Trim(string(l.Used), `"`)+"/"+strings.Trim(string(l.Limit), `"`))
	}
	return lines
}
