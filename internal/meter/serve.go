package meter

import (
	"net/http"
	"slices"

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
	c.announce(VarsOf(r))
	switch {
	case c.tap == nil:
		return c.serve(w, r, next)
	case c.outlive(r):
		defer c.drain.end()
	}
	return next.ServeHTTP(w, r)
}

// serve is Serve of the outermost handler. It is apart from those further in, which stand
// between it and the end of a stream all the while: what they have on the stack, each call
// has several times.
func (c *Call) serve(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	t := &c.own
	t.ResponseWriter, t.call = w, c
	t.flusher, _ = w.(flusher)
	c.tap = t
	c.ownDrain.client = r.Context()
	if c.inspected && c.metered() {
		t.meter()
	}
	c.late = r.Context().Err() != nil

	// reverse_proxy panics when a stream breaks on either side, so that what is
	// behind next may never run; this does, and lets the panic go on
	var err error
	returned := false
	defer func() { c.end(r, err, returned) }()
	defer func() { t.passage.Join() }()
	if c.outlive(r) {
		defer c.drain.end()
	}

	var before http.Header
	if c.mayRepeat() {
		before = w.Header().Clone()
	}
	if before != nil || c.again {
		t.passage = c.passApart(&c.ownDrain, t, r)
	} else {
		t.passage = c.pass(&c.ownDrain, r)
	}
	err = next.ServeHTTP(t, t.passage.Request())
	if err == nil && before != nil && t.refusesToSay() && !c.gone(r) {
		// an upstream that does not know stream_options gets the request as it was
		replace(w.Header(), before)
		c.missed(true, false, nil)
		c.attempts.served = true
		t.passage = c.passApart(&c.ownDrain, t, r)
		again := t.passage.Request()
		c.unask(again)
		t.again()
		asked := c.refuser(again)
		err = next.ServeHTTP(t, again)
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

// HoldsBack tells whether an answer of that status is kept from the client for now: the
// call may have to be sent without usage being asked for.
func (c *Call) HoldsBack(status int) bool {
	return c.plain != nil && c.refusedBy == "" && (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity)
}

// Repeats tells whether the answer that is held back, and has come to its end, is due to
// usage having been asked for. The client does not get it then.
func (c *Call) Repeats() bool { return c.tap != nil && c.tap.refusesToSay() }

// mayRepeat tells whether the handlers behind may have to run a second time.
func (c *Call) mayRepeat() bool { return c.plain != nil || c.mayAsk() }

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

// replace keeps the map, which others hold, and writes only what differs.
func replace(h, by http.Header) {
	align(h, by, slices.Equal[[]string])
}

// end settles the call. It depends on neither the request's context nor the
// config's: the client may have gone, and the config been replaced.
func (c *Call) end(r *http.Request, err error, returned bool) {
	if c.ended {
		return
	}
	c.ended = true
	c.reckon()
	defer func() {
		c.forget()
		c.release()
		if returned && err == nil { // after an error a route for errors may send the body once more
			c.lent.giveBackAfter(r.Context())
		}
		if c.drain != nil { // last: who waits for it finds nothing held
			c.m.live.remove(c.drain)
		}
	}()

	if c.refusedBy != "" && !c.tried() {
		for _, e := range c.entries {
			e.Cancel()
		}
		c.result = Outcome{Source: SourceNone}
		c.log(r)
		c.count(r, expectation{})
		c.tap.report(false)
		return
	}
	var expected expectation
	o := &c.result
	if c.refusedBy != "" { // after attempts that an upstream has worked for
		*o = Outcome{Source: SourceNone, Status: int(c.tap.status)}
		c.tap.report(false)
	} else {
		expected = c.expectation() // before it learns from the answer
		o = c.outcome(r, err, returned)
		c.price(o)
	}
	c.addLost(o)
	c.tellCost(VarsOf(r))
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
	if server := serverOf(r); server != nil && server.Logs == nil {
		return // there is no access log
	}
	c.line = new(logEntry)
	c.line.set(c, r)
	extra.Set(zap.Object("llm", c.line))
}
