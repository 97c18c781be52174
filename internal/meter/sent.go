package meter

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// sends are the requests of one passage that went upstream, as the transport tells by its
// trace: a proxy that tries several upstreams sends more than one. No error tells as much.
// One that net/http returns may be that of the dial, of the handshake or of an answer that
// never came, and a proxy returns that of its last try only.
//
// Goroutines of a transport may tell something after the handlers have ended. So each
// passage has sends of its own, which are atomic.
type sends struct {
	once  sync.Once
	trace httptrace.ClientTrace

	tried    atomic.Bool  // a transport that tells has looked for a connection
	whole    atomic.Int32 // requests that were written to their end
	answered atomic.Int32 // those of them whose answer has begun
	last     atomic.Int32 // of those that the last try wrote
	begun    atomic.Int32 // and whose answer has begun
}

// The methods that follow are what the trace calls.

func (s *sends) getConn(string) {
	s.last.Store(0)
	s.begun.Store(0)
	s.tried.Store(true)
}

func (s *sends) wroteRequest(info httptrace.WroteRequestInfo) {
	if info.Err == nil { // of a part nobody can make an answer
		s.whole.Add(1)
		s.last.Add(1)
	}
}

func (s *sends) gotFirstResponseByte() {
	s.answered.Add(1)
	s.begun.Add(1)
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
// that of another passage.
func (p *Passage) traced() *httptrace.ClientTrace {
	s := &p.sends
	s.once.Do(func() {
		s.trace = httptrace.ClientTrace{
			GetConn: s.getConn, WroteRequest: s.wroteRequest, GotFirstResponseByte: s.gotFirstResponseByte,
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

// answerCame is the placeholder that a proxy sets when it has the header of an answer: how
// long that took, which is hardly ever the same twice.
const answerCame = "http.reverse_proxy.upstream.latency"

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
	n := s.whole.Load() - s.answered.Load()
	sent, begun := s.last.Load() > 0, s.begun.Load() > 0
	switch e {
	case Answered:
	case CutOff:
		n++
	case Left:
		if sent && !begun {
			n--
		}
	case Failed:
		switch {
		case !s.tried.Load():
			n = int32(p.untold(err))
		case sent && begun && !p.said(answerCame):
			n++ // the answer broke off in its header
		case sent && !begun && notBegun(err):
			n--
		}
	}
	return int(max(n, 0))
}

// said tells whether a proxy of the passage has set a placeholder, which one further out may
// have set too.
func (p *Passage) said(placeholder string) bool {
	if p.repl == nil {
		return false
	}
	inside, ok := p.repl.Get(placeholder)
	outside, known := p.window.outside.Get(placeholder)
	return ok && (!known || !identical(inside, outside))
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
