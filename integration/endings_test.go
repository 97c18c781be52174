package integration

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// What calls of these tests cost.
const (
	reportedCost  = 211      // as usageEvent says
	estimatedCost = 8 + 1024 // of streamBody: the prompt, and the output that is expected
)

// finishEvent ends the text of a stream.
const finishEvent = `data: {"id":"c","object":"chat.completion.chunk","model":"gpt-4o-mini-2024-07-18","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"

// watcher is a handler that tells a test when a client has gone.
type watcher struct{}

// clientGone has a message for each client that went while its call was served.
var clientGone = make(chan struct{}, 1000)

func init() {
	caddy.RegisterModule(watcher{})
	httpcaddyfile.RegisterHandlerDirective("watch_client", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return watcher{}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("watch_client", httpcaddyfile.Before, "tracing")
}

func (watcher) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.watch_client", New: func() caddy.Module { return new(watcher) }}
}

func (watcher) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	tell := func() { clientGone <- struct{}{} }
	stop := context.AfterFunc(r.Context(), tell)
	defer func() {
		// a call that ends because its client has gone may do so before that is told
		if stop() && r.Context().Err() != nil {
			tell()
		}
	}()
	return next.ServeHTTP(w, r)
}

// led is an upstream that does what a test says, call by call.
type led struct {
	*upstream
	arrived   chan struct{} // a call has arrived
	next      chan step     // what it does then
	cancelled chan struct{} // the gateway has broken a call off
}

// step is one thing that an upstream does. The zero step ends an answer.
type step struct {
	status      int // of a header
	contentType string
	text        string
	cut         bool
}

func stream(text string) step { return step{status: 200, contentType: "text/event-stream", text: text} }

func newLed(t testing.TB) *led {
	l := &led{arrived: make(chan struct{}), next: make(chan step), cancelled: make(chan struct{}, 1000)}
	l.upstream = newUpstream(t, l.serve)
	return l
}

func (l *led) serve(w http.ResponseWriter, r *http.Request) {
	select {
	case l.arrived <- struct{}{}:
	case <-r.Context().Done():
		l.cancelled <- struct{}{}
		return
	}
	for {
		select {
		case s := <-l.next:
			switch {
			case s.cut:
				panic(http.ErrAbortHandler)
			case s == step{}:
				return
			case s.status != 0:
				w.Header().Set("Content-Type", s.contentType)
				w.WriteHeader(s.status)
			}
			io.WriteString(w, s.text)
			http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			l.cancelled <- struct{}{}
			return
		}
	}
}

// within receives, and fails a test that would hang.
func within[T any](t testing.TB, what string, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		t.Fatalf("not %s after 20 s", what)
	}
	return v
}

// do has the upstream take steps.
func (l *led) do(t testing.TB, steps ...step) {
	t.Helper()
	for _, s := range steps {
		select {
		case l.next <- s:
		case <-time.After(20 * time.Second):
			t.Fatalf("the upstream did not take step %+v", s)
		}
	}
}

// limits are those of the sites of these tests.
const limits = `
	token_limit {name} {
		consumer_based
		limit 10M tokens per hour
		limit 10k requests per hour
		limit 100 concurrent
	}
`

// drainSite is a site that drains as long as is said.
func drainSite(drain, routes string) string {
	return "{\n\tllm {\n\t\tmeter {\n\t\t\tdrain " + drain + "\n\t\t}\n\t}\n}\n{site} {\n\twatch_client\n" + auth + routes + "\n}"
}

const proxied = limits + "\treverse_proxy {upstream}\n"

// charged waits until nothing is on its way, and checks what application A was charged.
func (g *gateway) charged(tokens, requests int64) {
	g.t.Helper()
	g.settled("")
	if u := g.used("", "app-a", "tokens per hour"); u.Used != tokens || u.Reserved != 0 {
		g.t.Errorf("used %d tokens, reserved %d; want %d, 0", u.Used, u.Reserved, tokens)
	}
	if u := g.used("", "app-a", "requests per hour"); u.Used != requests {
		g.t.Errorf("counted %d requests, want %d", u.Used, requests)
	}
}

// settled waits until an instance holds nothing for application A.
func (g *gateway) settled(instance string) {
	g.t.Helper()
	var tokens, slots int64
	atRest(func() bool {
		tokens, slots = g.counter(instance, "app-a", "tokens per hour").Reserved, g.counter(instance, "app-a", "concurrent").Reserved
		return tokens == 0 && slots == 0
	})
	if tokens != 0 || slots != 0 {
		g.t.Fatalf("%d tokens and %d slots are still held", tokens, slots)
	}
}

// caller is a client in the middle of a call.
type caller struct {
	leave context.CancelFunc
	lines chan string // what it gets, as it comes
	body  chan string // all of it, once the call is over
}

// begin sends a call. Of those that went before, none goes any more.
func (g *gateway) begin(client http.RoundTripper, scheme, body string) *caller {
	for len(clientGone) > 0 {
		<-clientGone
	}
	ctx, leave := context.WithCancel(context.Background())
	c := &caller{leave: leave, lines: make(chan string, 1000), body: make(chan string, 1)}
	g.t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, "POST", scheme+"://"+g.addr+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+keyA)
	req.Header.Set("Content-Type", "application/json")
	go func() {
		var got strings.Builder
		defer func() { c.body <- got.String() }()
		resp, err := client.RoundTrip(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			got.WriteString(line)
			if err != nil {
				return
			}
			select {
			case c.lines <- line:
			default: // of a long answer nobody wants them
			}
		}
	}()
	return c
}

// await waits for a line of the answer.
func (c *caller) await(t testing.TB, text string) {
	t.Helper()
	for {
		if strings.Contains(within(t, "received", c.lines), text) {
			return
		}
	}
}

func TestEndings(t *testing.T) {
	const (
		stays        = "" // until the end
		beforeHeader = "before the header"
		inStream     = "in the stream"
	)
	document := func(status int, text string) step {
		return step{status: status, contentType: "application/json", text: text}
	}
	wrong := document(500, `{"error":{"message":"no","type":"server_error"}}`)
	broken := `data: {"error":{"message":"no","type":"server_error"}}` + "\n\n"
	cut, done := step{cut: true}, step{}
	rest := step{text: event(1) + usageEvent}
	for _, tt := range []struct {
		name   string
		drain  string
		first  []step // before the client goes
		goes   string
		then   []step
		asks   bool // the client asks for the report, and gets it
		broken bool // the gateway breaks the call upstream off
		cost   int64
	}{
		{name: "complete", first: []step{stream(event(0)), {text: usageEvent}, {text: doneEvent}, done}, cost: reportedCost},
		{name: "complete without a report", first: []step{stream(event(0)), {text: doneEvent}, done}, cost: estimatedCost},
		{name: "an error status", first: []step{wrong, done}},
		{name: "an error under status 200", first: []step{document(200, `{"error":{"message":"no","type":"server_error"}}`), done}},
		{name: "an error in a stream before output", first: []step{stream(broken), done}},
		{name: "an error in a stream after output", first: []step{stream(event(0)), {text: broken}, done}, cost: estimatedCost},
		{name: "an error in a stream after the report", first: []step{stream(event(0) + usageEvent), {text: broken}, done}, cost: reportedCost},
		{name: "cut before the header", first: []step{cut}, cost: estimatedCost},
		{name: "cut in the stream", first: []step{stream(event(0)), cut}, cost: estimatedCost},
		{name: "cut after the report", first: []step{stream(event(0) + usageEvent), cut}, cost: reportedCost},

		{name: "client goes before the header, report in time", drain: "1m", goes: beforeHeader, then: []step{stream(event(0)), rest, done}, cost: reportedCost},
		{name: "client goes before the header, error in time", drain: "1m", goes: beforeHeader, then: []step{wrong, done}},
		{name: "client goes before the header, cut in time", drain: "1m", goes: beforeHeader, then: []step{cut}, cost: estimatedCost},
		{name: "client goes before the header, too slow", drain: "50ms", goes: beforeHeader, broken: true, cost: estimatedCost},
		{name: "client goes before the header, no drain", drain: "off", goes: beforeHeader, broken: true, cost: estimatedCost},
		{name: "client goes in the stream, report in time", drain: "1m", first: []step{stream(event(0))}, goes: inStream, then: []step{rest, {text: doneEvent}, done}, cost: reportedCost},
		{name: "client goes in the stream, which is long", drain: "1m", first: []step{stream(event(0))}, goes: inStream, then: []step{{text: strings.Repeat(event(1), 5000)}, rest, done}, cost: reportedCost},
		{name: "client goes in the stream, no report in time", drain: "1m", first: []step{stream(event(0))}, goes: inStream, then: []step{{text: doneEvent}, done}, cost: estimatedCost},
		{name: "client goes in the stream, cut in time", drain: "1m", first: []step{stream(event(0))}, goes: inStream, then: []step{cut}, cost: estimatedCost},
		{name: "client goes in the stream, too slow", drain: "50ms", first: []step{stream(event(0))}, goes: inStream, broken: true, cost: estimatedCost},
		{name: "client goes in the stream, no drain", drain: "off", first: []step{stream(event(0))}, goes: inStream, broken: true, cost: estimatedCost},
		{name: "client goes after the report", drain: "50ms", asks: true, first: []step{stream(event(0)), {text: finishEvent + usageEvent}}, goes: inStream, broken: true, cost: reportedCost},
		{name: "client goes after the report, no drain", drain: "off", asks: true, first: []step{stream(event(0)), {text: finishEvent + usageEvent}}, goes: inStream, broken: true, cost: reportedCost},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := newLed(t)
			drain := tt.drain
			if drain == "" {
				drain = "1m"
			}
			g := start(t, up.upstream, drainSite(drain, proxied))
			body := streamBody
			if tt.asks {
				body = strings.Replace(body, "{", `{"stream_options":{"include_usage":true},`, 1)
			}
			c := g.begin(g.client.Transport, "http", body)
			within(t, "at the upstream", up.arrived)
			up.do(t, tt.first...)
			if tt.goes == inStream {
				c.await(t, map[bool]string{false: "data:", true: `"completion_tokens":200`}[tt.asks])
			}
			if tt.goes != stays {
				c.leave()
				within(t, "left", clientGone)
				if drain == "1m" {
					if u := g.counter("", "app-a", "concurrent"); u.Reserved != 1 {
						t.Errorf("%d slots are held while the call drains", u.Reserved)
					}
				}
				up.do(t, tt.then...)
			}
			if tt.broken {
				within(t, "broken off", up.cancelled)
			}
			within(t, "over", c.body)
			g.charged(tt.cost, 1)
			if n := up.calls(); n != 1 {
				t.Errorf("the upstream was called %d times", n)
			}
			// and the consumer can go on
			again := g.begin(g.client.Transport, "http", streamBody)
			within(t, "at the upstream", up.arrived)
			up.do(t, stream(event(0)+usageEvent+doneEvent), done)
			if body := within(t, "over", again.body); body != event(0)+doneEvent {
				t.Errorf("the next call got %q", body)
			}
			g.charged(tt.cost+reportedCost, 2)
		})
	}
}

func TestCallThatIsNotMeteredEndsWithItsClient(t *testing.T) {
	up := newLed(t)
	g := start(t, up.upstream, drainSite("1m", `
		token_limit {name} {
			consumer_based
			limit 10k requests per hour
		}
		reverse_proxy {upstream}
	`))
	c := g.begin(g.client.Transport, "http", streamBody)
	within(t, "at the upstream", up.arrived)
	c.leave()
	within(t, "left", clientGone)
	within(t, "broken off", up.cancelled)
	if u := g.used("", "app-a", "requests per hour"); u.Used != 1 {
		t.Errorf("counted %d requests", u.Used)
	}
}
