package memory

import (
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// peek returns the state of the rule's counter rolled to now, and what is held
// of it, without making one. The entity may be nil.
func (e *entity) peek(r *store.Rule, guess int, now int64) (s counter.State, held int64) {
	if e != nil {
		if i := e.find(r, guess); i >= 0 {
			s, held = e.counters[i].State, e.held(i)
		}
	}
	s.Roll(r, now)
	return s, held
}

// commit takes what was found to be free, or is taken all the same in shadow.
func commit(e *entity, t *store.Take, i int, now int64, res *store.Result, l *store.Line) {
	l.Rule = t.Rule
	charge, got := counter.Amounts(t, res)
	if charge == 0 && got == 0 {
		return
	}
	j := e.counter(t.Rule, i, now)
	c := &e.counters[j]
	if charge > 0 {
		c.Charge(t.Rule, charge)
		l.Charged, l.ChargedIn = charge, c.ChargedIn(t.Rule)
		counter.Fill(res, &c.State, t.Rule, now)
	}
	if got > 0 {
		e.hold(j, got)
		l.Held, res.Got = got, got
		res.Held = e.held(j)
	}
}

// newTicket returns the ticket of a call, where there is room for it.
func newTicket(r *store.Reservation, hash uint64, now int64) *ticket {
	n := len(r.Takes)
	t := (*ticket)(r.Room)
	if t == nil {
		alone := new(struct {
			ticket
			few [4]store.Line // room for the lines of most calls
		})
		t, alone.Lines = &alone.ticket, alone.few[:0]
	}
	if cap(t.Lines) < n {
		t.Lines = make([]store.Line, n)
	}
	t.Lines = t.Lines[:n:n]
	t.Entity, t.Private = r.Entity, t
	t.Deadline, t.Mark = now+counter.CeilMilli(r.Lease), store.Mark{Hash: hash, Place: -1}
	return t
}
