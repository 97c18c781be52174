package outage

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// ticket is an admitted call, of the remote or of this process.
type ticket struct {
	store.Ticket
	// inner is the remote's or the local store's, nil of a call that was admitted
	// uncounted.
	inner   *store.Ticket
	remote  bool
	at      time.Time // of the admission, where it was not the remote's
	settled atomic.Bool
}

// Reserve implements store.Counters.
func (c *Counters) Reserve(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	c.Start()
	if !c.guests.room(r, c.now()) {
		return nil, errFull
	}
	t, err := c.reserve(ctx, r, results)
	if t != nil {
		c.guests.enter(r, results, c.now())
	}
	return t, err
}

func (c *Counters) reserve(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	inner, err := c.reserveRemote(ctx, r, results)
	switch {
	case err == nil && inner == nil:
		return nil, nil
	case err == nil:
		c.outstanding.Add(1)
		t := &ticket{Ticket: store.Ticket{Entity: inner.Entity, Lines: inner.Lines, Deadline: inner.Deadline}, inner: inner, remote: true}
		t.Private = t
		return &t.Ticket, nil
	case !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil:
		return nil, err
	}
	return c.reserveHere(ctx, r, results, err)
}

func (c *Counters) reserveRemote(ctx context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	behind := false // before or after: what is pending meanwhile is in no answer for certain
	inner, err := c.ask(ctx, r.Entity, func() (*store.Ticket, error) {
		if behind = c.behind(r.Entity); !behind {
			return c.remote.Reserve(ctx, r, results)
		}
		// What it used during the outage counts first. Both together have the time of
		// one call.
		bounded, cancel := context.WithTimeout(ctx, c.Timeout())
		defer cancel()
		if err := c.deliverOf(bounded, r.Entity); err != nil {
			return nil, err
		}
		behind = c.behind(r.Entity)
		return c.remote.Reserve(bounded, r, results)
	})
	switch {
	case err != nil:
	case !behind && !c.behind(r.Entity):
		c.seen.record(r, inner, results, c.now())
	case inner != nil:
		c.seen.taken(inner, c.now(), c.adjustHere(r.Entity))
	}
	return inner, err
}

// deliverOf charges what an entity has pending.
func (c *Counters) deliverOf(ctx context.Context, e store.Entity) error {
	for range passes {
		b := c.queue.first(e)
		if b == nil {
			return nil
		}
		if err := c.charge(ctx, []*batch{b})[0]; err != nil {
			return err
		}
	}
	return nil // the rest comes from calls that are ending now
}

// Settle implements store.Counters.
func (c *Counters) Settle(t *store.Ticket, actual []int64) {
	k, ok := t.Private.(*ticket)
	if !ok || !k.settled.CompareAndSwap(false, true) {
		return
	}
	defer c.outstanding.Add(-1)
	if k.remote {
		c.remote.Settle(k.inner, actual)
		c.seen.settled(k.inner, actual, c.now().UnixMilli(), c.adjustHere(k.Entity))
		return
	}
	if k.inner != nil {
		c.local.Settle(k.inner, actual)
	}
	var more, back []store.Amount
	for i := range k.Lines {
		l := &k.Lines[i]
		switch d := amountAt(actual, i) - l.Charged; {
		case l.Rule.Window.Kind() == store.KindNone:
		case d > 0:
			more = append(more, store.Amount{Rule: l.Rule, Amount: d})
		case d < 0:
			back = append(back, store.Amount{Rule: l.Rule, Amount: d})
		}
	}
	c.owe(k.Entity, c.now(), more)
	c.owe(k.Entity, k.at, back)
}

// adjustHere charges an entity's local counters.
func (c *Counters) adjustHere(e store.Entity) func(*store.Rule, int64) {
	return func(r *store.Rule, amount int64) {
		r = c.spread.rule(r, c.replicas.Load())
		_ = c.local.Adjust(context.Background(), e, store.Amount{Rule: r, Amount: amount}) // it never fails
	}
}

// owe has the remote charged with what was used here.
func (c *Counters) owe(e store.Entity, at time.Time, lines []store.Amount) {
	if len(lines) == 0 {
		return
	}
	if !c.queue.add(e, at, lines) {
		c.report(errLate)
		return
	}
	if !c.isOpen.Load() {
		c.nudge()
	}
}

// errLate cannot come up as long as a store is closed after its calls have ended.
var errLate = errors.New("a call ended after its store was closed, and is not charged")

// Renew implements store.Counters. What the remote holds is left alone while it, or
// the entity there, cannot be reached: it lapses there, and counts again once it can be renewed.
func (c *Counters) Renew(ctx context.Context, tickets []*store.Ticket, lease time.Duration) error {
	c.Start()
	c.renewing.Lock() // since it writes to the tickets
	defer c.renewing.Unlock()
	var here, there []*ticket
	for _, t := range tickets {
		k, ok := t.Private.(*ticket)
		switch {
		case !ok || k.inner == nil || k.settled.Load():
		case k.remote && c.apart.waits(k.Entity):
		case k.remote:
			there = append(there, k)
		default:
			here = append(here, k)
		}
	}
	err := renew(here, func(inner []*store.Ticket) error { return c.local.Renew(ctx, inner, lease) })
	if c.isOpen.Load() {
		return err
	}
	return errors.Join(err, renew(there, func(inner []*store.Ticket) error {
		_, err := c.ask(ctx, store.Entity{}, func() (*store.Ticket, error) { return nil, c.remote.Renew(ctx, inner, lease) })
		return err
	}))
}

func renew(tickets []*ticket, do func([]*store.Ticket) error) error {
	if len(tickets) == 0 {
		return nil
	}
	inner := make([]*store.Ticket, len(tickets))
	for i, k := range tickets {
		inner[i] = k.inner
	}
	if err := do(inner); err != nil {
		return err
	}
	for _, k := range tickets {
		k.Deadline = k.inner.Deadline
	}
	return nil
}

// Read implements store.Counters. With Local it tells what this process knows while
// the remote cannot be reached.
func (c *Counters) Read(ctx context.Context, e store.Entity, rules []*store.Rule, results []store.Result) error {
	_, err := c.ReadKnown(ctx, e, rules, results)
	return err
}

// ReadKnown is Read. current is set where the results are those of the remote, with all
// that this process has charged.
func (c *Counters) ReadKnown(ctx context.Context, e store.Entity, rules []*store.Rule, results []store.Result) (current bool, err error) {
	c.Start()
	behind := c.queue.has(e)
	_, err = c.ask(ctx, e, func() (*store.Ticket, error) { return nil, c.remote.Read(ctx, e, rules, results) })
	if err == nil || !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil || c.Policy() != Local {
		return err == nil && !behind, err
	}
	return false, c.readHere(ctx, e, rules, results)
}

// Refuses implements store.Refuser. In an outage it is not the remote that decides.
func (c *Counters) Refuses(r *store.Reservation, results []store.Result, often bool) bool {
	c.Start()
	return !c.isOpen.Load() && !c.apart.waits(r.Entity) && !c.queue.has(r.Entity) && store.Refuses(c.remote, r, results, often)
}

// ReadAll implements store.ManyReader, as Read does store.Counters.
func (c *Counters) ReadAll(ctx context.Context, readings []store.Reading) error {
	c.Start()
	_, err := c.ask(ctx, store.Entity{}, func() (*store.Ticket, error) { return nil, store.ReadAll(ctx, c.remote, readings) })
	if err == nil || !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil || c.Policy() != Local {
		return err
	}
	for i := range readings {
		r := &readings[i]
		if err := c.readHere(ctx, r.Entity, r.Rules, r.Results); err != nil {
			return err
		}
	}
	return nil
}

// Entities implements store.Counters. Only the remote knows all of them.
func (c *Counters) Entities(ctx context.Context, instance, after string, n int) (list []store.Entity, err error) {
	c.Start()
	_, err = c.ask(ctx, store.Entity{}, func() (_ *store.Ticket, err error) {
		list, err = c.remote.Entities(ctx, instance, after, n)
		return nil, err
	})
	return list, err
}

// Adjust implements store.Counters. It does not wait for the end of an outage.
func (c *Counters) Adjust(ctx context.Context, e store.Entity, amounts ...store.Amount) error {
	c.Start()
	_, err := c.ask(ctx, e, func() (*store.Ticket, error) { return nil, c.remote.Adjust(ctx, e, amounts...) })
	if err == nil {
		c.seen.adjusted(e, amounts, c.adjustHere(e))
	}
	return err
}

// Clear implements store.Counters. What this process has yet to have charged is charged
// before. It does not wait for the end of an outage.
func (c *Counters) Clear(ctx context.Context, e store.Entity) error {
	c.Start()
	_, err := c.ask(ctx, e, func() (*store.Ticket, error) {
		if err := c.deliverOf(ctx, e); err != nil {
			return nil, err
		}
		return nil, c.remote.Clear(ctx, e)
	})
	if err == nil {
		c.seen.cleared(e)
	}
	return err
}

// Interface guards
var (
	_ store.Counters = (*Counters)(nil)
	_ store.Refuser  = (*Counters)(nil)
)
