package meter

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Passage is the way of a request through the handlers behind, once. They get a request of
// their own, with a header, variables and placeholders of its own.
//
// A proxy leaves things at work behind: a connection that is still being dialled although
// another one has served, a writer of the body whose answer came early. They look up
// variables and fields of the request as long as they live, without a lock. So nobody
// else ever writes there: what happens to the request afterwards, another attempt, the
// variables that tell the cost, a route for errors, happens to that which came.
//
// It is the context of the handlers' request as well. Every call has one or more, so that
// what it consists of is one piece of memory as far as that can be.
type Passage struct {
	context.Context // of the request that came

	from   *http.Request
	to     http.Request
	url    url.URL
	answer http.ResponseWriter
	vars   map[string]any
	repl   *caddy.Replacer // nil outside of Caddy
	window *window         // nil, too
	behind *window         // of the placeholders of passages in this one; nil if there are none
	sends  sends

	// groups are nil until somebody looks for them, as few routes do.
	groups  map[string]struct{}
	grouped sync.Once
}

// routeGroups is where Caddy notes which of mutually exclusive routes have run.
const routeGroups = caddy.CtxKey("route_group")

// pass begins a passage of r, under a context that has the values of r's. The request that
// came is not changed before Join.
func (c *Call) pass(ctx context.Context, w http.ResponseWriter, r *http.Request) *Passage {
	p := &Passage{Context: ctx, from: r, answer: w, url: *r.URL}
	vars, _ := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if outer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		p.window = c.windowOf(ctx, outer)
		// Caddy's own placeholders of a request are bound to where it is. No others that
		// are prepared for requests are of use: they would be made once more.
		p.to = *r.WithContext(context.Background())
		p.repl = caddyhttp.NewTestReplacer(&p.to)
		p.repl.Map(p.placeholder)
		p.window.inside.Store(p.repl)
		c.repl = p.repl
	}
	if vars != nil {
		p.vars = make(map[string]any, len(vars))
		maps.Copy(p.vars, vars)
	}
	p.to = *r.WithContext(p)
	p.to.URL = &p.url
	p.to.Header = r.Header.Clone()
	return p
}

// placeholder is what is known of a placeholder beside the request: of the answer, and what
// those of the request that came say.
func (p *Passage) placeholder(key string) (any, bool) {
	if field, ok := strings.CutPrefix(key, "http.response.header."); ok {
		return strings.Join(p.answer.Header().Values(field), ","), true
	}
	return p.window.outside.Get(key)
}

// Request is the one that the handlers behind get.
func (p *Passage) Request() *http.Request { return &p.to }

// Value implements context.Context.
func (p *Passage) Value(key any) any {
	switch k := key.(type) {
	case caddy.CtxKey:
		switch {
		case k == caddyhttp.VarsCtxKey && p.vars != nil:
			return p.vars
		case k == caddy.ReplacerCtxKey && p.repl != nil:
			return p.repl
		case k == routeGroups:
			if groups, ok := p.Context.Value(routeGroups).(map[string]struct{}); ok {
				p.grouped.Do(func() { p.groups = maps.Clone(groups) })
				return p.groups
			}
		}
	case passageKey:
		return p
	default:
		if key == traceKey {
			return p.traced()
		}
	}
	return p.Context.Value(key)
}

// Publish shows the handlers further out the variables and placeholders that those behind
// have set. It is called before a header goes out, for what they add to it. Variables that
// are the same already are not written: what a proxy further out has left behind may be
// reading them.
func (p *Passage) Publish() {
	if vars, ok := p.from.Context().Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		publish(vars, p.vars)
	}
	if p.repl != nil {
		p.window.inside.Store(p.repl)
		p.window.refresh(p.repl)
	}
}

// Join makes the request that came what the handlers behind have made of theirs: it is as
// if they had got that one.
func (p *Passage) Join() {
	p.Publish()
	r, to := p.from, &p.to
	if groups, ok := r.Context().Value(routeGroups).(map[string]struct{}); ok && p.groups != nil {
		clear(groups)
		maps.Copy(groups, p.groups)
	}
	*r.URL = *to.URL
	replace(r.Header, to.Header)
	r.Method, r.Host, r.RequestURI = to.Method, to.Host, to.RequestURI
	r.Body, r.GetBody = to.Body, to.GetBody
	r.ContentLength, r.TransferEncoding = to.ContentLength, to.TransferEncoding

	before, _ := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	after, ok := to.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if ok && after.RequestURI != before.RequestURI {
		// a key has been taken out of it, which no route for errors may see
		*r = *r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, after))
	}
}

// window is how the placeholders of a request and those of its passages see each other.
type window struct {
	outer   *caddy.Replacer
	outside caddy.Replacer                 // what outer knows by itself
	proxied bool                           // a proxy further out has said something there
	inside  atomic.Pointer[caddy.Replacer] // of the passage that counts
}

// windowOf is the window of placeholders, which have one however often what they belong to
// passes: the request that came, or a passage that another one is in.
func (c *Call) windowOf(ctx context.Context, outer *caddy.Replacer) *window {
	at := &c.window
	if in, ok := ctx.Value(passageKey{}).(*Passage); ok && in.repl == outer {
		at = &in.behind
	}
	if *at == nil || (*at).outer != outer {
		*at = newWindow(outer)
	}
	_, (*at).proxied = (*at).outside.Get(proxied[0])
	return *at
}

func newWindow(outer *caddy.Replacer) *window {
	// The copy does not see inside, or each would look for what both do not know in the
	// other. What is set later is in both.
	w := &window{outer: outer, outside: *outer}
	outer.Map(func(key string) (any, bool) {
		if inside := w.inside.Load(); inside != nil {
			return inside.Get(key)
		}
		return nil, false
	})
	return w
}

// proxied are placeholders that reverse_proxy sets each time.
var proxied = []string{
	"http.reverse_proxy.upstream.address", "http.reverse_proxy.upstream.hostport",
	"http.reverse_proxy.upstream.host", "http.reverse_proxy.upstream.port",
	"http.reverse_proxy.upstream.requests", "http.reverse_proxy.upstream.max_requests",
	"http.reverse_proxy.upstream.fails", "http.reverse_proxy.upstream.latency",
	"http.reverse_proxy.upstream.latency_ms", "http.reverse_proxy.upstream.duration",
	"http.reverse_proxy.upstream.duration_ms", "http.reverse_proxy.duration",
	"http.reverse_proxy.duration_ms", "http.reverse_proxy.retries",
	"http.reverse_proxy.status_code", "http.reverse_proxy.status_text",
}

// refresh replaces what a proxy further out has said, such as that of forward_auth, with
// what the last one says. All else is seen through the window.
func (w *window) refresh(inside *caddy.Replacer) {
	if !w.proxied {
		return
	}
	for _, name := range proxied {
		if v, ok := inside.Get(name); ok {
			w.outer.Set(name, v)
		}
	}
}
