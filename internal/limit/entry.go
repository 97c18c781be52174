package limit

import (
	"net/http"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// inline is how many rules an instance may have before a call needs more memory.
const inline = 4

// entry is a call that an instance has admitted.
type entry struct {
	l       *Limiter
	rules   []*rule
	free    bool // the call has to fit in the rules alone that count it beforehand
	ticket  *store.Ticket
	results []store.Result
	charged []int64 // by rule, while the call was under way; nil if nothing was
	quote   *quote  // what it may cost; nil where no dollars are counted
	watch   watch

	rulesBuf   [inline]*rule
	resultsBuf [inline]store.Result
	takesBuf   [inline]store.Take
}

// admit has the store take what the call wants of all rules, or of none.
func (l *Limiter) admit(r *http.Request, call *meter.Call) (*entry, *Refusal, error) {
	consumer, err := l.consumer(r)
	if err != nil {
		return nil, nil, err
	}
	w, f := l.want(call)
	if f != nil {
		return nil, f, nil
	}
	if l.dollars {
		if w.quote, f = l.quote(call, &w); f != nil {
			return nil, f, nil
		}
	}
	e := &entry{l: l, quote: w.quote}
	e.rules = e.rulesBuf[:0]
	takes := e.takesBuf[:0]
	e.free = uncounted(call)
	for _, ru := range l.rules {
		e.rules = append(e.rules, ru)
		if ru.unit.Metered() && e.free {
			// nothing is wanted; what it reports against expectation is charged
			takes = append(takes, store.Take{Rule: ru.store, Limit: ru.limit, Need: 1, Shadow: true})
			continue
		}
		takes = append(takes, l.take(ru, &w))
	}
	e.results = e.resultsBuf[:]
	if len(takes) > inline {
		e.results = make([]store.Result, len(takes))
	}
	e.results = e.results[:len(takes)]

	leases := l.app.Leases()
	res := store.Reservation{
		Entity: store.Entity{Instance: l.id, Consumer: consumer},
		Known:  l.known || consumer == meter.DefaultConsumer,
		Strict: l.config.Mode == Strict,
		Takes:  takes, Lease: leases.Lease(),
	}
	start := time.Now()
	e.ticket, err = l.app.Counters().Reserve(r.Context(), &res, e.results)
	metrics.Process.StoreOp(metrics.Reserve, time.Since(start), err)
	if err != nil {
		return nil, nil, err
	}
	e.look(r, consumer)
	if l.shadowed(e) {
		call.Shadowed(l.id)
	}
	if e.ticket == nil {
		return nil, l.violated(e, takes, &w), nil
	}
	for i := range e.ticket.Lines {
		if e.ticket.Lines[i].Held > 0 {
			leases.Keep(e.ticket)
			break
		}
	}
	if w.writeCap && !call.WriteCap(r, w.capWithin(e)) {
		e.Cancel()
		return nil, capRequired(), nil
	}
	return e, nil, nil
}

// shadowed tells whether a rule that only reports would have refused the call.
func (l *Limiter) shadowed(e *entry) (would bool) {
	for i, ru := range e.rules {
		if ru.shadow && e.refuses(i) {
			metrics.Process.Refused(l.id, ru.words, true)
			would = true
		}
	}
	return would
}

// refuses tells whether there is no room under a rule that the call has to fit in.
func (e *entry) refuses(i int) bool {
	return e.results[i].Exceeded && (!e.free || !e.rules[i].unit.Metered())
}

// ID implements meter.Entry.
func (e *entry) ID() string { return e.l.id }

// Headers implements meter.Entry.
func (e *entry) Headers(h http.Header, all []meter.Entry) {
	if enforced(all) {
		writeQuotas(h, collect(all), time.Now())
	}
}

// enforced tells whether any rule can refuse: those that only report leave no trace in
// an answer.
func enforced(all []meter.Entry) bool {
	for _, e := range all {
		if e, ok := e.(*entry); ok && slices.ContainsFunc(e.rules, func(ru *rule) bool { return !ru.shadow }) {
			return true
		}
	}
	return false
}

// quotas appends the state of the rules that can refuse.
func (e *entry) quotas(qs []quota) []quota {
	for i, ru := range e.rules {
		if !ru.shadow {
			qs = append(qs, quota{ru, &e.results[i]})
		}
	}
	return qs
}

// Settle implements meter.Entry.
func (e *entry) Settle(o *meter.Outcome) {
	used := o.All()
	e.end(func(i int) int64 {
		if e.rules[i].unit == Requests {
			return e.ticket.Lines[i].Charged
		}
		return e.amount(i, o, &used) - e.paid(i)
	})
}

// Cancel implements meter.Entry.
func (e *entry) Cancel() { e.end(func(int) int64 { return 0 }) }

func (e *entry) end(amount func(i int) int64) {
	e.watch.track.settle(1)
	defer e.watch.track.settle(-1)
	var buf [inline]int64
	actual := buf[:0]
	for i := range e.rules {
		actual = append(actual, amount(i))
		e.spent(i, actual[i]-e.ticket.Lines[i].Charged)
	}
	e.l.app.Leases().Settle(e.ticket, actual)
}
