package meter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap/zapcore"
)

const (
	chatPath = "/v1/chat/completions"

	plainBody  = `{"model":"gpt-5","messages":[{"role":"user","content":"Hi"}]}`
	streamBody = `{"model":"gpt-5","stream":true,"messages":[{"role":"user","content":"Hi"}]}`
	// askedBody is streamBody with usage asked for.
	askedBody = `{"stream_options":{"include_usage":true},` + `"model":"gpt-5","stream":true,"messages":[{"role":"user","content":"Hi"}]}`

	chatAnswer = `{"id":"c","object":"chat.completion","model":"gpt-5-2025-08-07","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"Hello there"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`

	event      = `data: {"model":"gpt-5-2025-08-07","choices":[{"index":0,"delta":{"content":"Hello"}}]}` + "\n\n"
	eventEnd   = `data: {"model":"gpt-5-2025-08-07","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	eventUsage = `data: {"model":"gpt-5-2025-08-07","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}` + "\n\n"
	eventDone  = "data: [DONE]\n\n"

	unknownOption = `{"error":{"message":"Unknown parameter: stream_options","type":"invalid_request_error"}}`
)

// expectation of a call with plainBody or streamBody while nothing is learned.
const (
	promptTokens  = 8 // a token of text, four for the message, three for the prompt
	unknownOutput = leastExpected
)

// limiter does with a call what a limiter does, and keeps what it is told.
type limiter struct {
	m       *Meter
	name    string
	counts  bool  // requests only: the body is not read
	cap     int64 // written in, if not 0
	refuse  int   // a status to refuse with, if not 0
	message string
	asError bool // the refusal is an error

	mu      sync.Mutex
	outcome []Outcome
	cancels int
	headers int // calls of Headers
	ended   chan struct{}
}

func newLimiter(m *Meter, name string) *limiter {
	return &limiter{m: m, name: name, ended: make(chan struct{}, 100)}
}

func (l *limiter) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	c := l.m.Call(r)
	if c.Has(l.name) {
		return c.Serve(w, r, next)
	}
	if !l.counts {
		if err := c.Inspect(r); err != nil {
			c.Refused(r, l.name)
			return err
		}
		c.Meter(r)
	}
	if l.refuse != 0 {
		c.Refused(r, l.name)
		if l.asError {
			return caddyhttp.Error(l.refuse, fmt.Errorf("refused by %s", l.name))
		}
		w.WriteHeader(l.refuse)
		_, err := io.WriteString(w, l.message)
		return err
	}
	if l.cap > 0 && !c.WriteCap(r, l.cap) {
		return caddyhttp.Error(http.StatusBadRequest, fmt.Errorf("no cap"))
	}
	c.Add(&entry{l})
	return c.Serve(w, r, next)
}

// entry is a call that a limiter of tests has admitted.
type entry struct{ l *limiter }

func (e *entry) ID() string { return e.l.name }

func (e *entry) Headers(h http.Header, all []Entry) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.headers++
	h.Set("X-Left", fmt.Sprint(len(all)))
}

func (e *entry) Settle(o *Outcome) {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.outcome = append(e.l.outcome, *o)
	e.l.ended <- struct{}{}
}

func (e *entry) Cancel() {
	e.l.mu.Lock()
	defer e.l.mu.Unlock()
	e.l.cancels++
	e.l.ended <- struct{}{}
}

// wait waits for the call to have ended, and returns what it came to.
func (l *limiter) wait(t testing.TB) Outcome {
	t.Helper()
	receive(t, l.ended)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.outcome) == 0 {
		t.Fatalf("%s: the call was cancelled", l.name)
	}
	return l.outcome[len(l.outcome)-1]
}

// receive fails a test that would otherwise hang.
func receive[T any](t testing.TB, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing happened for 30 seconds")
	}
	return v
}

// once tells that the last call ended exactly once, settled, and gave all memory back.
func (l *limiter) once(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.outcome) != 1 || l.cancels != 0 {
		t.Errorf("%s: settled %d times, cancelled %d times", l.name, len(l.outcome), l.cancels)
	}
}

func nothingHeld(t testing.TB, m *Meter) {
	t.Helper()
	if n := m.bodies.used.Load(); n != 0 {
		t.Errorf("%d bytes of the budget are still taken", n)
	}
}

// newRequest is a request as Caddy's server hands it to handlers. Headers are given as
// name, value, ….
func newRequest(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
}

// handler is the handler behind.
type handler = caddyhttp.HandlerFunc

// answer writes pieces of a body, with a flush after each.
func answer(status int, contentType string, pieces ...string) handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		for _, p := range pieces {
			if _, err := io.WriteString(w, p); err != nil {
				return err
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return err
			}
		}
		return nil
	}
}

// probes are the handlers that test configs name.
var (
	probes    sync.Map
	lastProbe atomic.Int64
)

// probe is a Caddy module that stands for a function of a test.
type probe struct {
	ID string `json:"id"`
}

func init() { caddy.RegisterModule(probe{}) }

func (probe) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.probe", New: func() caddy.Module { return new(probe) }}
}

func (p probe) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	h, _ := probes.Load(p.ID)
	return h.(caddyhttp.MiddlewareHandler).ServeHTTP(w, r, next)
}

// middleware makes a handler of a function.
type middleware func(http.ResponseWriter, *http.Request, caddyhttp.Handler) error

func (f middleware) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return f(w, r, next)
}

// object is JSON of a config.
type object map[string]any

// use is the config of a handler that is a value of a test.
func use(t testing.TB, h caddyhttp.MiddlewareHandler) object {
	id := strconv.FormatInt(lastProbe.Add(1), 10)
	probes.Store(id, h)
	t.Cleanup(func() { probes.Delete(id) })
	return object{"handler": "probe", "id": id}
}

// proxy is the config of a reverse proxy to an address.
func proxy(upstream string) object {
	return object{
		"handler":   "reverse_proxy",
		"upstreams": []object{{"dial": strings.TrimPrefix(upstream, "http://")}},
	}
}

// gateway is a real Caddy server on a port of its own.
type gateway struct {
	url  string
	stop func()              // and wait for the calls that are on their way
	log  chan map[string]any // the object of the access log, of each call
}

// newGateway starts a server with a route of handlers, and one for errors if any.
func newGateway(t testing.TB, handlers, errors []object) *gateway {
	t.Helper()
	return newLoggingGateway(t, handlers, errors, "")
}

// newLoggingGateway starts a server that writes its access log to a file, if one is
// named.
func newLoggingGateway(t testing.TB, handlers, errors []object, file string) *gateway {
	t.Helper()
	g := &gateway{log: make(chan map[string]any, 100)}
	logged := use(t, middleware(func(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
		defer func() {
			if o := logObject(r); o != nil {
				g.log <- o
			}
		}()
		return next.ServeHTTP(w, r)
	}))
	server := object{
		"listen": []string{"127.0.0.1:0"}, "automatic_https": object{"disable": true},
		"routes": []object{{"handle": append([]object{logged}, handlers...)}},
		"logs":   object{}, // to the default log, unless there is a file
	}
	if errors != nil {
		server["errors"] = object{"routes": []object{{"handle": errors}}}
	}
	raw, err := json.Marshal(object{"servers": object{"srv": server}})
	if err != nil {
		t.Fatal(err)
	}
	quiet := &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		"default": {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)}},
	}}
	if file != "" {
		writer, err := json.Marshal(object{"output": "file", "filename": file})
		if err != nil {
			t.Fatal(err)
		}
		quiet.Logs["access"] = &caddy.CustomLog{
			BaseLog: caddy.BaseLog{WriterRaw: writer}, Include: []string{"http.log.access"},
		}
	}
	off := false
	ctx, err := caddy.ProvisionContext(&caddy.Config{
		Admin:   &caddy.AdminConfig{Disabled: true, Config: &caddy.ConfigSettings{Persist: &off}},
		Logging: quiet, AppsRaw: caddy.ModuleMap{"http": raw},
	})
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(app.(*caddyhttp.App).Servers["srv"])
	srv.Config.ErrorLog = nil
	srv.Start()
	t.Cleanup(srv.Close)
	g.url, g.stop = srv.URL, srv.Close
	return g
}

// newUpstream starts a provider.
func newUpstream(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// post sends a call and returns the answer; its body must be read.
func (g *gateway) post(ctx context.Context, t testing.TB, path, body string, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	res, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func readAll(t testing.TB, res *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// callOf is the last call of a request, nil if there was none.
func callOf(r *http.Request) *Call {
	at := carriedBy(VarsOf(r))
	if at == nil {
		return nil
	}
	return at.call
}

// logObject is the object `llm` that the access log gets, nil if there is none.
func logObject(r *http.Request) map[string]any {
	extra, _ := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if extra == nil {
		return nil
	}
	call := callOf(r)
	if call == nil || !call.ended {
		return nil
	}
	enc := zapcore.NewMapObjectEncoder()
	if err := call.line.MarshalLogObject(enc); err != nil {
		return map[string]any{"error": err.Error()}
	}
	return enc.Fields
}
