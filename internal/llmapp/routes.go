package llmapp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/fileserver"
	maphandler "github.com/caddyserver/caddy/v2/modules/caddyhttp/map"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/rewrite"
	"go.uber.org/zap"
)

// Role is the part of a handler in the chain that a call passes.
type Role string

// The roles.
const (
	RoleAuth            Role = "auth"             // says who calls
	RoleLimiter         Role = "limiter"          // counts, whoever calls
	RoleConsumerLimiter Role = "consumer_limiter" // counts by who calls
	RoleRetry           Role = "retry"            // sends a call more than once
)

// detouring is a handler that has routes of its own besides the one behind it.
type detouring interface {
	Detours() []caddyhttp.RouteList
}

// placed is a handler whose place in a route matters.
type placed interface {
	// LLMRole is a Role.
	LLMRole() string
}

// keyed is a handler that counts by placeholders which other handlers may define.
type keyed interface {
	// UnknownPlaceholders are those that are not Caddy's own.
	UnknownPlaceholders() []string
}

// responders answer every call that reaches them.
var responders = []string{"http.handlers.reverse_proxy", "http.handlers.static_response", "http.handlers.error"}

// checkRoutes refuses a config in which calls could pass a limiter by without a
// word, and warns of what may be meant so.
func (a *App) checkRoutes() error {
	var sights []*sight
	defer func() { tell(sights) }()
	mod, err := a.ctx.AppIfConfigured("http")
	if err != nil || mod == nil {
		return nil // without an HTTP app there are no routes
	}
	app, ok := mod.(*caddyhttp.App)
	if !ok {
		return nil
	}
	for name, srv := range app.Servers {
		w := &walk{app: a, named: srv.NamedRoutes, defined: make(map[string]bool)}
		w.define(srv.Routes)
		for _, route := range srv.NamedRoutes {
			w.define(caddyhttp.RouteList{*route})
		}
		if _, err := w.routes(srv.Routes, position{}); err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
		w.standalone = true
		for named, route := range srv.NamedRoutes {
			if _, err := w.routes(caddyhttp.RouteList{*route}, position{}); err != nil {
				return fmt.Errorf("server %s: named route %s: %w", name, named, err)
			}
		}
		if len(w.unnamed) > 0 && w.auths == 0 {
			w.warn("there is no api_key_auth: " + w.unnamed[0] + " counts by what it would find out, so all callers may count as one")
		}
		for _, message := range w.warnings {
			a.logger.Warn(message, zap.String("server", name))
		}
		w.standalone = false
		if srv.Errors == nil {
			sights = append(sights, w.sights...)
			continue
		}
		before := w.limiters
		w.define(srv.Errors.Routes)
		// a call that fails has been through api_key_auth, if there is one
		if _, err := w.routes(srv.Errors.Routes, position{auth: true}); err != nil {
			return fmt.Errorf("server %s: handle_errors: %w", name, err)
		}
		sights = append(sights, w.sights...)
		if before > 0 && before == w.limiters && proxies(srv.Errors.Routes) {
			a.logger.Warn("handle_errors has an upstream: what it answers is not metered unless a limiter stands in handle_errors too",
				zap.String("server", name))
		}
	}
	return nil
}

// walk follows the handlers of a server in the order in which a call meets them.
type walk struct {
	app      *App
	limiters int
	auths    int
	unnamed  []string // limiters by consumer with no api_key_auth before them
	warnings []string
	named    map[string]*caddyhttp.Route
	invoked  []string // the named routes that lead to this place
	sights   []*sight // what lookouts see
	// standalone is set while named routes are walked that may have been invoked before
	standalone bool
	defined    map[string]bool // placeholders that map handlers define
}

// position is what stands before a place in the chain.
type position struct {
	answered string    // a responder that answers every call before this place
	matched  []string  // matchers for which a responder stands before this place
	consumer string    // a limiter by consumer before this place, with no api_key_auth before it
	auth     bool      // an api_key_auth that every call passes
	limited  bool      // a limiter that every call passes
	partly   string    // a limiter that only calls with a certain matcher pass
	open     []opening // the lookouts before this place
	retried  string    // a handler before this place that sends calls more than once
	detour   bool      // the place is on one of the other routes of such a handler
	asked    string    // a handler before this place that tells callers of their use, with no api_key_auth before it
}

// routes follows a list of routes and returns what stands before its end.
func (w *walk) routes(routes caddyhttp.RouteList, at position) (position, error) {
	group := ""
	var left []opening // of the routes of one group, which exclude each other
	consumer := ""     // a limiter by consumer in one of them
	retried := ""      // by one of them
	for i := range routes {
		route := &routes[i]
		matchers := describe(route.MatcherSets)
		if route.Group != group {
			at.join(left)
			at.consumer = cmp.Or(at.consumer, consumer)
			at.retried = cmp.Or(at.retried, retried)
			group, left, consumer, retried = route.Group, nil, "", ""
		}
		inner := at
		if matchers != "" || route.Group != "" {
			inner = at.partial()
		}
		outside := len(inner.open)
		if matchers != "" && slices.Contains(at.matched, matchers) {
			inner.answered = "a handler with the same matcher"
		}
		var err error
		for _, h := range route.Handlers {
			if inner, err = w.handler(h, inner); err != nil {
				return at, err
			}
		}
		if opened := inner.open[min(outside, len(inner.open)):]; !route.Terminal && inner.answered == "" {
			if route.Group != "" {
				left = append(left, opened...)
				consumer, retried = cmp.Or(consumer, inner.consumer), cmp.Or(retried, inner.retried)
			} else {
				at.join(opened)
				at.retried = cmp.Or(at.retried, inner.retried)
			}
		} else if matchers != "" || route.Group != "" {
			at = at.partial() // some calls end here
		}
		switch {
		case route.Group != "":
			// routes of a group exclude each other: what one does, the next has not seen
		case matchers == "":
			at = inner // every call comes this way
			if route.Terminal {
				at.answered = cmp.Or(at.answered, "a terminal route")
			}
		default:
			if inner.answered != "" {
				at.matched = append(slices.Clip(at.matched), matchers)
			}
			if !route.Terminal {
				at.consumer = cmp.Or(at.consumer, inner.consumer)
				if inner.limited && !at.limited {
					at.partly = "a limiter"
				}
				at.partly = cmp.Or(at.partly, inner.partly)
			}
		}
	}
	at.join(left)
	at.consumer = cmp.Or(at.consumer, consumer)
	at.retried = cmp.Or(at.retried, retried)
	return at, nil
}

// describe is the same for matchers that match the same.
func describe(sets caddyhttp.MatcherSets) string {
	var b strings.Builder
	for _, set := range sets {
		b.WriteByte('|')
		for _, m := range set {
			fmt.Fprintf(&b, "%s%v,", moduleID(m), m)
		}
	}
	return b.String()
}

func (w *walk) handler(h any, at position) (position, error) {
	switch h := h.(type) {
	case *caddyhttp.Subroute:
		return w.routes(h.Routes, at)
	case *caddyhttp.Invoke:
		return w.invoke(h.Name, at)
	}
	if p, ok := h.(placed); ok {
		name := moduleName(h)
		switch Role(p.LLMRole()) {
		case RoleAuth:
			if at.consumer != "" {
				return at, fmt.Errorf("%s stands before %s: it would count every call under `default`; put api_key_auth first", at.consumer, name)
			}
			if at.asked != "" {
				return at, fmt.Errorf("%s stands before %s: it would know nobody; put api_key_auth first", at.asked, name)
			}
			at.auth = true
			w.auths++
		case RoleUsage:
			return w.usage(h, name, at)
		case RolePricer:
			if at.answered != "" {
				return at, fmt.Errorf("%s stands behind %s, which answers every call: nothing would be priced; put it before", name, at.answered)
			}
			if pr, ok := h.(pricing); ok && pr.Pricer() != nil {
				at.priced(pr.Pricer())
			}
		case RoleRetry:
			return w.retry(h, name, at)
		case RoleLimiter, RoleConsumerLimiter:
			if at.retried != "" {
				return at, fmt.Errorf("%s stands outside of %s: a call would be counted at its first attempt alone; put %[1]s behind the limiter", at.retried, name)
			}
			w.limiters++
			at.limited = true
			if at.answered != "" {
				return at, fmt.Errorf("%s stands behind %s, which answers every call: nothing would be counted; put the limiter before it", name, at.answered)
			}
			if c, ok := h.(counting); ok {
				at.counted(c.Instance())
			}
			if Role(p.LLMRole()) == RoleConsumerLimiter && !at.auth && at.consumer == "" {
				at.consumer = name
				w.unnamed = append(w.unnamed, name)
			}
		}
		if l, ok := h.(Lookout); ok {
			w.watch(l, &at)
		}
		if k, ok := h.(keyed); ok {
			for _, ph := range k.UnknownPlaceholders() {
				if !w.defined[ph] {
					return at, fmt.Errorf("%s: the placeholder {%s} is unknown", name, ph)
				}
			}
		}
		return at, nil
	}
	if rp, ok := h.(*reverseproxy.Handler); ok {
		at.proxied(rp)
	}
	if rw, ok := h.(*rewrite.Rewrite); ok && rw.URI != "" && at.limited && !at.detour {
		w.warn("a rewrite behind a limiter changes what is called: what a call costs, and whether it is free, was told by the path before it; put the rewrite first")
	}
	if at.partly != "" && !at.limited && moduleID(h) == "http.handlers.reverse_proxy" {
		w.warn("an upstream can be reached without passing " + at.partly + " that has a matcher: such calls are not counted")
	}
	if at.answered == "" && answers(h) {
		at.answered = moduleName(h)
	}
	return at, nil
}

// retry follows the routes that a call may take once an attempt has failed, each of which
// goes on behind the handler if nothing on it answers.
func (w *walk) retry(h any, name string, at position) (position, error) {
	if at.retried != "" {
		return at, fmt.Errorf("%s stands behind %s: the attempts of both would multiply; keep one", name, at.retried)
	}
	at.retried = name
	d, ok := h.(detouring)
	if !ok {
		return at, nil
	}
	out := at
	for _, routes := range d.Detours() {
		inner := at.partial()
		inner.detour = true
		inner, err := w.routes(routes, inner)
		if err != nil {
			return at, err
		}
		if inner.answered == "" {
			out.join(inner.open)
		}
	}
	return out, nil
}

// answers tells whether a handler answers every call that reaches it.
func answers(h any) bool {
	if files, ok := h.(*fileserver.FileServer); ok {
		return !files.PassThru
	}
	return slices.Contains(responders, moduleID(h))
}

// warn notes what may be meant so, once.
func (w *walk) warn(message string) {
	if !slices.Contains(w.warnings, message) {
		w.warnings = append(w.warnings, message)
	}
}

// invoke follows a named route.
func (w *walk) invoke(name string, at position) (position, error) {
	route := w.named[name]
	if route == nil || slices.Contains(w.invoked, name) {
		return at, nil
	}
	w.invoked = append(w.invoked, name)
	defer func() { w.invoked = w.invoked[:len(w.invoked)-1] }()
	return w.routes(caddyhttp.RouteList{*route}, at)
}

// define collects the placeholders that map handlers define.
func (w *walk) define(routes caddyhttp.RouteList) {
	each(routes, func(h any) {
		if m, ok := h.(*maphandler.Handler); ok {
			for _, d := range m.Destinations {
				w.defined[strings.Trim(d, "{}")] = true
			}
		}
	})
}

// proxies tells whether routes have an upstream.
func proxies(routes caddyhttp.RouteList) (found bool) {
	each(routes, func(h any) { found = found || moduleID(h) == "http.handlers.reverse_proxy" })
	return found
}

func each(routes caddyhttp.RouteList, f func(h any)) {
	for i := range routes {
		for _, h := range routes[i].Handlers {
			if sub, ok := h.(*caddyhttp.Subroute); ok {
				each(sub.Routes, f)
				continue
			}
			if d, ok := h.(detouring); ok {
				for _, routes := range d.Detours() {
					each(routes, f)
				}
			}
			f(h)
		}
	}
}

func moduleID(h any) string {
	if m, ok := h.(caddy.Module); ok {
		return string(m.CaddyModule().ID)
	}
	return ""
}

func moduleName(h any) string {
	if m, ok := h.(caddy.Module); ok {
		return m.CaddyModule().ID.Name()
	}
	return fmt.Sprintf("%T", h)
}
