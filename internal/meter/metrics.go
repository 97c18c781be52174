package meter

import (
	"cmp"
	"net/http"

	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Drains is how many calls go on without a client.
func (m *Meter) Drains() int64 { return m.drains.count() }

// BodyBytes is what request bodies take in memory, in bytes.
func (m *Meter) BodyBytes() int64 { return m.bodies.used.Load() }

// Consumer is who calls, as metrics tell callers apart. Only keys say it for sure:
// whatever else sets an application may have it from the client.
func (v Vars) Consumer() metrics.Consumer {
	return metrics.Consumer{Name: v.Text(VarApplication), Named: v.Text(VarKeyID) != ""}
}

// expectation is what a call was expected to use, in tokens.
type expectation struct{ input, output int64 }

// expectation is zero for calls of which nothing is expected, and for sessions: how
// many turns they have, nobody knows.
func (c *Call) expectation() (e expectation) {
	if c.Request != nil && c.tap.resp != nil && c.tap.tunnel == nil && c.Endpoint.Class == usage.Spending {
		e.input, e.output = c.ExpectedInput(), c.ExpectedOutput()
	}
	return e
}

// count counts a call that has ended.
func (c *Call) count(r *http.Request, expected expectation) {
	o := &c.result
	c.m.metrics.Ended(&metrics.Call{
		Consumer: VarsOf(r).Consumer(), API: c.Endpoint.API.String(),
		Status: o.Status, Refused: c.refusedBy != "", Source: string(o.Source),
		Model: cmp.Or(o.ServedModel, c.asked()), Usage: &o.Usage, Other: o.Other,
		ExpectedInput: expected.input, ExpectedOutput: expected.output,
		Cost: o.Cost, Unpriced: o.CostStatus == CostUnpriced,
		Approximate: o.Basis.Approx && o.CostStatus != CostUnpriced && o.CostStatus != CostReported,
	})
}
