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

// Passage is the way of a request through the handlers behind, once. It is the context of
// their request as well.
//
// A proxy leaves things at work behind: a connection that is still being dialled although
// another one has served, a writer of the body whose answer came early. They look up
// variables and fields of the request as long as they live, without a lock, and a map of Go
// that is written meanwhile ends the process. So when the handlers have returned, nothing
// here writes to variables or header of their request any more. Where that could not be
// helped, since the request may pass again, or a call of it follow in the server's routes for
// errors, they get a request that is apart. (In the routes for errors of a subroute it is as
// in Caddy itself.)
type Passage struct {
	context.Context // of the request that came

	from   *http.Request
	repl   *caddy.Replacer // of the handlers' request; nil outside of Caddy
	before proxySaid       // what was said by a proxy further out; of those that are not apart
	sends  sends
	apart  *apart // nil where the handlers behind get the request that came
}

// apart is a request with a header, variables and placeholders of its own. What happens to
// the request that came, another attempt, a route for errors, does not happen to it.
type apart struct {
	to     http.Request
	url    url.URL
	answer http.ResponseWriter
	vars   map[string]any
	window *window // nil outside of Caddy
	behind *window // of the placeholders of passages in this one; nil if there are none

	// groups are nil until somebody looks for them, as few routes do.
	groups  map[string]struct{}
	grouped sync.Once
}

// routeGroups is where Caddy notes which of mutually exclusive routes have run.
const routeGroups = caddy.CtxKey("route_group")

// pass begins the only passage of r, under a context that has the values of r's. The
// handlers behind get r itself, under that context, which it keeps.
func (c *Call) pass(ctx context.Context, r *http.Request) *Passage {
	p := &Passage{Context: ctx, from: r}
	if p.repl, _ = ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); p.repl != nil {
		p.before.look(p.repl)
	}
	*r = *r.WithContext(p)
	return p
}

// passApart begins a passage of r after which there may be another one. The request that
// came is not changed before Join.
func (c *Call) passApart(ctx context.Context, w http.ResponseWriter, r *http.Request) *Passage {
	// one piece of memory
	var both struct {
		Passage
		apart
	}
	p, a := &both.Passage, &both.apart
	p.Context, p.from, p.apart = ctx, r, a
	a.answer, a.url = w, *r.URL
	vars, _ := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any)
	if outer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		a.window = c.windowOf(ctx, outer)
		// Caddy's own placeholders of a request are bound to where it is. No others that
		// are prepared for requests are of use: they would be made once more.
		p.repl = caddyhttp.NewTestReplacer(&a.to)
		p.repl.Map(a.placeholder)
		a.window.inside.Store(p.repl)
		c.repl = p.repl
	}
	if vars != nil {
		a.vars = make(map[string]any, len(vars))
		maps.Copy(a.vars, vars)
	}
	a.to = *r.WithContext(p)
	a.to.URL = &a.url
	a.to.Header = r.Header.Clone()
	return p
}

// placeholder is what is known of a placeholder beside the request: of the answer, and what
// those of the request that came say.
func (a *apart) placeholder(key string) (any, bool) {
	if field, ok := strings.CutPrefix(key, "http.response.header."); ok {
		return strings.Join(a.answer.Header().Values(field), ","), true
	}
	return a.window.outside.Get(key)
}

// Request is the one that the handlers behind get.
func (p *Passage) Request() *http.Request {
	if p.apart == nil {
		return p.from
	}
	return &p.apart.to
}

// Value implements context.Context.
func (p *Passage) Value(key any) any {
	switch k := key.(type) {
	case caddy.CtxKey:
		if p.apart != nil {
			if v := p.valueApart(k); v != nil {
				return v
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

// valueApart is what a request that is apart has of its own; nil if it has none of the key.
func (p *Passage) valueApart(key caddy.CtxKey) any {
	a := p.apart
	switch {
	case key == caddyhttp.VarsCtxKey && a.vars != nil:
		return a.vars
	case key == caddy.ReplacerCtxKey && p.repl != nil:
		return p.repl
	case key == routeGroups:
		if groups, ok := p.Context.Value(routeGroups).(map[string]struct{}); ok {
			a.grouped.Do(func() { a.groups = maps.Clone(groups) })
			return a.groups
		}
	}
	return nil
}

// Publish shows the handlers further out the variables and placeholders that those behind
// have set. It is called before a header goes out, for what they add to it. Variables that
// are the same already are not written: what a proxy further out has left behind may be
// reading them.
func (p *Passage) Publish() {
	a := p.apart
	if a == nil {
		return
	}
	if vars, ok := p.from.Context().Value(caddyhttp.VarsCtxKey).(map[string]any); ok {
		publish(vars, a.vars)
	}
	if p.repl != nil {
		a.window.inside.Store(p.repl)
		a.window.refresh(p.repl)
	}
}

// Join makes the request that came what the handlers behind have made of theirs: it is as
// if they had got that one.
func (p *Passage) Join() {
	a := p.apart
	if a == nil {
		return
	}
	p.Publish()
	r, to := p.from, &a.to
	if groups, ok := r.Context().Value(routeGroups).(map[string]struct{}); ok && a.groups != nil {
		clear(groups)
		maps.Copy(groups, a.groups)
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
	inside  atomic.Pointer[caddy.Replacer] // of the passage that counts
}

// windowOf is the window of placeholders, which have one however often what they belong to
// passes: the request that came, or a passage that another one is in.
func (c *Call) windowOf(ctx context.Context, outer *caddy.Replacer) *window {
	at := &c.window
	if in, ok := ctx.Value(passageKey{}).(*Passage); ok && in.apart != nil && in.repl == outer {
		at = &in.apart.behind
	}
	if *at == nil || (*at).outer != outer {
		*at = newWindow(outer)
	}
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
	if _, ok := w.outside.Get(proxied[0]); !ok {
		return
	}
	for _, name := range proxied {
		if v, ok := inside.Get(name); ok {
			w.outer.Set(name, v)
		}
	}
}
