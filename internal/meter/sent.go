package meter

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// sends are the requests of one passage that went upstream, as the transport tells by its
// trace: a proxy that tries several upstreams sends more than one. No error tells as much.
// One that net/http returns may be that of the dial, of the handshake or of an answer that
// never came, and a proxy returns that of its last try only.
//
// Goroutines of a transport may tell something after the handlers have ended. So each
// passage has sends of its own, with a lock.
type sends struct {
	once  sync.Once
	trace httptrace.ClientTrace

	mu     sync.Mutex
	dead   bool // when the first try began there was nobody left to answer: nothing is sent
	tried  bool // a transport that tells has looked for a connection
	missed int  // requests of tries before the last that were sent and had no answer
	again  bool // there was a try before the last
	before any  // what answerCame said when the last try began, if there was one before it

	wrote bool // the last try's request was written to its end
	begun bool // and its answer began, or that to a part of it
}

// The methods that follow are what the trace calls.

func (p *Passage) getConn(string) {
	s := &p.sends
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried {
		if s.wrote && (!s.begun || !p.came()) {
			s.missed++
		}
		s.again = true
		s.before, _ = p.get(answerCame)
	}
	s.tried, s.wrote, s.begun = true, false, false
}

func (s *sends) wroteRequest(info httptrace.WroteRequestInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrote = s.wrote || info.Err == nil // of a part nobody can make an answer
}

func (s *sends) gotFirstResponseByte() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
}

// traceKey is where transports look for a trace; only they can name it.
var traceKey = func() any {
	var k keyOf
	httptrace.ContextClientTrace(&k)
	return k.key
}()

// keyOf is a context that remembers what was looked up in it.
type keyOf struct {
	context.Context
	key any
}

// Value implements context.Context.
func (k *keyOf) Value(key any) any {
	k.key = key
	return nil
}

// passageKey is where a passage finds the one that it is in.
type passageKey struct{}

// traced returns the trace of the passage, which tells one further out as well, if it is not
// that of another passage. A proxy asks for it just before it has a transport try.
func (p *Passage) traced() *httptrace.ClientTrace {
	s := &p.sends
	s.once.Do(func() {
		s.mu.Lock()
		s.dead = p.Err() != nil
		s.mu.Unlock()
		s.trace = httptrace.ClientTrace{
			GetConn: p.getConn, WroteRequest: s.wroteRequest, GotFirstResponseByte: s.gotFirstResponseByte,
		}
		outermost := p
		for {
			outer, ok := outermost.Context.Value(passageKey{}).(*Passage)
			if !ok {
				break
			}
			outermost = outer
		}
		if httptrace.ContextClientTrace(outermost.Context) != nil {
			httptrace.WithClientTrace(outermost.Context, &s.trace) // composes them
		}
	})
	return &s.trace
}

// proxySaid is what a proxy further out has said by placeholders that the one behind sets
// too; nil where it has said nothing.
type proxySaid struct{ upstream, came, ran any }

func (s *proxySaid) look(repl *caddy.Replacer) {
	s.ran, _ = repl.Get(proxyRan)
	if s.ran != nil { // which a proxy sets whatever it came to
		s.upstream, _ = repl.Get(proxied[0])
		s.came, _ = repl.Get(answerCame)
	}
}

// of is what was said by a placeholder.
func (s *proxySaid) of(placeholder string) (any, bool) {
	var v any
	switch placeholder {
	case proxied[0]:
		v = s.upstream
	case answerCame:
		v = s.came
	case proxyRan:
		v = s.ran
	}
	return v, v != nil
}

// answerCame is the placeholder that a proxy sets when it has the header of an answer: how
// long that took, which is hardly ever the same twice.
const answerCame = "http.reverse_proxy.upstream.latency"

// proxyRan is the placeholder that a proxy sets whatever it came to.
const proxyRan = "http.reverse_proxy.duration"

// Ending is how the handlers behind a passage ended.
type Ending uint8

// The endings of a passage.
const (
	Answered Ending = iota // by any answer, or by none without an error
	Failed                 // with an error, and no answer
	CutOff                 // with an answer that broke off before anybody had anything of it
	Left                   // the client went before there was an answer
)

// Unanswered is how many requests of the passage were sent upstream and had no answer, as
// far as the transport tells. That of a client that has left is not among them.
func (p *Passage) Unanswered(e Ending, err error) int {
	s := &p.sends
	s.mu.Lock()
	defer s.mu.Unlock()
	n, silent := s.missed, s.wrote && !s.begun
	switch e {
	case Answered:
		if silent { // somebody else has answered in the upstream's place
			n++
		}
	case CutOff:
		n++
	case Left:
	case Failed:
		switch {
		case !s.tried:
			n = p.untold(err)
		case s.wrote && s.begun && !p.came(), silent && !notBegun(err):
			n++ // the answer broke off in its header, or there was none
		}
	}
	return n
}

// Sent tells whether an upstream may be at work for the last try of the passage: it was
// sent, or nobody can tell.
func (p *Passage) Sent() bool {
	s := &p.sends
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.tried:
		return s.wrote
	case s.dead:
		return false
	}
	return p.said(proxied[0]) || !p.said(proxyRan)
}

// came tells whether the last try had the header of an answer. The lock must be held.
func (p *Passage) came() bool {
	if !p.sends.again {
		return p.said(answerCame)
	}
	now, ok := p.get(answerCame)
	return ok && !identical(now, p.sends.before)
}

// get is what a placeholder of the passage says.
func (p *Passage) get(placeholder string) (any, bool) {
	if p.repl == nil {
		return nil, false
	}
	return p.repl.Get(placeholder)
}

// said tells whether a proxy of the passage has set a placeholder, which one further out may
// have set too.
func (p *Passage) said(placeholder string) bool {
	inside, ok := p.get(placeholder)
	if !ok {
		return false
	}
	outside, known := p.outside(placeholder)
	return !known || !identical(inside, outside)
}

// outside is what a placeholder said before the passage.
func (p *Passage) outside(placeholder string) (any, bool) {
	if p.apart == nil {
		return p.before.of(placeholder)
	}
	return p.apart.window.outside.Get(placeholder)
}

// untold is how many requests were sent by a transport that does not tell, FastCGI's: one if
// the error is none of a connection that did not come about.
func (p *Passage) untold(err error) int {
	if status := statusOf(err); status != http.StatusBadGateway && status != http.StatusGatewayTimeout {
		return 0
	}
	var undialled reverseproxy.DialError
	var op *net.OpError
	if errors.As(err, &undialled) || errors.As(err, &op) && op.Op != "read" || !p.said(proxied[0]) {
		return 0
	}
	return 1
}

// notBegun tells whether an error says that nobody began with a request although it seemed
// to have been written: it was on its way to a connection that turned out to be closed, or
// the upstream says so itself. net/http, which does not export these errors, sends such a
// request again if it can.
func notBegun(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "write" {
		return true
	}
	said := err.Error()
	return strings.Contains(said, "server closed idle connection") || strings.Contains(said, "http2: Transport: cannot retry err")
}

// Miss notes requests that were sent and had no answer. Each is charged with the rest of the
// call, as what the call was expected to use: the provider may have been at work all the
// time, and bills for it.
func (c *Call) Miss(n int) {
	if n <= 0 || c.tap == nil || c.tap.resp == nil || c.Request == nil || c.Endpoint.Class != usage.Spending {
		return // nobody wants to know what it used, or it is free
	}
	l := &Lost{source: SourceEstimated, priced: c.made(), pricer: c.Pricer()}
	l.report.Usage = c.expected()
	l.report.Usage.Images, l.report.Usage.AudioMillis = c.Request.GeneratedImages, heard(c.Request)
	for range n {
		c.attempts.lost = append(c.attempts.lost, l)
	}
}

// missed notes what of the passage had no answer, beside what the outcome itself is about:
// unanswered is set if that is such a request, too.
func (c *Call) missed(answered, gone bool, err error) (unanswered bool) {
	p := c.tap.passage
	switch {
	case p == nil || c.attempts.n > 0: // whoever counts attempts notes theirs
		return false
	case answered && (!gone || c.tap.status != statusClientGone):
		c.Miss(p.Unanswered(Answered, nil))
		return false
	case gone:
		c.Miss(p.Unanswered(Left, err))
		return false
	case err == nil:
		c.Miss(p.Unanswered(Answered, nil))
		return false
	}
	n := p.Unanswered(Failed, err)
	c.Miss(n - 1)
	return n > 0
}
