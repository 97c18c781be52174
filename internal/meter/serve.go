package meter

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
)

// Serve hands the call on to next. The first handler of a call to do so, the
// outermost, taps the response and ends the call: on success, error, abort and
// panic alike.
func (c *Call) Serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	// A limiter behind the refusal of another one: a route for errors has taken over,
	// and the call goes on after all.
	c.refusedBy = ""
	if c.tap != nil {
		if c.outlive(r) {
			defer c.drain.end()
		}
		return next.ServeHTTP(w, r)
	}
	t := &c.own
	t.ResponseWriter, t.call = w, c
	c.tap = t
	if c.inspected && c.metered() {
		t.meter()
	}
	c.late = r.Context().Err() != nil

	// reverse_proxy panics when a stream breaks on either side, so that what is
	// behind next may never run; this does, and lets the panic go on
	var err error
	returned := false
	defer func() { c.end(r, err, returned) }()
	if c.outlive(r) {
		defer c.drain.end()
	}

	before := c.snapshot(w, r)
	err = next.ServeHTTP(t, r)
	if err == nil && before != nil && t.refusesToSay() && !c.gone(r) {
		// an upstream that does not know stream_options gets the request as it was
		before.restore(w, r)
		c.unask(r)
		t.again()
		asked := c.refuser(r)
		err = next.ServeHTTP(t, r)
		if err == nil && t.status/100 == 2 {
			// Only now is it sure that the asking was at fault: else one client could
			// have the streams of all others go unreported.
			c.m.refusing.add(asked, c.m.now())
		}
	}
	t.close()
	returned = true
	err = c.without(t, err)
	return err
}

// without ends a call whose client did not stay, as it would have ended had the handlers
// noticed.
func (c *Call) without(t *tap, err error) error {
	switch {
	case c.drain == nil:
	case t.lost && !c.drain.gone():
		// part of the answer got lost on its way to a client that is still there, and
		// must not take what it has for the whole
		panic(http.ErrAbortHandler)
	case err != nil && t.status == 0 && c.refusedBy == "" && c.drain.gone():
		// no route for errors is to begin another call upstream, for nobody
		t.WriteHeader(statusClientGone)
		return nil
	}
	return err
}

// gone tells whether the client has gone.
func (c *Call) gone(r *http.Request) bool {
	if c.drain != nil {
		return c.drain.gone()
	}
	return r.Context().Err() != nil
}

// snapshot is what a route may change in a request and in the answer's header,
// and what must be as before when the route is run again.
type snapshot struct {
	url        url.URL
	method     string
	host       string
	requestURI string
	header     http.Header
	answer     http.Header
	groups     map[string]struct{}
}

// routeGroups is where Caddy notes which of mutually exclusive routes have run.
const routeGroups = caddy.CtxKey("route_group")

// snapshot is nil where the route is not going to be run again.
func (c *Call) snapshot(w http.ResponseWriter, r *http.Request) *snapshot {
	if c.plain == nil && !c.mayAsk() {
		return nil
	}
	return snapshotOf(w, r)
}

func snapshotOf(w http.ResponseWriter, r *http.Request) *snapshot {
	groups, _ := r.Context().Value(routeGroups).(map[string]struct{})
	return &snapshot{
		url: *r.URL, method: r.Method, host: r.Host, requestURI: r.RequestURI,
		header: r.Header.Clone(), answer: w.Header().Clone(), groups: maps.Clone(groups),
	}
}

func (s *snapshot) restore(w http.ResponseWriter, r *http.Request) {
	*r.URL = s.url
	r.Method, r.Host, r.RequestURI = s.method, s.host, s.requestURI
	replace(r.Header, s.header)
	replace(w.Header(), s.answer)
	if groups, ok := r.Context().Value(routeGroups).(map[string]struct{}); ok {
		clear(groups)
		maps.Copy(groups, s.groups)
	}
}

// replace keeps the map, which others hold.
func replace(h, by http.Header) {
	clear(h)
	maps.Copy(h, by)
}

// end settles the call. It depends on neither the request's context nor the
// config's: the client may have gone, and the config been replaced.
func (c *Call) end(r *http.Request, err error, returned bool) {
	if c.ended {
		return
	}
	c.ended = true
	defer c.release()
	if c.drain != nil {
		defer c.m.live.remove(c.drain)
	}

	if c.refusedBy != "" {
		for _, e := range c.entries {
			e.Cancel()
		}
		c.result = Outcome{Source: SourceNone}
		c.log(r)
		c.count(r, expectation{})
		c.tap.report(false)
		return
	}
	expected := c.expectation() // before it learns from the answer
	o := c.outcome(r, err, returned)
	c.price(o)
	c.addLost(o)
	c.tellCost(r)
	for _, e := range c.entries {
		e.Settle(o)
	}
	c.log(r)
	c.count(r, expected)
}

// log adds what is known of the call to the access log's entry.
func (c *Call) log(r *http.Request) {
	extra, ok := r.Context().Value(caddyhttp.ExtraLogFieldsCtxKey).(*caddyhttp.ExtraLogFields)
	if !ok {
		return
	}
	if server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok && server != nil && server.Logs == nil {
		return // there is no access log
	}
	c.line = new(logEntry)
	c.line.set(c, r)
	extra.Set(zap.Object("llm", c.line))
}
