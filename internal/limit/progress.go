package limit

import (
	"context"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// Progress implements meter.Progressive. What the call holds stays held, for what is
// still to come.
func (e *entry) Progress(o *meter.Outcome) (exhausted bool) {
	used := o.All()
	// Each charge is a ticket of its own: a store settles one exactly once.
	takes := make([]store.Take, 0, len(e.rules))
	at := make([]int, 0, len(e.rules)) // which rule each take is of
	for i, ru := range e.rules {
		if ru.metered {
			takes = append(takes, store.Take{Rule: ru.store, Limit: ru.limit, Need: 1, IgnoreHeld: true, Shadow: true})
			at = append(at, i)
		}
	}
	if len(takes) == 0 {
		return false
	}
	leases := e.l.leases
	res := store.Reservation{Entity: e.ticket.Entity, Known: true, Takes: takes, Lease: leases.Lease()}
	results := make([]store.Result, len(takes))
	ticket, err := reserve(context.Background(), e.l.counters, &res, results)
	if err != nil || ticket == nil {
		e.l.often.log(e.l.logger, zap.ErrorLevel, "charging a call under way; its end is to charge it", e.l.id, err)
		return false
	}
	s := e.specially()
	if s.charged == nil {
		s.charged = make([]int64, len(e.rules))
	}
	actual, more := make([]int64, len(takes)), make([]int64, len(e.rules))
	for k, i := range at {
		amount := max(s.charged[i], e.amount(i, o, &used))
		actual[k], more[i] = amount-s.charged[i], amount-s.charged[i]
		s.charged[i] = amount
		if !e.rules[i].shadow && results[k].Used >= results[k].Limit-actual[k] {
			exhausted = true
		}
	}
	e.watch.settle(1)
	defer e.watch.settle(-1)
	e.spend(o, func(i int) int64 { return more[i] })
	leases.Settle(ticket, actual)
	return exhausted
}

// Interface guard
var _ meter.Progressive = (*entry)(nil)
