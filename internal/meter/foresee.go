package meter

import (
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// foresight is what a call is expected to use and to cost. All limiters on its way ask, and
// get the same answer however much is learned meanwhile.
type foresight struct {
	of      *usage.Request // what the call asked for then; nil if nobody has asked
	subject subject

	prompt               int64 // what the body shows, corrected
	input, output, total int64 // what calls like it use, if enough is known
	learned              bool

	priced bool // Call.priced is the call as it was asked for
	quote  quotation
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
	s := c.subject()
	if f.of == c.Request && f.of != nil && f.subject == s {
		return f
	}
	u := c.m.learned.of(s)
	*f = foresight{of: c.Request, subject: s, prompt: u.corrected(c.Request.PromptTokens())}
	f.input, f.output, f.total, f.learned = u.expected()
	return f
}

// Asked is the call as a price table sees it before it is made, coming to a host that is
// empty where it is not known. The next call of Asked, and the end of the call, change it.
// The request must have been inspected.
func (c *Call) Asked(host string) *Priced {
	if f := c.foresee(); !f.priced {
		c.priced = c.Priced()
		f.priced = true
	}
	c.priced.Host = host
	return &c.priced
}

// Expect is what p expects the call to cost if it comes to a host and uses so many tokens;
// ok is false where it has no price. Limiters ask the same one after the other.
func (c *Call) Expect(p Pricer, host string, input, output int64) (usd money.USD, ok bool) {
	asked := c.Asked(host)
	q := &c.foreseen.quote
	if q.pricer != p || q.host != host || q.input != input || q.output != output {
		*q = quotation{pricer: p, host: host, input: input, output: output}
		q.usd, q.ok = p.Expect(asked, input, output)
	}
	return q.usd, q.ok
}
