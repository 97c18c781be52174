package redis

import (
	"slices"
	"strconv"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// decided tells a caller what the script has decided.
// It returns what is to be given back of a call that was given up.
func (s *Store) decided(q *queue, c *call, r *outcome) (undo *op) {
	admitted := strings.HasPrefix(r.verdict, "1")
	switch {
	case !admitted && c.gone:
	case !admitted && r.before:
		// What was found then is not known any more. It took nothing, so that it
		// can be asked anew.
		q.calls = append([]*call{c}, q.calls...)
	case !admitted:
		for i := range c.takes {
			f := &r.found[i]
			f.check(f.State, &c.takes[i], f.held, r.then, &c.results[i])
		}
		s.remember(q, c, r)
		c.finish(nil, nil)
	default:
		q.shard.changed(q.entity, func(id string) bool {
			return slices.ContainsFunc(c.takes, func(t store.Take) bool { return t.Rule.ID == id })
		})
		t := s.admit(q.entity, c, r)
		if c.gone {
			return s.ended(t, nil)
		}
		c.finish(&t.Ticket, nil)
	}
	return nil
}

// admit makes the ticket of a call, and its results if anybody waits for them.
func (s *Store) admit(e store.Entity, c *call, r *outcome) *ticket {
	t := &ticket{deadline: s.deadline(r.then, c.lease)}
	t.Entity, t.Deadline, t.Private = e, t.deadline, t
	if n := len(c.takes); n <= len(t.few) {
		t.Lines = t.few[:n:n]
	} else {
		t.Lines = make([]store.Line, n)
	}
	_, gots, _ := strings.Cut(r.verdict, ":")
	for i := range c.takes {
		k, l := &c.takes[i], &t.Lines[i]
		l.Rule, l.Held = k.Rule, max(0, k.Hold)
		if rangeOf(k) {
			var word string
			word, gots, _ = strings.Cut(gots, ":")
			l.Held, _ = strconv.ParseInt(word, 10, 64) // the script's own
		}
		if l.Charged = max(0, k.Charge); l.Charged > 0 {
			l.ChargedIn = r.chargedIn(k.Rule, i)
		}
		if !c.gone {
			r.fill(&c.results[i], k, l, i)
		}
	}
	return t
}

// chargedIn returns the start of the window that a take was charged in.
func (r *outcome) chargedIn(rule *store.Rule, i int) int64 {
	if i < len(r.found) && !r.before {
		return r.found[i].ChargedIn(rule)
	}
	var s counter.State
	s.Roll(rule, r.then)
	return s.ChargedIn(rule)
}

// fill computes the result of an admitted take.
func (r *outcome) fill(res *store.Result, k *store.Take, l *store.Line, i int) {
	s, held := r.found[i].State, r.found[i].held
	if r.before {
		// Back to what it found, as far as that can be told.
		s.Charge(k.Rule, -l.Charged)
		held = max(0, counter.Sub(held, l.Held))
	}
	r.found[i].check(s, k, held, r.then, res)
	if !k.Shadow {
		res.Exceeded, res.RetryAfter = false, 0
	}
	s.Charge(k.Rule, l.Charged)
	res.Held, res.Got = counter.Add(held, l.Held), l.Held
	counter.Fill(res, &s, k.Rule, r.then)
}

// endTicket queues what a ticket's end changes. The shard is locked.
func (s *Store) endTicket(q *queue, t *ticket, actual []int64) {
	o := s.ended(t, actual)
	if o == nil {
		return
	}
	o = s.push(q, o)
	if t.holds() {
		t.settle = o
	}
}

// ended is what a ticket's end changes, nil for nothing. The shard is locked.
func (s *Store) ended(t *ticket, actual []int64) *op {
	t.settled = true
	o := &op{kind: settling, at: s.now()}
	for i := range t.Lines {
		l := &t.Lines[i]
		var n int64
		if i < len(actual) {
			n = max(0, actual[i])
		}
		change := line{rule: l.Rule}
		switch {
		case n > l.Charged:
			change.used = n - l.Charged
		case n < l.Charged:
			change.back = []amount{{l.ChargedIn, l.Charged - n}}
		}
		if l.Held > 0 {
			change.release = []amount{{t.deadline, l.Held}}
		}
		if l.Held > 0 || n != l.Charged {
			o.lines = append(o.lines, change)
		}
	}
	if len(o.lines) == 0 {
		return nil
	}
	return o
}
