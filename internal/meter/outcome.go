package meter

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Source says where the figures of an outcome come from.
type Source string

// The sources of usage.
const (
	SourceReported  Source = "reported"  // by the response
	SourceEstimated Source = "estimated" // from the request and what was delivered
	SourceNone      Source = "none"      // nothing was used
)

// Outcome is what a call used in the end. It is valid while it is settled.
type Outcome struct {
	// Usage is what the serving model used, and Other what other models used inside
	// the call.
	Usage usage.Usage
	Other []usage.ModelUsage
	// Source tells how far to trust the figures.
	Source Source
	// ServedModel is the model that answered, empty if the response names none.
	ServedModel string
	// Terms are what the response said of how it is billed.
	Terms usage.Terms
	// Cost is what the call costs by CostStatus, which is empty if nobody prices it.
	// Where it is unpriced, Cost is only what is known of it: 0, or what those turns of a
	// session cost that have a price.
	Cost       money.USD
	CostStatus CostStatus
	Basis      Basis
	// Status is what the client got, or the one that the handler's error stands for. It
	// is 0 if nothing was answered, and 499 where reverse_proxy notes that the client
	// went away before there was an answer.
	Status int

	told told
	now  time.Time // zero until somebody asks
}

// Now is the time at which the call is settled, the same for all that ask.
func (o *Outcome) Now() time.Time {
	if o == nil {
		return time.Now()
	}
	if o.now.IsZero() {
		o.now = time.Now()
	}
	return o.now
}

// told is what an answer said, before anything was estimated, in tokens.
type told struct{ input, output int64 }

// All is what all models used together.
func (o *Outcome) All() usage.Usage {
	u := o.Usage
	for i := range o.Other {
		u.Add(&o.Other[i].Usage)
	}
	return u
}

// outcome decides what the call used. No usage is not zero usage: a call that a
// provider may have worked for, and that did not report, costs what it was
// expected to. returned is false if a handler panicked.
func (c *Call) outcome(r *http.Request, err error, returned bool) *Outcome {
	o := &c.result
	*o = Outcome{Source: SourceNone, Status: int(c.tap.status)}
	answered := o.Status != 0
	if !answered && err != nil {
		o.Status = statusOf(err)
	}
	if c.tap.resp == nil || c.Request == nil {
		return o // nobody wants to know
	}
	gone := c.gone(r)
	missed := c.missed(answered, gone, err)
	report := c.tap.report(returned && err == nil)
	if c.tap.tunnel != nil {
		c.tap.tunnel.outcome(o)
		return o
	}
	o.ServedModel, o.Other, o.Terms = report.Model, report.Other, report.Terms
	o.told = told{report.Usage.Input, report.Usage.Output}

	guessed := c.guessPictures(o)
	if report.Found && (report.Complete || report.Failed) {
		o.Usage, o.Source = report.Usage, SourceReported
		switch {
		case guessed && !report.TokensUnknown:
			o.Source = SourceEstimated
		case report.TokensUnknown:
			// pictures, of which the tokens were not told
			o.Source = SourceEstimated
			o.Usage.Input = max(o.Usage.Input, c.ExpectedInput())
			o.Usage.Output = max(o.Usage.Output, pictureTokens(report.Usage.Images, c.Model(), &c.Request.Hints))
		case report.LacksInput():
			o.Usage.Input, o.Source = c.ExpectedInput(), SourceEstimated
		case !report.Failed:
			c.taught().add(&o.Usage, c.shown())
		}
		return o
	}
	if !c.worked(o.Status, answered, gone, missed, &report) {
		return o
	}

	o.Source = SourceEstimated
	o.Usage = report.Usage
	expected := c.expected()
	if !report.Found {
		o.Usage.Input = expected.Input
	}
	// what was cut off may have gone on at the provider's
	o.Usage.Output = max(o.Usage.Output, report.DeliveredTokens(), expected.Output)
	if c.speaks() {
		o.Usage.AudioOut = o.Usage.Output
	}
	// fields that were sought count input and output together
	o.Usage.Input = max(o.Usage.Input, report.Least-o.Usage.Output)
	return o
}

// expected is what the call is thought to use.
func (c *Call) expected() usage.Usage {
	// what other callers' prompts were like may add to an estimate, never take away
	u := usage.Usage{Input: max(c.ExpectedInput(), c.Request.PromptTokens()), Output: c.ExpectedOutput()}
	if c.speaks() {
		u.AudioOut = u.Output
	}
	return u
}

// worked tells whether a provider may have worked for a call without usage. gone is
// set if the client went away, missed if the request was sent and had no answer.
func (c *Call) worked(status int, answered, gone, missed bool, report *usage.Report) bool {
	switch {
	case c.Endpoint.Class != usage.Spending:
		return false // let pass uncounted, by the operator's word
	case report.Found || report.Delivered > 0 || report.Usage != (usage.Usage{}) || len(report.Other) > 0:
		return true
	case c.attempts.idle:
		return false // nobody was asked any more, and attempts are charged by themselves
	case c.late && (!answered || status == statusClientGone):
		return false // nothing is sent for a client that had gone before
	case gone && (!answered || status == statusClientGone):
		return c.atWork() // before the header: it may have been at work
	case missed:
		return true // it may have been at work until the gateway gave up
	case !answered && status == 0:
		return false // no handler answered
	case status < 200 || status > 299:
		return false
	default:
		return !report.Failed
	}
}

// atWork tells whether a provider may be at work for the call: whoever counts attempts says so
// by Idle if none is.
func (c *Call) atWork() bool {
	p := c.tap.passage
	return p == nil || c.attempts.n > 0 || p.Sent()
}

// statusClientGone is what reverse_proxy notes when the client has hung up before
// there was an answer.
const statusClientGone = 499

// statusOf is the status that an error of a handler stands for.
func statusOf(err error) int {
	var he caddyhttp.HandlerError
	if errors.As(err, &he) && he.StatusCode != 0 {
		return he.StatusCode
	}
	return http.StatusInternalServerError
}

// shown is the estimate of the prompt where the request shows all of it, else 0.
func (c *Call) shown() int64 {
	if c.Request.External {
		return 0
	}
	return c.Request.PromptTokens()
}

// ExpectedInput is the prompt that the call is expected to have, in tokens: what its
// body shows, corrected by how estimates for its model and route have turned out, or what
// calls like it usually have where more belongs to it. The request must have been
// inspected.
func (c *Call) ExpectedInput() int64 {
	n := c.foresee().prompt
	if c.Request.External {
		in, _, _ := c.Typical()
		n = max(n, in)
	}
	return n
}

// ExpectedOutput is the output that the call is expected to have, in tokens. The
// request must have been inspected.
func (c *Call) ExpectedOutput() int64 {
	switch {
	case !c.Endpoint.API.Generates():
		return 0
	case c.Endpoint.API == usage.OpenAIImages:
		return pictureTokens(c.Request.Choices, c.Model(), &c.Request.Hints)
	case c.speaks():
		return spokenTokens(c.Request)
	}
	n := max(c.foresee().output, leastExpected)
	if most := c.Request.OutputCap(); most > 0 {
		n = min(n, most)
	}
	return n
}

// Typical is what calls of the model on this route use, in tokens: what 95 of 100 stay under,
// whatever this call asks for.
func (c *Call) Typical() (input, output, total int64) {
	f := c.foresee()
	if !f.learned {
		return unlearned, unlearned, unlearned
	}
	return f.input, f.output, f.total
}
