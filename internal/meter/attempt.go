package meter

import (
	"context"
	"math"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/tidwall/gjson"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// attempts are those of a call that is tried more than once.
type attempts struct {
	n      int            // how many there were; 0 if nobody counts them
	by     string         // the route of the last one
	routed *usage.Request // what it asks for; nil where that is what the client does
	lost   []*Lost
	idle   bool // nobody is at work for it any more, and its attempts are noted
	served bool // one before the last was not refused by a handler
}

// Lost is an answer that the client may not get, or that never came.
type Lost struct {
	report usage.Report
	source Source
	priced Priced
	pricer Pricer
	by     string
	routed *usage.Request
	own    Pricer          // what a handler behind has brought, if any
	repl   *caddy.Replacer // knows which upstream was called

	refusedBy string // the handler whose refusal it is; empty where it is an upstream's answer
}

// mostHeld bounds the body of a call that nobody needs to read, in bytes: it is held for
// the sake of another attempt alone.
const mostHeld = 1 << 20

// Hold has the whole body of the request in memory, so that it can be sent again. What
// Inspect has read is not copied. It is false, and the body untouched, where the body is
// long or its length is unknown, and nobody has read it.
//
// Errors are ErrBusy, or a caddyhttp.HandlerError where the body cannot be read.
func (c *Call) Hold(r *http.Request) (bool, error) {
	if c.held == 0 { // nothing is charged to anybody yet
		c.who = caller(r)
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return true, nil
	case r.Body == c.put:
		return true, nil
	case c.put == nil && (r.ContentLength < 0 || r.ContentLength > mostHeld):
		return false, nil
	}
	body, held, err := c.m.readBody(r, c.who)
	c.held += held
	if err != nil {
		return false, err
	}
	c.set(r, body)
	return true, nil
}

// Saved is what every attempt begins with.
type Saved struct {
	answer http.Header
	body   payload
	pricer Pricer
}

// Save remembers what a call is like before its first attempt. Its body must be held.
func (c *Call) Save(w http.ResponseWriter, r *http.Request) *Saved {
	s := &Saved{answer: w.Header().Clone(), pricer: c.pricer}
	if r.Body != nil && r.Body != http.NoBody {
		s.body = c.onward
	}
	return s
}

// Attempt begins an attempt. The handlers behind get the request as it was when it was
// saved, and a header of the answer to which no earlier attempt has added; the body is the
// same memory again.
func (c *Call) Attempt(s *Saved, w http.ResponseWriter, r *http.Request) *Passage {
	c.restore(s, w)
	c.attempts.routed = nil
	p := c.passApart(r.Context(), w, r)
	if s.body.size() > 0 {
		c.send(p.Request(), s.body)
	}
	return p
}

// GiveUp makes call and request what they were before the first attempt.
func (c *Call) GiveUp(s *Saved, w http.ResponseWriter, r *http.Request) {
	c.restore(s, w)
	if s.body.size() > 0 {
		c.send(r, s.body)
	}
}

func (c *Call) restore(s *Saved, w http.ResponseWriter) {
	replace(w.Header(), s.answer.Clone()) // the next attempt may change the values
	c.pricer = s.pricer
}

// Unsay makes the header of the answer what it was before the first attempt, where an
// attempt has set one that nobody has seen.
func (c *Call) Unsay(s *Saved, w http.ResponseWriter) { replace(w.Header(), s.answer.Clone()) }

// Client is the context that ends when the client goes. That of the request may last
// longer.
func (c *Call) Client(r *http.Request) context.Context {
	if c.drain != nil {
		return c.drain.client
	}
	return r.Context()
}

// tried tells whether attempts of a call that is refused have gone upstream: what they used
// is charged all the same.
func (c *Call) tried() bool {
	return len(c.attempts.lost) > 0 || c.attempts.served
}

// supersede notes that the last attempt, if there was any, is not what the client gets, and
// by whom what it gets instead was refused, if it was.
func (c *Call) supersede(refusedBy string) {
	c.attempts.served = c.attempts.served || c.attempts.n > 0 && c.refusedBy == ""
	c.refusedBy = refusedBy
}

// Tried notes that an attempt is made, and by which route; the log tells the last one. A
// refusal was of the attempt before, not of the call.
func (c *Call) Tried(route string) {
	c.supersede("")
	c.attempts.n++
	c.attempts.by = route
}

// Creates tells whether the call changes something that is there when it has been answered,
// such as a batch, a file or a conversation: to send it again may have it done, and paid
// for, twice.
func (c *Call) Creates(r *http.Request) bool {
	switch c.Endpoint.Class {
	case usage.Unmetered:
		if c.writes {
			return true
		}
	case usage.Free:
		if c.writes && !onlyAsks(r.URL.Path) {
			return true
		}
	}
	q := c.Request
	if r.Method == http.MethodDelete || q != nil && q.Background {
		return true
	}
	return q != nil && q.External &&
		(names(c.body, "conversation") || names(c.body, "conversation_id"))
}

// names tells whether a body has a member that is not null.
func names(body []byte, member string) bool {
	v := gjson.GetBytes(body, member)
	return v.Exists() && v.Type != gjson.Null
}

// onlyAsks tells whether a free call that could write does not: it has tokens counted, or
// a text judged.
func onlyAsks(path string) bool {
	last := strings.ToLower(path[strings.LastIndexByte(path, '/')+1:])
	if i := strings.LastIndexByte(last, ':'); i >= 0 && last != "count-tokens:rawpredict" {
		last = last[i+1:]
	}
	switch last {
	case "moderations", "count_tokens", "count-tokens", "count-tokens:rawpredict", "counttokens", "computetokens",
		"input_tokens", "tokenize", "detokenize", "apply-template":
		return true
	}
	return false
}

// Follow notes that a route leads to another model than the request named: where a path
// names the model, that is what the upstream is asked for.
func (c *Call) Follow(p *Passage) {
	r := p.Request()
	if c.Request == nil || c.attempts.routed != nil {
		return
	}
	if model := usage.Identify(r.Method, r.URL, r.Header).Model; model != "" && model != c.Model() {
		q := *c.Request
		q.Model = model
		c.attempts.routed = &q
	}
}

// Idle notes that no upstream is at work any more for a call without an answer: it costs
// nothing but what its attempts report, and what is charged for those without an answer.
func (c *Call) Idle() { c.attempts.idle = true }

// Hear reads an answer that is kept from the client, while it is the last one.
func (c *Call) Hear(status int, header http.Header, body []byte) *Lost {
	l := &Lost{
		source: SourceReported, by: c.attempts.by, routed: c.attempts.routed, own: c.pricer, repl: c.repl, refusedBy: c.refusedBy,
	}
	if c.tap == nil || c.tap.resp == nil || c.Request == nil {
		return l // nobody wants to know what it used
	}
	resp := usage.NewResponse()
	defer resp.Release()
	resp.Expect(c.serving())
	resp.Start(status, header)
	resp.Write(body)
	l.report, l.priced, l.pricer = resp.Close(true), c.made(), c.Pricer()
	return l
}

// Lose notes that another answer takes the place of one that was heard. What it reports
// is charged with the rest of the call.
func (c *Call) Lose(l *Lost) {
	if l.report.Found || l.report.Usage != (usage.Usage{}) || len(l.report.Other) > 0 {
		c.attempts.lost = append(c.attempts.lost, l)
	}
}

// Take notes that the client gets an answer that was heard after all.
func (c *Call) Take(l *Lost) {
	c.attempts.by, c.attempts.routed = l.by, l.routed
	c.pricer, c.repl = l.own, l.repl
	c.supersede(l.refusedBy)
}

// serving is what the upstream is asked for at last.
func (c *Call) serving() *usage.Request {
	if c.attempts.routed != nil {
		return c.attempts.routed
	}
	return c.Request
}

// asked is the model that the upstream is asked for at last.
func (c *Call) asked() string {
	if c.attempts.routed != nil {
		return c.attempts.routed.Model
	}
	return c.Model()
}

// addLost adds to what the call used in the end what other attempts did, as they reported
// or as was expected of them.
func (c *Call) addLost(o *Outcome) {
	for _, l := range c.attempts.lost {
		model := l.report.Model
		if model == "" {
			model = l.priced.Requested
		}
		o.addOther(&usage.ModelUsage{Model: model, Usage: l.report.Usage})
		for j := range l.report.Other {
			o.addOther(&l.report.Other[j])
		}
		if o.Source == SourceNone || l.source == SourceEstimated {
			o.Source = l.source
		}
		if l.pricer == nil {
			continue
		}
		q := l.priced
		asked, said := q.Usage, told{l.report.Usage.Input, l.report.Usage.Output}
		q.Served, q.Usage, q.Other, q.Terms = l.report.Model, l.report.Usage, l.report.Other, l.report.Terms
		if l.source == SourceEstimated {
			q.estimate(&asked)
			said = told{} // nothing was
		}
		cost, status := priceOf(l.pricer, &q, said, l.source)
		o.Cost = min(o.Cost, math.MaxInt64-cost) + cost
		if o.CostStatus == "" || status == CostUnpriced || status == CostEstimated && o.CostStatus != CostUnpriced {
			o.CostStatus = status
		}
	}
}

// Reroute has another model asked for, in the path or in the body, whichever names it. It
// is false, and the request unchanged, where the model cannot be replaced: a form names it,
// or a signature covers it. The body must be held.
func (c *Call) Reroute(r *http.Request, model string) bool {
	if c.Request == nil || c.Request.Signed {
		return false
	}
	if c.Endpoint.Model != "" {
		if !c.Endpoint.SetModel(r.URL, model) {
			return false
		}
		r.RequestURI = r.URL.RequestURI()
	} else {
		body, ok := c.onward.asking(model)
		if !ok {
			return false
		}
		c.send(r, body)
	}
	q := *c.Request
	q.Model = model
	c.attempts.routed = &q
	return true
}
