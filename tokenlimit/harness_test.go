package tokenlimit_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	_ "github.com/llmlimits/caddy-llm-limits" // for the order of the directives
	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

func init() {
	caddy.RegisterModule(upstream{})
	caddy.RegisterModule(outsider{})
	caddy.RegisterModule(logWriter{})
	httpcaddyfile.RegisterHandlerDirective("test_upstream", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return upstream{}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("test_upstream", httpcaddyfile.Before, "respond")
	httpcaddyfile.RegisterHandlerDirective("test_outside", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return outsider{}, nil
	})
}

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// answer is what the upstream of the running test does. Tests of this package do not
// run in parallel: Caddy has one config.
var answer caddyhttp.HandlerFunc

// upstream stands in for reverse_proxy.
type upstream struct{}

func (upstream) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_upstream", New: func() caddy.Module { return new(upstream) }}
}

func (upstream) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	return answer(w, r)
}

// outside is the error that the handlers behind test_outside returned last.
var outside error

// outsider stands outside of limiters and sees what they return.
type outsider struct{}

func (outsider) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_outside", New: func() caddy.Module { return new(outsider) }}
}

func (outsider) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	outside = next.ServeHTTP(w, r)
	return outside
}

// accessLog is what the log of the running test holds.
var accessLog struct {
	sync.Mutex
	bytes.Buffer
}

// logWriter writes the access log to memory.
type logWriter struct{}

func (logWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.test_log", New: func() caddy.Module { return new(logWriter) }}
}

func (logWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}
func (logWriter) String() string                      { return "test_log" }
func (logWriter) WriterKey() string                   { return "test_log" }
func (logWriter) OpenWriter() (io.WriteCloser, error) { return logWriter{}, nil }
func (logWriter) Close() error                        { return nil }

func (logWriter) Write(p []byte) (int, error) {
	accessLog.Lock()
	defer accessLog.Unlock()
	return accessLog.Buffer.Write(p)
}

// gateway is a config that runs in this process, without listeners.
type gateway struct {
	t      testing.TB
	server *caddyhttp.Server
}

// start runs a Caddyfile of one site; global is more of the global options. The
// application of a call is what its X-App header says.
func start(t testing.TB, global, site string) *gateway {
	t.Helper()
	g, err := load(t, "{\n"+global+`
	}
	:0 {
		log {
			output test_log
		}
		vars x-wso2-application-id {header.X-App}
		`+site+`
	}
	`)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// load runs any Caddyfile.
func load(t testing.TB, text string) (*gateway, error) {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return nil, err
	}
	return loadJSON(t, config)
}

func loadJSON(t testing.TB, config []byte) (*gateway, error) {
	t.Helper()
	if err := caddy.Load(withoutListeners(t, config), true); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	accessLog.Lock()
	defer accessLog.Unlock()
	accessLog.Reset()
	answer = chat(10, 5)

	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, srv := range app.(*caddyhttp.App).Servers {
		return &gateway{t, srv}, nil
	}
	return &gateway{t, nil}, nil
}

// withoutListeners takes out what would need ports, or write files or to the console.
func withoutListeners(t testing.TB, config []byte) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	c["storage"] = object{"module": "file_system", "root": t.TempDir()}
	logging, _ := c["logging"].(object)
	if logging == nil {
		logging = object{"logs": object{}}
		c["logging"] = logging
	}
	if logs := logging["logs"].(object); logs["default"] == nil {
		logs["default"] = object{"writer": object{"output": "discard"}}
	} else {
		logs["default"].(object)["writer"] = object{"output": "discard"}
	}
	c["admin"] = object{"disabled": true, "config": object{"persist": false}}
	apps, _ := c["apps"].(object)
	if httpApp, ok := apps["http"].(object); ok {
		for _, srv := range httpApp["servers"].(object) {
			delete(srv.(object), "listen")
			srv.(object)["automatic_https"] = object{"disable": true}
		}
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// do sends a request with a JSON body of one user's question. Headers are given as
// name, value, ….
func (g *gateway) do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	g.server.ServeHTTP(w, r)
	return w
}

// question is a chat request that is expected to use 9 tokens and 5 more.
const question = `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`

// chat asks the question, as an application.
func (g *gateway) chat(app string, headers ...string) *httptest.ResponseRecorder {
	return g.do("POST", "/v1/chat/completions", question, append(headers, "X-App", app)...)
}

// want checks the statuses of answers.
func want(t testing.TB, w *httptest.ResponseRecorder, status int) {
	t.Helper()
	if w.Code != status {
		t.Errorf("got status %d, want %d: %s", w.Code, status, w.Body)
	}
}

// chat is an answer that used so many tokens.
func chat(input, output int) caddyhttp.HandlerFunc {
	return reply(http.StatusOK, `{"id":"c","object":"chat.completion","model":"gpt-4o-2024-08-06","choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}],"usage":{"prompt_tokens":`+
		strconv.Itoa(input)+`,"completion_tokens":`+strconv.Itoa(output)+`,"total_tokens":`+strconv.Itoa(input+output)+`}}`)
}

func reply(status int, body string) caddyhttp.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, err := io.WriteString(w, body)
		return err
	}
}

// counter is a row of the admin endpoint.
type counter struct {
	Rule, Consumer        string
	Limit, Used, Reserved int64
}

// counters are those of one consumer of an instance, by rule.
func (g *gateway) counters(instance, consumer string) map[string]counter {
	g.t.Helper()
	target := "/llm/usage?instance=" + instance
	if consumer != "" {
		target += "&consumer=" + consumer
	}
	var rows []counter
	if err := json.Unmarshal(admin(g.t, target), &rows); err != nil {
		g.t.Fatal(err)
	}
	by := make(map[string]counter)
	for _, row := range rows {
		by[row.Rule] = row
	}
	return by
}

// used checks what is used of a rule, and that nothing is held.
func (g *gateway) used(instance, consumer, rule string, used int64) {
	g.t.Helper()
	c, ok := g.counters(instance, consumer)[rule]
	if !ok || c.Used != used || c.Reserved != 0 {
		g.t.Errorf("%s of %s: used %d, reserved %d (there: %t), want used %d", rule, instance, c.Used, c.Reserved, ok, used)
	}
}

// admin asks the admin endpoint.
func admin(t testing.TB, target string) []byte {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	for _, route := range new(llmapp.Admin).Routes() {
		if route.Pattern == r.URL.Path {
			w := httptest.NewRecorder()
			if err := route.Handler.ServeHTTP(w, r); err != nil {
				t.Fatal(err)
			}
			return w.Body.Bytes()
		}
	}
	t.Fatalf("nobody answers %s", target)
	return nil
}

// logged is the object `llm` of the last line of the access log.
func (g *gateway) logged() map[string]any {
	g.t.Helper()
	accessLog.Lock()
	defer accessLog.Unlock()
	lines := strings.Split(strings.TrimSpace(accessLog.String()), "\n")
	var line struct {
		LLM map[string]any `json:"llm"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
		g.t.Fatalf("%q: %v", lines, err)
	}
	return line.LLM
}
