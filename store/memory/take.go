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

// newTicket returns the ticket of a call, in one piece of memory with its lines unless
// they are many.
func newTicket(r *store.Reservation, hash uint64, now int64) *ticket {
	var t *ticket
	switch n := len(r.Takes); {
	case n <= 1:
		in := new(struct {
			ticket
			lines [1]store.Line
		})
		t, in.Lines = &in.ticket, in.lines[:n:n]
	case n <= 2:
		in := new(struct {
			ticket
			lines [2]store.Line
		})
		t, in.Lines = &in.ticket, in.lines[:n:n]
	case n <= 4:
		in := new(struct {
			ticket
			lines [4]store.Line
		})
		t, in.Lines = &in.ticket, in.lines[:n:n]
	default:
		t = &ticket{Ticket: store.Ticket{Lines: make([]store.Line, n)}}
	}
	t.Entity, t.Private = r.Entity, t
	t.Deadline, t.hash, t.place = now+counter.CeilMilli(r.Lease), hash, -1
	return t
}
