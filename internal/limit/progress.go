package limit

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
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
		if ru.unit.Metered() {
			takes = append(takes, store.Take{Rule: ru.store, Limit: ru.limit, Need: 1, IgnoreHeld: true, Shadow: true})
			at = append(at, i)
		}
	}
	if len(takes) == 0 {
		return false
	}
	leases := e.l.app.Leases()
	res := store.Reservation{Entity: e.ticket.Entity, Known: true, Takes: takes, Lease: leases.Lease()}
	results := make([]store.Result, len(takes))
	start := time.Now()
	ticket, err := e.l.app.Counters().Reserve(context.Background(), &res, results)
	metrics.Process.StoreOp(metrics.Reserve, time.Since(start), err)
	if err != nil || ticket == nil {
		e.l.often.log(e.l.logger, zap.ErrorLevel, "charging a call under way; its end is to charge it", e.l.id, err)
		return false
	}
	if e.charged == nil {
		e.charged = make([]int64, len(e.rules))
	}
	e.watch.track.settle(1)
	defer e.watch.track.settle(-1)
	actual := make([]int64, len(takes))
	for k, i := range at {
		amount := max(e.charged[i], e.amount(i, o, &used))
		actual[k] = amount - e.charged[i]
		e.charged[i] = amount
		e.spent(i, actual[k])
		if !e.rules[i].shadow && results[k].Used >= results[k].Limit-actual[k] {
			exhausted = true
		}
	}
	leases.Settle(ticket, actual)
	return exhausted
}

// paid is what has been charged of a rule while the call was under way.
func (e *entry) paid(i int) int64 {
	if e.charged == nil {
		return 0
	}
	return e.charged[i]
}

// Interface guard
var _ meter.Progressive = (*entry)(nil)
