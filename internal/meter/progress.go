package meter

import (
	"slices"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Progressive is an Entry that is charged while its call is under way: a session may
// last for hours.
type Progressive interface {
	Entry
	// Progress charges what the call has used so far, less what it was charged before.
	// What it could not charge is left to the next time, or to Settle, which charges
	// the rest. It reports whether a limit is used up, so that the call must end.
	//
	// It is called by one goroutine at a time, and not after Settle. It may wait.
	Progress(o *Outcome) (exhausted bool)
}

// charges adds up the turns of a session, and has them charged as they end.
type charges struct {
	call      *Call
	exhausted func() // ends the session; may be called again

	mu      sync.Mutex
	used    Outcome
	due     bool // something has been used since the last charge began
	working bool // a goroutine charges
	closed  bool
	work    sync.WaitGroup
}

// turn takes a turn that has ended. It is called while bytes pass: it does not wait.
func (c *charges) turn(t *usage.Turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(t)
	c.due = true
	if !c.working && !c.closed {
		c.working = true
		c.work.Go(c.charge)
	}
}

// add adds a turn to what was used.
func (c *charges) add(t *usage.Turn) {
	o := &c.used
	if t.Model != "" {
		o.ServedModel = t.Model
	}
	u, source := t.Usage, SourceReported
	switch {
	case t.Guessed:
		source = SourceEstimated
	case t.Found && t.LacksInput():
		u.Input, source = c.prompt(t), SourceEstimated
	case t.Found:
		if u != (usage.Usage{}) && !t.Failed {
			c.call.taught().add(&u, 0)
		}
	case t.Failed && t.Usage == (usage.Usage{}) && len(t.Other) == 0:
		return
	case t.Failed:
	default:
		u.Input = max(u.Input, c.prompt(t))
		u.Output = max(u.Output, t.DeliveredTokens(), c.call.ExpectedOutput())
		source = SourceEstimated
	}
	c.call.priceTurn(o, t, &u, source)
	o.Usage.Add(&u)
	for i := range t.Other {
		o.addOther(&t.Other[i])
	}
	if o.Source != SourceEstimated {
		o.Source = source
	}
}

// prompt is what the prompt of a turn is expected to count that does not say so, in
// tokens. What the turns before it had is known better than what is usual.
func (c *charges) prompt(t *usage.Turn) int64 {
	if c.used.Usage.Input > 0 {
		return max(t.Prompt, c.call.Request.PromptTokens())
	}
	return max(t.Prompt, c.call.ExpectedInput())
}

// addOther adds what another model used.
func (o *Outcome) addOther(m *usage.ModelUsage) {
	i := slices.IndexFunc(o.Other, func(have usage.ModelUsage) bool { return have.Model == m.Model })
	if i < 0 {
		o.Other = append(o.Other, *m)
		return
	}
	o.Other[i].Usage.Add(&m.Usage)
}

// charge charges what was used until nothing is due.
func (c *charges) charge() {
	// no server guards this goroutine: what is not charged here is when the call ends
	defer func() {
		if v := recover(); v != nil {
			caddy.Log().Error("charging a session", zap.Any("panic", v), zap.Stack("stack"))
			c.mu.Lock()
			c.working = false
			c.mu.Unlock()
		}
	}()
	for {
		o, ok := c.next()
		if !ok {
			return
		}
		exhausted := false
		for _, e := range c.call.entries {
			if p, ok := e.(Progressive); ok && p.Progress(o) {
				exhausted = true
			}
		}
		if exhausted {
			c.exhausted()
		}
	}
}

// next is what was used so far, if that has not been charged.
func (c *charges) next() (*Outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.due || c.closed {
		c.working = false
		return nil, false
	}
	c.due = false
	o := c.used
	o.Status, o.Other = int(c.call.tap.status), slices.Clone(o.Other)
	return &o, true
}

// close stops the charging. It waits for the charge that is being made.
func (c *charges) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Wait()
}

// outcome ends the session and fills in what it used in all.
func (t *tunnel) outcome(o *Outcome) {
	t.charges.close()
	t.session.Close() // turns that were under way are added
	c := t.charges
	c.mu.Lock()
	defer c.mu.Unlock()
	status := o.Status
	*o = c.used
	o.Status = status
	if o.Source == "" {
		o.Source = SourceNone
	}
}
