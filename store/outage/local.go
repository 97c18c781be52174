package outage

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// reserveHere admits a call without the remote, as the policy says. cause is why.
func (c *Counters) reserveHere(ctx context.Context, r *store.Reservation, results []store.Result, cause error) (*store.Ticket, error) {
	policy, replicas := c.Policy(), c.replicas.Load()
	own := c.seen.own(r.Entity)
	r = by(own, r)
	defer mark(own, r, results)
	switch {
	case policy == Deny, r.Strict && replicas <= 0:
		return nil, cause
	case policy == Allow && !r.Strict && !errors.Is(cause, store.ErrBusy):
		// Nobody passes a limit by calling more than can be asked.
		return c.allow(r, results), nil
	}
	now := c.now()
	few := [4]part{}
	parts := c.parts(few[:0], r, max(1, replicas), now)
	if r.Strict && !c.certain(r, parts, now) {
		return nil, cause
	}
	lr := *r
	lr.Takes = make([]store.Take, len(r.Takes))
	for i := range r.Takes {
		lr.Takes[i] = r.Takes[i]
		lr.Takes[i].Rule, lr.Takes[i].Limit = parts[i].rule, r.Takes[i].Limit-parts[i].others
	}
	inner, err := c.local.Reserve(ctx, &lr, results)
	if err != nil {
		return nil, err
	}
	for i := range results[:len(r.Takes)] {
		parts[i].whole(r.Takes[i].Rule, &results[i], now)
	}
	if inner == nil {
		return nil, nil
	}
	t := &ticket{Ticket: store.Ticket{Entity: r.Entity, Deadline: inner.Deadline}, inner: inner, at: now}
	t.Private = t
	t.Lines = make([]store.Line, len(inner.Lines))
	for i := range inner.Lines {
		t.Lines[i] = inner.Lines[i]
		t.Lines[i].Rule = r.Takes[i].Rule
	}
	c.admitted(t)
	return &t.Ticket, nil
}

// allow admits a call whatever the limits. It holds nothing.
func (c *Counters) allow(r *store.Reservation, results []store.Result) *store.Ticket {
	now := c.now()
	t := &ticket{Ticket: store.Ticket{Entity: r.Entity, Deadline: now.Add(r.Lease).UnixMilli(), Lines: make([]store.Line, len(r.Takes))}, at: now}
	t.Private = t
	sh := c.seen.shard(r.Entity)
	sh.mu.Lock()
	g := sh.find(r.Entity)
	for i := range r.Takes {
		k := &r.Takes[i]
		results[i] = store.Result{Limit: k.Limit, Got: max(0, k.Hold, k.HoldMost)}
		if s := g.counter(k.Rule, i); s != nil {
			results[i].Used, results[i].Held = s.left(now.UnixMilli()), s.holds(now.UnixMilli())
		}
		setWindow(k.Rule, &results[i], now)
		t.Lines[i] = store.Line{Rule: k.Rule, Charged: max(0, k.Charge)}
	}
	sh.mu.Unlock()
	c.admitted(t)
	return &t.Ticket
}

// setWindow fills in the window of a result that no store has filled.
func setWindow(r *store.Rule, res *store.Result, now time.Time) {
	switch r.Window.Kind() {
	case store.KindNone:
	case store.KindRolling, store.KindBucket:
		res.WindowStart, res.ResetAt = now.Add(-r.Window.Length()), now.Add(r.Window.Length())
	default:
		start, end := r.Window.Span(now.UnixMilli())
		res.WindowStart, res.ResetAt = time.UnixMilli(start), time.UnixMilli(end)
	}
}

// admitted counts the ticket and has the remote charged with what is used up already.
func (c *Counters) admitted(t *ticket) {
	c.outstanding.Add(1)
	var lines []store.Amount
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Charged > 0 && l.Rule.Window.Kind() != store.KindNone {
			lines = append(lines, store.Amount{Rule: l.Rule, Amount: l.Charged})
		}
	}
	c.owe(t.Entity, t.at, lines)
}

// part is what a replica may use of a limit in an outage.
type part struct {
	rule *store.Rule // in the local store
	// others is what is kept back: the parts of other replicas, and what calls in
	// flight hold at the remote.
	others int64
	// known is set if the remote has told what was used.
	known bool
}

// parts works out what a call may take here. What the remote had told was used is put
// into the local counters before, and what is held there is kept back. A call of the
// remote's that ends changes both.
func (c *Counters) parts(parts []part, r *store.Reservation, replicas int64, now time.Time) []part {
	sh := c.seen.shard(r.Entity)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.find(r.Entity)
	for i := range r.Takes {
		k := &r.Takes[i]
		p := part{rule: c.spread.rule(k.Rule, replicas)}
		var before, held int64
		if s := g.counter(k.Rule, i); s != nil {
			c.plant(r.Entity, p.rule, s, now)
			p.known = s.kind == store.KindNone || !s.untold && now.UnixMilli() < s.reset
			before = s.left(now.UnixMilli())
			if !k.IgnoreHeld {
				held = s.holds(now.UnixMilli())
			}
		}
		// This replica's part, beside before, which is in the local counter already. A
		// grant is part of that, too.
		left := max(0, addUp(k.Limit, -addUp(max(0, before), held)))
		p.others = addUp(left-left/replicas, held)
		parts = append(parts, p)
	}
	return parts
}

// plant sets the local counter to what was used. The lock is held.
func (c *Counters) plant(e store.Entity, r *store.Rule, s *counter, now time.Time) {
	if s.seeded || s.kind == store.KindNone {
		return
	}
	s.seeded = true
	if now.UnixMilli() >= s.reset {
		return // the local counter knows better
	}
	ctx, results := context.Background(), [1]store.Result{}
	_ = c.local.Read(ctx, e, []*store.Rule{r}, results[:]) // neither fails
	used := addUp(s.left(now.UnixMilli()), s.leftOf(s.mine, now.UnixMilli()))
	if d := used - results[0].Used; d != 0 {
		_ = c.local.Adjust(ctx, e, store.Amount{Rule: r, Amount: d})
	}
}

// certain tells whether the use of all windows is known: the remote has told it, or
// they began after it could not be reached any more.
func (c *Counters) certain(r *store.Reservation, parts []part, now time.Time) bool {
	for i := range r.Takes {
		if parts[i].known || r.Takes[i].Rule.Window.Kind() == store.KindNone {
			continue
		}
		var res store.Result
		setWindow(r.Takes[i].Rule, &res, now)
		if !c.isOpen.Load() || res.WindowStart.UnixMilli() < c.since.Load() {
			return false
		}
	}
	return true
}

// whole turns the state of a part into that of the whole limit.
func (p *part) whole(r *store.Rule, res *store.Result, now time.Time) {
	res.Limit += p.others
	if r.Window.Kind() == store.KindNone {
		res.Held += p.others
		return
	}
	res.Used = addUp(res.Used, p.others)
	if p.rule != r {
		res.WindowStart = now.Add(-r.Window.Length())
	}
}

func (c *Counters) readHere(ctx context.Context, e store.Entity, rules []*store.Rule, results []store.Result) error {
	r := store.Reservation{Entity: e, Takes: make([]store.Take, len(rules))}
	for i, rule := range rules {
		r.Takes[i].Rule = rule
	}
	now, own := c.now(), c.seen.own(e)
	parts := c.parts(nil, &r, 1, now)
	if err := c.local.Read(ctx, e, rules, results); err != nil {
		return err
	}
	for i := range parts {
		parts[i].whole(rules[i], &results[i], now)
		results[i].Limit, results[i].Overridden = own[rules[i].ID]
	}
	return nil
}

// spread has the buckets of one limit refill at all replicas together as fast as
// they did, by letting each take as many times as long.
type spread struct {
	mu    sync.Mutex
	n     int64
	rules map[store.Rule]*store.Rule
}

func (s *spread) rule(r *store.Rule, replicas int64) *store.Rule {
	if replicas <= 1 || r.Window.Kind() != store.KindBucket {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n != replicas || len(s.rules) > 10_000 { // rules of configs that are gone
		s.n, s.rules = replicas, make(map[store.Rule]*store.Rule)
	}
	if slow := s.rules[*r]; slow != nil {
		return slow
	}
	slow := *r
	length := r.Window.Length()
	if int64(length) <= math.MaxInt64/replicas {
		length *= time.Duration(replicas)
	}
	if w, err := store.Bucket(length); err == nil {
		slow.Window = w
	} else {
		slow.Refill = r.Refill / replicas // of years
	}
	s.rules[*r] = &slow
	return &slow
}
