package meter

import (
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// foresight is what a call is expected to use and to cost. All limiters on its way ask, and
// get the same answer however much is learned meanwhile.
type foresight struct {
	of      *usage.Request // what the call asked for then; nil if nobody has asked
	routed  *usage.Request // and what it was made to ask for instead
	subject subject
	use     *modelUse // what is known of that; nil if nothing was

	prompt               int64 // what the body shows, corrected
	input, output, total int64 // what calls like it use, if enough is known
	learned              bool

	priced bool // figures.priced is the call as it was asked for
}

// quotation is the answer of a pricer.
type quotation struct {
	pricer        Pricer // nil if none was asked
	host          string
	input, output int64
	usd           money.USD
	ok            bool
}

// foresee is what the call is expected to use.
func (c *Call) foresee() *foresight {
	f := &c.foreseen
	if f.isOf(c) {
		return f
	}
	s := c.subject()
	if f.of == c.Request && f.of != nil && f.subject == s {
		f.routed = c.attempts.routed
		return f
	}
	u := c.m.learned.of(s)
	*f = foresight{of: c.Request, routed: c.attempts.routed, subject: s, use: u, prompt: u.corrected(c.Request.PromptTokens())}
	f.input, f.output, f.total, f.learned = u.expected()
	return f
}

// isOf tells whether it was the same call then: the same subject, without a look at names
// that cannot have changed.
func (f *foresight) isOf(c *Call) bool {
	return f.of == c.Request && f.of != nil && f.routed == c.attempts.routed && f.subject.route == c.route
}

// known is what is known of calls like this one; nil if nothing is.
func (c *Call) known() *modelUse {
	f := &c.foreseen
	if f.isOf(c) && f.use != nil {
		return f.use // it stays the one of its subject
	}
	return c.m.learned.of(c.subject())
}

// taught is where to remember what a call like this one has used.
func (c *Call) taught() *modelUse {
	if u := c.known(); u != nil {
		return u
	}
	return c.m.learned.entry(c.subject())
}

// Asked is the call as a price table sees it before it is made, coming to a host that is
// empty where it is not known. The next call of Asked, and the end of the call, change it.
// The request must have been inspected.
func (c *Call) Asked(host string) *Priced {
	if f := c.foresee(); !f.priced {
		c.reckon()
		c.quote = quotation{} // that was of another model
		c.ask(&c.priced)
		f.priced = true
	}
	c.priced.Host = host
	return &c.priced
}

// Expect is what p expects the call to cost if it comes to a host and uses so many tokens;
// ok is false where it has no price. Limiters ask the same one after the other.
func (c *Call) Expect(p Pricer, host string, input, output int64) (usd money.USD, ok bool) {
	asked := c.Asked(host)
	q := &c.quote
	if q.pricer != p || q.host != host || q.input != input || q.output != output {
		*q = quotation{pricer: p, host: host, input: input, output: output}
		q.usd, q.ok = p.Expect(asked, input, output)
	}
	return q.usd, q.ok
}
