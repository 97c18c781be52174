// Package integration runs the modules as users do: a real Caddy from a Caddyfile,
// reverse_proxy, a real upstream, and bytes on sockets.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/llmlimits/caddy-llm-limits"
	"github.com/llmlimits/caddy-llm-limits/internal/loopback"
)

// gateway is a running Caddy. There is one at a time.
type gateway struct {
	t      testing.TB
	run    int64
	addr   string // host:port of the site
	admin  string // socket of the admin endpoint
	logs   *logFile
	loaded atomic.Int64 // when the last config was, in Unix nanoseconds
	client *http.Client
}

// newGateway is one that does not run yet, with its files in a directory. What limits of an
// hour or more count must not start again in the middle of its test.
func newGateway(t testing.TB, dir string) *gateway {
	if left := time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)); left < 20*time.Second {
		time.Sleep(left)
	}
	return &gateway{
		t: t, run: runs.Add(1), admin: filepath.Join(dir, "admin.sock"),
		logs:   &logFile{path: filepath.Join(dir, "caddy.log")},
		client: &http.Client{Transport: &http.Transport{}},
	}
}

// adminClient asks the admin endpoint at a socket, which a reload may replace between two
// requests.
func adminClient(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}
}

// start runs Caddy with sites that a Caddyfile describes. In it {site} is the
// address to serve on, {addr} the same without a scheme, {upstream} that of the
// upstream, and {name} is a word that no other test uses, for the names of instances:
// counts live as long as the process.
func start(t testing.TB, up *upstream, caddyfile string) *gateway {
	t.Helper()
	g := newGateway(t, t.TempDir())
	// a port that was free may be taken by the time Caddy wants it: another is tried
	var err error
	for range 10 {
		g.addr = loopback.Address(t)
		if err = g.tryLoad(up, caddyfile); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.client.CloseIdleConnections()
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// global is the options that all tests need, up to where others may follow.
func (g *gateway) global() string {
	// Without debug logs of its own, the events app leaves handshakes alone; with them it
	// reads what the TLS app's start may just be writing.
	return fmt.Sprintf("{\n\tadmin unix/%s\n\tauto_https off\n\tpersist_config off\n\tgrace_period 5s\n\tlog {\n\t\toutput file %s\n\t\tlevel DEBUG\n\t\texclude events\n%s\t}\n", g.admin, g.logs.path, exampleFilter(g.t))
}

// adapt turns a Caddyfile into JSON, with the options that all tests need.
func (g *gateway) adapt(up *upstream, caddyfile string) ([]byte, error) {
	global := g.global()
	if rest, ok := strings.CutPrefix(strings.TrimSpace(caddyfile), "{\n"); ok {
		caddyfile = global + rest
	} else {
		caddyfile = global + "}\n" + caddyfile
	}
	upAddr := ""
	if up != nil {
		upAddr = up.addr
	}
	text := strings.NewReplacer("{site}", "http://"+g.addr, "{upstream}", upAddr, "{name}", g.testName(), "{addr}", g.addr).Replace(caddyfile)
	body, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			g.t.Logf("adapting: %s", w)
		}
	}
	return body, err
}

// runs numbers the gateways, so that a test that runs twice begins at nothing.
var runs atomic.Int64

// exampleFilter is the log filter of Caddyfile.example, with the line that a header
// field of one's own needs.
func exampleFilter(t testing.TB) string {
	t.Helper()
	example, err := os.ReadFile("../Caddyfile.example")
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "\t\tformat filter {\n", "\n\t\t}\n"
	_, filter, found := strings.Cut(string(example), begin)
	filter, _, ends := strings.Cut(filter, end)
	if !found || !ends {
		t.Fatal("Caddyfile.example has no log filter")
	}
	return begin + "\t\t\trequest>headers>X-Custom delete\n" + filter + end
}

// testName is a word that this gateway alone uses.
func (g *gateway) testName() string {
	return strings.NewReplacer("/", "-", " ", "-", "_", "-").Replace(g.t.Name()) + "-" + strconv.FormatInt(g.run, 10)
}

func (g *gateway) tryLoad(up *upstream, caddyfile string) error {
	config, err := g.adapt(up, caddyfile)
	if err != nil {
		return err
	}
	g.loaded.Store(time.Now().UnixNano())
	return caddy.Load(config, true)
}

// reload replaces the config.
func (g *gateway) reload(up *upstream, caddyfile string) {
	g.t.Helper()
	if err := g.tryLoad(up, caddyfile); err != nil {
		g.t.Fatal(err)
	}
	g.client.CloseIdleConnections()
}

// answer is a response, read to its end.
type answer struct {
	Status int
	Header http.Header
	Body   string
}

// call sends a request with a key; an empty key sends none.
func (g *gateway) call(method, path, key, body string, header ...string) answer {
	g.t.Helper()
	a, err := g.try(context.Background(), method, path, key, body, header...)
	if err != nil {
		g.t.Fatal(err)
	}
	return a
}

func (g *gateway) try(ctx context.Context, method, path, key, body string, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+g.addr+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := g.send(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

// send sends a request. A connection that Caddy had not accepted when a reload closed its
// listener is reset, and an idle one is closed: nobody has seen the request, and it is
// sent again. Had somebody, the counts that tests assert would tell.
func (g *gateway) send(req *http.Request) (*http.Response, error) {
	for range 20 {
		resp, err := g.client.Do(req)
		closed := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF)
		if !closed || time.Since(time.Unix(0, g.loaded.Load())) > 5*time.Second || req.GetBody == nil {
			return resp, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
	return g.client.Do(req)
}

// chat sends a chat completion.
func (g *gateway) chat(key string) answer {
	g.t.Helper()
	return g.call("POST", "/v1/chat/completions", key, `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`)
}

// adminGet reads from the admin endpoint.
func (g *gateway) adminGet(path string, into any) int {
	g.t.Helper()
	status, body := g.adminRead(path)
	if into != nil && status == http.StatusOK {
		if err := json.Unmarshal(body, into); err != nil {
			g.t.Fatalf("%s: %v in %s", path, err, body)
		}
	}
	return status
}

// adminRead asks the admin endpoint, of which each config has one of its own: that of the
// one before may still take a connection, and end without an answer.
func (g *gateway) adminRead(path string) (status int, body []byte) {
	g.t.Helper()
	c := adminClient(g.admin)
	eventually(g.t, "answered", func() bool {
		resp, err := c.Get("http://localhost" + path)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		status = resp.StatusCode
		body, err = io.ReadAll(resp.Body)
		return err == nil
	})
	return status, body
}

// row is a line of GET /llm/usage.
type row struct {
	Instance, Rule, Consumer, Model, Unit string
	Limit, Used, Reserved, Remaining      int64
}

// used is what is charged to a consumer under a rule of an instance of this test, once no
// call holds anything of it: the last bytes of an answer reach the client before that.
func (g *gateway) used(instance, consumer, rule string) (r row) {
	g.t.Helper()
	atRest(func() bool { r = g.counter(instance, consumer, rule); return r.Reserved == 0 })
	return r
}

// atRest waits until what calls hold has been settled, or for so long that something keeps it.
func atRest(settled func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !settled() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
}

// counter is what a rule of an instance of this test has of a consumer at this instant.
func (g *gateway) counter(instance, consumer, rule string) row {
	g.t.Helper()
	var rows []row
	q := url.Values{"instance": {g.testName() + instance}}
	if consumer != "" {
		q.Set("consumer", consumer)
	}
	g.adminGet("/llm/usage?"+q.Encode(), &rows)
	for _, r := range rows {
		if r.Consumer == consumer && r.Rule == rule {
			return r
		}
	}
	g.t.Fatalf("no counter of %s for %q under %q in %+v", instance, consumer, rule, rows)
	return row{}
}

// logFile is what Caddy logs.
type logFile struct {
	path string
	mu   sync.Mutex
}

func (l *logFile) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := os.ReadFile(l.path)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
}
