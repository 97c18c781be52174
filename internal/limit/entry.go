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
	media   media
	kind    string   // what the config calls the model's kind
	models  []string // the normal names of a call that names several
	shares  []share  // by rule, of such a call
	idle    []bool   // by rule: nothing is asked of it; nil if of all something is
	again   bool     // its rules are chosen for the second time
	// newcomers are its models that are new; nil if none are
	newcomers *newcomers

	reservation store.Reservation
	actual      []int64 // by rule, what is settled
	quoteRoom   *quote  // for the quote; nil where it is to be allocated
}

// newEntry returns an entry with room for n rules, as a rule: it is one piece of memory
// then.
func newEntry(l *Limiter, n int) *entry {
	switch {
	case n <= 1 && l.dollars:
		var e struct {
			entry
			quote quote
			room  struct {
				rules   [1]*rule
				results [1]store.Result
				takes   [1]store.Take
				actual  [1]int64
			}
		}
		e.quoteRoom = &e.quote
		return e.with(l, e.room.rules[:0], e.room.results[:0], e.room.takes[:0], e.room.actual[:0])
	case n <= 1:
		var e struct {
			entry
			room struct {
				rules   [1]*rule
				results [1]store.Result
				takes   [1]store.Take
				actual  [1]int64
			}
		}
		return e.with(l, e.room.rules[:0], e.room.results[:0], e.room.takes[:0], e.room.actual[:0])
	case n == 2:
		var e struct {
			entry
			room struct {
				rules   [2]*rule
				results [2]store.Result
				takes   [2]store.Take
				actual  [2]int64
			}
		}
		return e.with(l, e.room.rules[:0], e.room.results[:0], e.room.takes[:0], e.room.actual[:0])
	default:
		var e struct {
			entry
			room struct {
				rules   [inline]*rule
				results [inline]store.Result
				takes   [inline]store.Take
				actual  [inline]int64
			}
		}
		return e.with(l, e.room.rules[:0], e.room.results[:0], e.room.takes[:0], e.room.actual[:0])
	}
}

// with sets what an entry has room in.
func (e *entry) with(l *Limiter, rules []*rule, results []store.Result, takes []store.Take, actual []int64) *entry {
	e.l, e.rules, e.results, e.actual = l, rules, results, actual
	e.reservation.Takes = takes
	return e
}

// admit has the store take what the call wants of all rules, or of none.
func (l *Limiter) admit(r *http.Request, call *meter.Call, who caller) (admitted *entry, f *Refusal, err error) {
	e := newEntry(l, who.set.usual())
	defer func() {
		if admitted == nil {
			e.leave(nil, nil)
		}
	}()
	known := l.known || who.consumer == meter.DefaultConsumer
	entity := store.Entity{Instance: l.id, Consumer: who.consumer}
	e.reservation.Entity, e.reservation.Known = entity, known
	if f := e.choose(r, call, who.set); f != nil {
		return nil, f, nil
	}
	if len(e.rules) == 0 {
		return nil, nil, nil // the operator lets it pass
	}
	w, f := l.want(call, e.rules)
	if f != nil {
		return nil, f, nil
	}
	if w.media, f = mediaOf(r, call, e.rules); f != nil {
		return nil, f, nil
	}
	if l.dollars {
		w.room = e.quoteRoom
		if w.quote, f = l.quote(call, &w); f != nil {
			return nil, f, nil
		}
	}
	e.quote, e.media = w.quote, w.media
	takes := e.takes(call, &w)

	leases := l.app.Leases()
	res := &e.reservation
	*res = store.Reservation{
		Entity: entity,
		Known:  known,
		Strict: l.config.Mode == Strict,
		Takes:  takes, Lease: leases.Lease(),
	}
	fresh := e.newcomers.unasked()
	if len(who.set.blocks) > 0 && e.refused(!fresh) {
		return nil, e.refusedAs(call, takes, &w), nil
	}
	if fresh {
		if err := e.enroll(r.Context()); err != nil {
			return nil, nil, err
		}
		if e.newcomers.sharing() {
			e.again = true
			if f := e.choose(r, call, who.set); f != nil {
				return nil, f, nil
			}
			takes = e.takes(call, &w)
			res.Takes = takes
		}
	}
	e.results = slices.Grow(e.results, len(takes))[:len(takes)]
	start := time.Now()
	e.ticket, err = l.app.Counters().Reserve(r.Context(), res, e.results)
	metrics.Process.StoreOp(metrics.Reserve, time.Since(start), err)
	if err != nil {
		return nil, nil, err
	}
	e.look(r, who.consumer)
	if e.ticket == nil {
		return nil, e.refusedAs(call, takes, &w), nil
	}
	if l.shadowed(e) {
		call.Shadowed(l.id)
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
	if l.config.Mode == Strict && w.output > 0 && !call.RepeatCap(r, l.upstream()) {
		e.Cancel()
		return nil, capRequired(), nil
	}
	return e, nil, nil
}

// refused tells whether the call is known to be refused, whatever the counters of its
// models are: nobody is asked for those then. With often it tells so only of callers that
// are refused on and on, as in store.Refuser, lest they load the store by going through
// their models.
func (e *entry) refused(often bool) bool {
	e.results = slices.Grow(e.results, len(e.rules))[:len(e.rules)]
	if !store.Refuses(e.l.app.Counters(), &e.reservation, e.results, often) {
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
func (e *entry) refusedAs(call *meter.Call, takes []store.Take, w *wants) *Refusal {
	if e.l.shadowed(e) {
		call.Shadowed(e.l.id)
	}
	return e.l.violated(e, takes, w)
}

// takes is what the call wants of the rules that were chosen.
func (e *entry) takes(call *meter.Call, w *wants) []store.Take {
	takes := e.reservation.Takes[:0]
	e.free, e.idle = uncounted(call), nil
	for i, ru := range e.rules {
		switch {
		case ru.unit.Media() && w.media.of(ru.unit) == 0:
			e.idles(i)
		case !ru.unit.Metered() || !e.free:
			takes = append(takes, e.l.take(ru, w))
			continue
		}
		// nothing is wanted; what it reports against expectation is charged
		takes = append(takes, store.Take{Rule: ru.store, Limit: ru.limit, Need: 1, Shadow: true})
	}
	return takes
}

// idles notes that nothing is asked of a rule, so that nothing is said of it either.
func (e *entry) idles(i int) {
	if e.idle == nil {
		e.idle = make([]bool, len(e.rules))
	}
	e.idle[i] = true
}

// asks tells whether the call wants something of a rule that counts media.
func (e *entry) asks(i int) bool { return i >= len(e.idle) || !e.idle[i] }

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
	return e.results[i].Exceeded && (!e.free || !e.rules[i].unit.Metered()) && e.asks(i)
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
	used := o.All()
	e.end(o, func(i int) int64 {
		return e.amount(i, o, &used) - e.paid(i)
	})
}

// Cancel implements meter.Entry.
func (e *entry) Cancel() {
	e.end(nil, func(int) int64 { return 0 })
}

// end settles the call. o is how it ended, nil if nothing came of it.
func (e *entry) end(o *meter.Outcome, amount func(i int) int64) {
	e.watch.track.settle(1)
	defer e.watch.track.settle(-1)
	actual := e.actual[:0]
	for i := range e.rules {
		actual = append(actual, amount(i))
	}
	e.leave(o, actual)
	for i := range e.rules {
		e.spent(i, actual[i]-e.ticket.Lines[i].Charged)
	}
	e.l.app.Leases().Settle(e.ticket, actual)
}
