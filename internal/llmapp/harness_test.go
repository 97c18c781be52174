package llmapp

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"

	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
	"github.com/llmlimits/caddy-llm-limits/store"
)

func init() {
	caddy.RegisterModule(new(testHandler))
	caddy.RegisterModule(new(failingApp))
}

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// testHandler is a handler as the walk through the routes knows it: it stands for
// limiters and for api_key_auth. Handler packages cannot be imported here.
type testHandler struct {
	Role         string   `json:"role,omitempty"`
	Placeholders []string `json:"placeholders,omitempty"`

	// Instance is registered if it has a name, and counts Rules.
	Instance string   `json:"instance,omitempty"`
	Key      []string `json:"key,omitempty"`
}

func (*testHandler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.test_limit", New: func() caddy.Module { return new(testHandler) }}
}

func (h *testHandler) Provision(ctx caddy.Context) error {
	app, err := ctx.App(Name)
	if err != nil || h.Instance == "" {
		return err
	}
	return app.(*App).Register(&instance{name: h.Instance, key: h.Key, rules: testRules()})
}

func (h *testHandler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return next.ServeHTTP(w, r)
}
func (h *testHandler) LLMRole() string               { return h.Role }
func (h *testHandler) UnknownPlaceholders() []string { return h.Placeholders }

// failingApp starts or not, as the test says.
type failingApp struct{}

var (
	errStart  = errors.New("no start today")
	failStart func() error
)

func (*failingApp) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "test_failing", New: func() caddy.Module { return new(failingApp) }}
}
func (*failingApp) Start() error { return failStart() }
func (*failingApp) Stop() error  { return nil }

// instance is a limiter of a test's.
type instance struct {
	id, directive, name, pool string
	key                       []string
	mode                      string
	rules                     []RuleInfo
}

func (in *instance) ID() string {
	switch {
	case in.pool != "":
		return in.pool
	case in.name != "":
		return in.name
	default:
		return in.id
	}
}

func (in *instance) Directive() string {
	if in.directive == "" {
		return "token_limit"
	}
	return in.directive
}
func (in *instance) Name() string      { return in.name }
func (in *instance) Pool() string      { return in.pool }
func (in *instance) Shared() bool      { return len(in.key) == 0 }
func (in *instance) Key() []string     { return in.key }
func (in *instance) Mode() string      { return in.mode }
func (in *instance) Rules() []RuleInfo { return in.rules }

// testRules are those of every instance that a config registers.
func testRules() []RuleInfo {
	day, err := store.Calendar("day", nil)
	if err != nil {
		panic(err)
	}
	return []RuleInfo{
		{Words: "tokens per day", Unit: "tokens", Limit: 1000, Store: &store.Rule{ID: "tokens per day", Window: day}},
		{Words: "concurrent", Unit: "concurrent", Limit: 3, Shadow: true, Store: &store.Rule{ID: "concurrent", Window: store.None()}},
	}
}

// config is a config of one server with these routes, and more of its members and
// of the apps, each with a comma in front.
func config(t testing.TB, routes, server, apps string) []byte {
	t.Helper()
	root, err := json.Marshal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return []byte(`{
		"admin": {"disabled": true, "config": {"persist": false}},
		"storage": {"module": "file_system", "root": ` + string(root) + `},
		"logging": {"logs": {"default": {"level": "WARN", "writer": {"output": "test_log"}}}},
		"apps": {"http": {"servers": {"main": {"automatic_https": {"disable": true}, "routes": [` + routes + `]` + server + `}}}` + apps + `}
	}`)
}

// run loads a config, and stops it when the test is over.
func run(t testing.TB, config []byte) error {
	t.Helper()
	testLog.reset()
	if err := caddy.Load(config, true); err != nil {
		return err
	}
	t.Cleanup(stop(t))
	return nil
}

func mustRun(t testing.TB, config []byte) *App {
	t.Helper()
	if err := run(t, config); err != nil {
		t.Fatal(err)
	}
	return active()
}

func stop(t testing.TB) func() {
	return func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// ask asks the admin endpoint, and returns the status that Caddy answers an error with.
func ask(t testing.TB, method, target string) (*httptest.ResponseRecorder, int, error) {
	t.Helper()
	return send(t, method, target, "")
}
