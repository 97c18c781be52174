package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/bench/provider"
	"github.com/llmlimits/caddy-llm-limits/bench/server"
	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
)

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

func init() {
	caddy.RegisterModule(new(upstream))
	httpcaddyfile.RegisterHandlerDirective("bench_upstream", func(httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		return new(upstream), nil
	})
	httpcaddyfile.RegisterDirectiveOrder("bench_upstream", httpcaddyfile.After, "reverse_proxy")
}

// upstream is a provider within the process: what a call costs beyond it is the chain's.
type upstream struct{}

func (*upstream) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.bench_upstream", New: func() caddy.Module { return new(upstream) }}
}

// response is what the upstream answers with at the moment.
var response struct {
	kind   []string
	pieces [][]byte
}

func (*upstream) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	var room [4 << 10]byte
	for {
		if _, err := r.Body.Read(room[:]); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	w.Header()["Content-Type"] = response.kind
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	for _, p := range response.pieces {
		if _, err := w.Write(p); err != nil {
			return err
		}
		if len(response.pieces) > 1 {
			if err := rc.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// client takes everything and keeps nothing.
type client struct {
	header http.Header
	status int
}

func (c *client) Header() http.Header         { return c.header }
func (c *client) WriteHeader(status int)      { c.status = status }
func (c *client) Write(p []byte) (int, error) { return len(p), nil }
func (c *client) FlushError() error           { return nil }

// chain is a site that is called without a network.
type chain struct {
	tb   testing.TB
	srv  *caddyhttp.Server
	body []byte
	w    client
}

func newChain(tb testing.TB, site Site) *chain {
	tb.Helper()
	return newChains(tb, "bench_upstream", site)[0]
}

// newChains has several sites in one process, each on a server of its own.
func newChains(tb testing.TB, ends string, sites ...Site) []*chain {
	tb.Helper()
	var all map[string]any
	servers := make(map[string]any)
	for i, site := range sites {
		text := strings.ReplaceAll(site.Caddyfile(&Options{Ends: ends}), server.Port, "0")
		config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
		if err != nil {
			tb.Fatal(err)
		}
		var one map[string]any
		if err := json.Unmarshal(config, &one); err != nil {
			tb.Fatal(err)
		}
		app := one["apps"].(map[string]any)["http"].(map[string]any)
		srv := app["servers"].(map[string]any)["srv0"].(map[string]any)
		srv["listen"] = []string{fmt.Sprintf("127.0.0.%d:0", i+1)}
		servers[strconv.Itoa(i)] = srv
		if app["servers"] = servers; i == 0 {
			all = one
		}
	}
	config, err := json.Marshal(all)
	if err != nil {
		tb.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			tb.Error(err)
		}
	})
	app, err := caddy.ActiveContext().App("http")
	if err != nil {
		tb.Fatal(err)
	}
	chains := make([]*chain, len(sites))
	for i := range chains {
		chains[i] = &chain{tb: tb, srv: app.(*caddyhttp.App).Servers[strconv.Itoa(i)]}
	}
	return chains
}

// call makes a call as it comes from the network: its header and body are new.
func (c *chain) call() {
	c.w = client{header: make(http.Header)}
	c.srv.ServeHTTP(&c.w, c.request(context.Background()))
	if c.w.status != http.StatusOK {
		c.tb.Fatalf("answered with %d", c.w.status)
	}
}

// streamTo makes a call whose answer is a stream.
func (c *chain) streamTo(s *stream) {
	c.srv.ServeHTTP(s, c.request(context.WithValue(context.Background(), streamKey{}, s)))
}

// request is one as it comes from the network.
func (c *chain) request(ctx context.Context) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://bench/v1/chat/completions", bytes.NewReader(c.body))
	if err != nil {
		c.tb.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization": {"Bearer " + server.Key(0)}, "User-Agent": {"OpenAI/Python 2.8.0"}, "Accept": {"application/json"},
		"Content-Type": {"application/json"}, "Content-Length": {"1024"},
	}
	r.RemoteAddr, r.RequestURI = "127.0.0.1:1", "/v1/chat/completions"
	return r
}

// set says what the calls are like.
func (c *chain) set(s *Scenario) {
	c.body = s.body()
	if s.Events == 0 {
		response.kind, response.pieces = []string{"application/json"}, [][]byte{provider.Answer(s.Size)}
		return
	}
	response.kind, response.pieces = []string{"text/event-stream"}, provider.Events(s.Events, true)
}

func BenchmarkChain(b *testing.B) {
	for _, site := range []struct {
		name string
		Site
	}{{"plain", Plain}, {"keys", Keys}, {"requests", Requests}, {"tokens", Tokens}, {"full", Full}} {
		for _, s := range []Scenario{
			{Name: "1KB", Size: small},
			{Name: "20KB", Size: medium},
			{Name: "stream", Size: small, Events: 200},
		} {
			b.Run(site.name+"/"+s.Name, func(b *testing.B) {
				c := newChain(b, site.Site)
				c.set(&s)
				for range 300 {
					c.call()
				}
				b.ReportAllocs()
				for b.Loop() {
					c.call()
				}
			})
		}
	}
}
