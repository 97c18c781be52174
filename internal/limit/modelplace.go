package limit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// A model that is new has its counters from its first call on, and keeps them once it was
// charged something, or a call that asks for it, or that it answers, was answered well.
// Else its place is given back, lest names that no provider knows take those of models: of
// the other models that a call names, an upstream may not have read a word. A request is
// something, where requests are limited, and so is what all models of a call are charged
// whose answer names none of them (see choose): what is charged has to be found again.
//
// Meanwhile the place is held, and when it is kept, charged. The calls of a process that
// are under way at once share one hold, which the last of them gives back. Other processes
// hold none beside it: the first of their calls that is to keep the place charges it
// itself, whatever becomes of the hold.

// place is that of a model which may be given back yet. Its acquaintance's lock guards it.
type place struct {
	calls int
	roll  *roll // nil if another process holds it
	kept  bool
}

// roll is what the store holds for the models that one call found new.
type roll struct {
	leases *store.Leases // which keep the ticket: calls of another config may end it, with a store of their own
	ticket *store.Ticket // of all names, and of each
	actual []int64
	open   int // of which it is not settled
}

// end settles one of the models. The acquaintance's lock is held.
func (r *roll) end(keep int64) {
	r.actual[0] += keep
	if r.open--; r.open == 0 {
		r.leases.Settle(r.ticket, r.actual)
	}
}

// newcomers are what a call has to do with models that are new. Most calls have none.
type newcomers struct {
	c     *acquaintance // of the call's entity: that which its places are in, to its end
	of    store.Entity
	known bool     // as in store.Reservation
	fresh []string // the store is to be asked for their counters
	named []newcomer
}

// newcomer is a model of a call that was not known before it, or may be given back; of a
// call that names several, any model, lest what is known of one change while the store is
// asked for others.
type newcomer struct {
	model string
	own   bool
	place *place // nil if it shares, or is there to stay
}

// come returns the entry's newcomers, for one to be added.
func (e *entry) come(c *acquaintance) *newcomers {
	s := e.specially()
	if s.newcomers == nil {
		s.newcomers = &newcomers{c: c, of: e.asked.Entity, known: e.asked.Known}
	}
	return s.newcomers
}

// acquaintance is what this process has seen of the entity. A call has the same from its
// first model that is new to its end, also if the entity is forgotten meanwhile.
func (e *entry) acquaintance() *acquaintance {
	if nc := e.newcomers(); nc != nil {
		return nc.c
	}
	return acquainted.of(e.asked.Entity)
}

func (nc *newcomers) find(model string) *newcomer {
	if nc == nil {
		return nil
	}
	for i := range nc.named {
		if nc.named[i].model == model {
			return &nc.named[i]
		}
	}
	return nil
}

// asks tells whether the store is to be asked for counters of a model.
func (nc *newcomers) asks(model string) bool { return nc != nil && slices.Contains(nc.fresh, model) }

// unasked tells whether the store is to be asked for counters of models.
func (nc *newcomers) unasked() bool { return nc != nil && len(nc.fresh) > 0 }

// sharing tells whether models that are new share the counters of others.
func (nc *newcomers) sharing() bool {
	return slices.ContainsFunc(nc.named, func(n newcomer) bool { return !n.own })
}

// registrar takes places for the models of an entity, and gives them back.
type registrar struct {
	counters store.Counters
	leases   *store.Leases
	of       store.Entity
	known    bool // as in store.Reservation
	c        *acquaintance
}

func (e *entry) registrar() *registrar {
	return e.registrarOf(e.l.counters, e.l.leases)
}

// registrarOf is the registrar of a call that has newcomers.
func (e *entry) registrarOf(counters store.Counters, leases *store.Leases) *registrar {
	nc := e.newcomers()
	return &registrar{counters, leases, nc.of, nc.known, nc.c}
}

// enroll has the store say which of a call's models have counters of their own.
func (e *entry) enroll(ctx context.Context) error {
	nc := e.newcomers()
	met, err := e.registrar().enroll(ctx, nc.fresh)
	nc.named, nc.fresh = append(nc.named, met...), nil
	return err
}

// enroll asks the store for counters of their own for models that are new. Most often that
// is one question; more follow where some have theirs already, or not all get any. What is
// returned with an error is to be left as well.
func (g *registrar) enroll(ctx context.Context, names []string) (met []newcomer, err error) {
	for len(names) > 0 {
		t, results, err := g.ask(ctx, names)
		if err != nil {
			return met, err
		}
		all, each := &results[0], results[1:]
		if t != nil {
			g.leases.Keep(t)
			r := &roll{leases: g.leases, ticket: t, actual: make([]int64, len(results)), open: len(names)}
			for i, name := range names {
				p := g.c.meet(name, each[i].ResetAt, &place{calls: 1, roll: r})
				met = append(met, newcomer{name, true, p})
			}
			return met, nil
		}
		room := max(0, modelsMost-all.Used-all.Held)
		if !slices.ContainsFunc(each, func(r store.Result) bool { return r.Used+r.Held > 0 }) {
			room = min(room, int64(len(names)-1)) // each question is about fewer
		}
		var rest []string
		for i, name := range names {
			switch {
			case each[i].Used > 0:
				met = append(met, newcomer{name, true, g.c.meet(name, each[i].ResetAt, nil)})
			case each[i].Held > 0:
				met = append(met, newcomer{name, true, g.c.meet(name, each[i].ResetAt, &place{calls: 1})})
			case int64(len(rest)) < room:
				rest = append(rest, name)
			default:
				g.c.miss(name, time.Now(), all.ResetAt)
				met = append(met, newcomer{model: name})
			}
		}
		names = rest
	}
	return met, nil
}

// ask has the store hold places for models. The results are those of all names and of
// each; there is a ticket if all are new and there is room for them.
func (g *registrar) ask(ctx context.Context, names []string) (*store.Ticket, []store.Result, error) {
	n := int64(len(names))
	takes := []store.Take{{Rule: allNames, Limit: modelsMost, Need: n, Hold: n}}
	for _, name := range names {
		takes = append(takes, store.Take{Rule: nameRule(name), Limit: 1, Need: 1, Hold: 1})
	}
	return g.reserve(ctx, takes)
}

func (g *registrar) reserve(ctx context.Context, takes []store.Take) (*store.Ticket, []store.Result, error) {
	res := store.Reservation{Entity: g.of, Known: g.known, Lease: g.leases.Lease(), Takes: takes}
	results := make([]store.Result, len(takes))
	t, err := reserve(ctx, g.counters, &res, results)
	return t, results, err
}

// nameRule is the counter that tells whether a model has counters.
func nameRule(name string) *store.Rule {
	return &store.Rule{ID: "model " + name, Window: namesWindow}
}

// join is knows, and notes another call where the place may be given back.
func (c *acquaintance) join(model string, now time.Time) (own, ok bool, p *place) {
	if own, ok = c.knows(model, now); !own {
		return own, ok, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(model)
	if i < 0 {
		return false, false, nil // given back just now
	}
	if p = c.named[i].place; p != nil {
		p.calls++
	}
	return true, true, p
}

func (c *acquaintance) find(model string) int {
	return slices.IndexFunc(c.named, func(n enrolled) bool { return n.model == model })
}

// meet notes that a model has counters of its own, in a place that a call has found, and
// returns the one that the call is in. Nil is one that is there to stay.
func (c *acquaintance) meet(model string, until time.Time, p *place) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := c.find(model)
	if i < 0 {
		c.named = append(c.named, enrolled{model, until.UnixMilli(), p})
		return p
	}
	in := c.named[i].place
	switch {
	case p == nil:
		return nil
	case in == nil:
		if p.roll != nil { // the store has just said that it is not there any more
			c.named[i].place = p
		}
		return c.named[i].place
	case in.roll == nil:
		in.roll = p.roll // another call was told of it first
	case p.roll != nil:
		p.roll.end(0)
	}
	in.calls++
	return in
}

// leave ends a call in the place of a model. It returns whether that is to be kept from
// now on: then it must be charged.
func (c *acquaintance) leave(model string, p *place, keep bool) (kept bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.calls--
	if p.kept || !keep && p.calls > 0 {
		return false
	}
	p.kept = keep
	if i := c.find(model); i >= 0 && c.named[i].place == p {
		if c.named[i].place = nil; !keep {
			c.named = slices.Delete(c.named, i, i+1)
		}
	}
	if !keep && p.roll != nil {
		p.roll.end(0)
	}
	return keep
}

// forget has the store be asked again.
func (c *acquaintance) forget(model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.find(model); i >= 0 {
		c.named = slices.Delete(c.named, i, i+1)
	}
}

// owned tells whether a rule is that of a model which is counted apart.
func (ru *rule) owned(model string) bool {
	return ru.block != nil && ru.block.perModel && !ru.others && ru.model == model
}

// leave ends the call's part in the places of its models. actual is what is settled, by
// rule; o is how the call ended, nil if nothing came of it.
func (e *entry) leave(o *meter.Outcome, actual []int64) {
	nc := e.newcomers()
	if nc == nil {
		return
	}
	g := e.registrar()
	for _, n := range nc.named {
		if n.place == nil {
			continue
		}
		if g.c.leave(n.model, n.place, e.keeps(n.model, o, actual)) {
			go g.charge(n.model, n.place) // it may take a while, and the client is not to wait
		}
	}
	e.special.newcomers = nil
}

// keeps tells whether a model keeps its place after the call, as leave is told of it.
func (e *entry) keeps(model string, o *meter.Outcome, actual []int64) bool {
	for i, amount := range actual {
		if e.rules[i].owned(model) && (amount > 0 || e.paid(i) > 0) {
			return true
		}
	}
	if o == nil || o.Status < http.StatusOK || o.Status >= http.StatusMultipleChoices {
		return false
	}
	models := e.models()
	asked := len(models) == 0 || bounded(models[0]) == model // the only one, or the first
	return asked || bounded(modelname.Normal(o.ServedModel)) == model
}

// charge keeps a place that is held, by whomever. The model's counter is charged by one of
// all who keep it, and that of all names by the same: out of what is held for it, or else
// beyond the bound, too, where others were quicker. What calls were charged would not be
// looked at any more.
func (g *registrar) charge(model string, p *place) {
	ctx := context.Background() // the store bounds it
	g.c.mu.Lock()
	r := p.roll
	g.c.mu.Unlock()
	takes := []store.Take{{Rule: nameRule(model), Limit: 1, Need: 1, Charge: 1, IgnoreHeld: true}}
	if r == nil {
		takes = append(takes, store.Take{Rule: allNames, Limit: modelsMost, Need: 1, Charge: 1, IgnoreHeld: true, Shadow: true})
	}
	t, _, err := g.reserve(ctx, takes)
	if t != nil {
		g.leases.Settle(t, []int64{1, 1})
	}
	if r != nil {
		var keep int64
		if t != nil {
			keep = 1
		}
		g.c.mu.Lock()
		r.end(keep)
		g.c.mu.Unlock()
	}
	if err != nil {
		g.c.forget(model) // the next call asks
	}
}
