package limit

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// inline is how many rules an instance may have before a call needs more memory.
const inline = 4

// entry is a call that an instance has admitted. Each call has one in each instance that it
// passes, so that what few calls need is apart.
type entry struct {
	l       *Limiter
	ticket  *store.Ticket
	rules   []*rule // those of its set, which nobody may change, or its own
	results []store.Result
	quote   *quote   // what it may cost; nil where no dollars are counted
	watch   *track   // of its counters; nil where no rule is watched
	special *special // nil where the call needs nothing of it
	who     string   // whom operators are told of, unless all callers share the counters
	named   bool     // the operator has named who
	free    bool     // the call has to fit in the rules alone that count it beforehand
	again   bool     // its rules are chosen for the second time

	asked  *question // of the store; nil once the call is admitted
	room   store.Ticket
	actual [2]int64 // room for what is settled, by rule, of most calls
}

// question is what a store is asked. It is used again, for no store keeps it.
type question struct {
	store.Reservation
	takes [inline]store.Take
}

var questions = sync.Pool{New: func() any { return new(question) }}

// newEntry returns an entry that is to be admitted, with room for as many rules as calls
// have to fit in, as a rule: it is one piece of memory then.
func newEntry(l *Limiter, set *ruleset) *entry {
	switch n := len(set.rules); {
	case len(set.blocks) > 0:
		var e struct {
			entry
			rules   [inline]*rule
			results [inline]store.Result
			lines   [inline]store.Line
		}
		e.entry.rules = e.rules[:0]
		return e.with(l, e.results[:0], e.lines[:0])
	case n <= 1 && l.dollars:
		var e struct {
			entry
			results [1]store.Result
			lines   [1]store.Line
			quote   quote
		}
		e.entry.quote = &e.quote
		return e.with(l, e.results[:0], e.lines[:0])
	case n <= 1:
		var e struct {
			entry
			results [1]store.Result
			lines   [1]store.Line
		}
		return e.with(l, e.results[:0], e.lines[:0])
	case n == 2:
		var e struct {
			entry
			results [2]store.Result
			lines   [2]store.Line
		}
		return e.with(l, e.results[:0], e.lines[:0])
	default:
		var e struct {
			entry
			results [inline]store.Result
			lines   [inline]store.Line
		}
		return e.with(l, e.results[:0], e.lines[:0])
	}
}

// with sets what an entry has room in.
func (e *entry) with(l *Limiter, results []store.Result, lines []store.Line) *entry {
	e.l, e.results, e.room.Lines = l, results, lines
	e.asked = questions.Get().(*question)
	e.asked.Takes, e.asked.Room = e.asked.takes[:0], &e.room
	return e
}

// answered gives back what the store was asked.
func (e *entry) answered() {
	*e.asked = question{}
	questions.Put(e.asked)
	e.asked = nil
}

// admit has the store take what the call wants of all rules, or of none.
func (l *Limiter) admit(r *http.Request, call *meter.Call, who caller) (*entry, *Refusal, error) {
	e := newEntry(l, who.set)
	admitted, f, err := e.admit(r, call, &who)
	e.answered()
	if !admitted {
		return nil, f, err
	}
	return e, nil, nil
}

// admit tells whether the call is admitted. If not it is refused, for a reason that may be
// an error, or let pass for none.
func (e *entry) admit(r *http.Request, call *meter.Call, who *caller) (admitted bool, f *Refusal, err error) {
	defer func() {
		if !admitted {
			e.leave(nil, nil)
		}
	}()
	l, res := e.l, &e.asked.Reservation
	res.Entity = store.Entity{Instance: l.id, Consumer: who.consumer}
	res.Known = l.known || who.consumer == meter.DefaultConsumer
	res.Strict = l.config.Mode == Strict
	res.Lease = l.leases.Lease()
	if f := e.choose(r, call, who.set); f != nil {
		return false, f, nil
	}
	if len(e.rules) == 0 {
		return false, nil, nil // the operator lets it pass
	}
	w, f := l.want(call, e.rules)
	if f != nil {
		return false, f, nil
	}
	if w.media, f = mediaOf(r, call, e.rules); f != nil {
		return false, f, nil
	}
	if w.media != (media{}) {
		e.specially().media = w.media
	}
	if l.dollars {
		w.room = e.quote
		if w.quote, f = l.quote(call, &w); f != nil {
			return false, f, nil
		}
		e.quote = w.quote
	}
	e.takes(call, &w)

	fresh := e.newcomers().unasked()
	if len(who.set.blocks) > 0 && e.refused(!fresh) {
		return false, e.refusedAs(call, &w), nil
	}
	if fresh {
		if err := e.enroll(r.Context()); err != nil {
			return false, nil, err
		}
		if e.newcomers().sharing() {
			e.again = true
			if f := e.choose(r, call, who.set); f != nil {
				return false, f, nil
			}
			e.takes(call, &w)
		}
	}
	e.results = slices.Grow(e.results, len(res.Takes))[:len(res.Takes)]
	at := e.begin()
	e.ticket, err = reserve(r.Context(), l.counters, res, e.results)
	if err != nil {
		return false, nil, err
	}
	e.look(who, at)
	if e.ticket == nil {
		return false, e.refusedAs(call, &w), nil
	}
	if l.shadowed(e) {
		call.Shadowed(l.id)
	}
	for i := range e.ticket.Lines {
		if e.ticket.Lines[i].Held > 0 {
			l.leases.Keep(e.ticket)
			break
		}
	}
	if w.writeCap && !call.WriteCap(r, w.capWithin(e)) {
		e.Cancel()
		return false, capRequired(), nil
	}
	if res.Strict && w.output > 0 && !call.RepeatCap(r, l.upstream()) {
		e.Cancel()
		return false, capRequired(), nil
	}
	return true, nil, nil
}

// reserve asks a store, which is timed.
func reserve(ctx context.Context, c store.Counters, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	start := metrics.Elapsed()
	t, err := c.Reserve(ctx, r, results)
	metrics.Process.StoreOp(metrics.Reserve, metrics.Elapsed()-start, err)
	return t, err
}

// refused tells whether the call is known to be refused, whatever the counters of its
// models are: nobody is asked for those then. With often it tells so only of callers that
// are refused on and on, as in store.Refuser, lest they load the store by going through
// their models.
func (e *entry) refused(often bool) bool {
	e.results = slices.Grow(e.results, len(e.rules))[:len(e.rules)]
	if !store.Refuses(e.l.counters, &e.asked.Reservation, e.results, often) {
		return false
	}
	for i := range e.results {
		if e.results[i].Unknown {
			e.idles(i)
		}
	}
	return true
}

// refusedAs is the answer to a call that does not fit.
func (e *entry) refusedAs(call *meter.Call, w *wants) *Refusal {
	if e.l.shadowed(e) {
		call.Shadowed(e.l.id)
	}
	return e.l.violated(e, e.asked.Takes, w)
}

// takes puts what the call wants of the rules that were chosen into the reservation.
func (e *entry) takes(call *meter.Call, w *wants) {
	takes := e.asked.Takes[:0]
	e.free = uncounted(call)
	if e.special != nil {
		e.special.idle = nil
	}
	for i, ru := range e.rules {
		switch {
		case ru.media && w.media.of(ru.unit) == 0:
			e.idles(i)
		case !ru.metered || !e.free:
			takes = append(takes, e.l.take(ru, w))
			continue
		}
		// nothing is wanted; what it reports against expectation is charged
		takes = append(takes, store.Take{Rule: ru.store, Limit: ru.limit, Need: 1, Shadow: true})
	}
	e.asked.Takes = takes
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
	return e.results[i].Exceeded && (!e.free || !e.rules[i].metered) && e.asks(i)
}

// ID implements meter.Entry.
func (e *entry) ID() string { return e.l.id }

// Headers implements meter.Entry.
func (e *entry) Headers(h http.Header, all []meter.Entry) {
	if enforced(all) {
		var room [2 * inline]quota
		writeQuotas(h, collect(room[:0], all), time.Now())
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

// quotas appends the state of the rules that can refuse such a call.
func (e *entry) quotas(qs []quota) []quota {
	for i, ru := range e.rules {
		if !ru.shadow && e.asks(i) {
			qs = append(qs, quota{ru, &e.results[i]})
		}
	}
	return qs
}

// Settle implements meter.Entry.
func (e *entry) Settle(o *meter.Outcome) {
	all := &o.Usage
	if len(o.Other) > 0 {
		sum := o.All()
		all = &sum
	}
	actual := e.actual[:0]
	for i := range e.rules {
		actual = append(actual, e.amount(i, o, all)-e.paid(i))
	}
	e.end(o, actual)
}

// Cancel implements meter.Entry.
func (e *entry) Cancel() {
	e.end(nil, append(e.actual[:0], make([]int64, len(e.rules))...))
}

// end settles the call. o is how it ended, nil if nothing came of it; actual is what is
// charged, by rule.
func (e *entry) end(o *meter.Outcome, actual []int64) {
	e.watch.settle(1)
	defer e.watch.settle(-1)
	e.leave(o, actual)
	e.spend(o, func(i int) int64 { return actual[i] - e.ticket.Lines[i].Charged })
	e.l.leases.Settle(e.ticket, actual)
}
