package outage

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// spot is one counter in one of its windows.
type spot struct {
	entity store.Entity
	rule   string
	start  int64
}

func spotOf(e store.Entity, r *store.Rule, at int64) spot {
	start, _ := r.Window.Span(at)
	return spot{e, r.ID, start}
}

// world is a server that keeps its word: each number is applied once, in the order of
// its origin. What reaches it, and when, the test says.
type world struct {
	rt      *rapid.T
	now     func() time.Time
	weather weather
	refused map[store.Entity]bool
	used    map[spot]int64
	seqs    map[string]int64
	errands []*errand      // by their numbers
	takes   map[int]*taken // by the number of the errand that ends them
	late    []func()       // what was sent while the server hung
}

type weather int

const (
	fair    weather = iota
	refuses         // connections
	hangs           // and runs what it was sent some time later
	loses           // replies: it has run what it was sent
)

// errand is the end of a call that was admitted at the server, or may have been.
type errand struct {
	id     int
	entity store.Entity
	actual []int64
	at     int64
	done   bool
	of     *model
}

// taken is a call as the server knows it.
type taken struct {
	entity   store.Entity
	lines    []store.Line
	holds    bool
	deadline int64
}

func newWorld(rt *rapid.T, now func() time.Time) *world {
	return &world{
		rt: rt, now: now, refused: make(map[store.Entity]bool), used: make(map[spot]int64),
		seqs: make(map[string]int64), takes: make(map[int]*taken),
	}
}

// held is what live calls hold of a rule.
func (w *world) held(e store.Entity, rule string) (n int64) {
	for _, t := range w.takes {
		for i := range t.lines {
			if t.holds && t.entity == e && t.lines[i].Rule.ID == rule && w.now().UnixMilli() < t.deadline {
				n += t.lines[i].Held
			}
		}
	}
	return n
}

// take admits a call as of an instant, unless its end has come first. It returns nil for
// a refusal.
func (w *world) take(e *errand, r *store.Reservation, at int64, results []store.Result) *taken {
	t := &taken{entity: r.Entity, holds: true, deadline: at + r.Lease.Milliseconds()}
	admitted := !e.done
	for i := range r.Takes {
		k := &r.Takes[i]
		start, end := k.Rule.Window.Span(at)
		res := store.Result{Limit: k.Limit, Used: w.used[spotOf(r.Entity, k.Rule, at)], Held: w.held(r.Entity, k.Rule.ID)}
		if k.Rule.Window.Kind() != store.KindNone {
			res.WindowStart, res.ResetAt = time.UnixMilli(start), time.UnixMilli(end)
		}
		if res.Used+res.Held+k.Need > k.Limit {
			admitted, res.Exceeded = false, true
		}
		t.lines = append(t.lines, store.Line{Rule: k.Rule, Held: k.Hold, Charged: k.Charge, ChargedIn: start})
		if results != nil {
			results[i] = res
		}
	}
	if !admitted {
		return nil
	}
	for i := range t.lines {
		l := &t.lines[i]
		w.charge(spotOf(r.Entity, l.Rule, at), l.Rule, l.Charged)
		if results != nil {
			results[i].Used, results[i].Held = results[i].Used+l.Charged, results[i].Held+l.Held
		}
	}
	w.takes[e.id] = t
	return t
}

func (w *world) charge(at spot, r *store.Rule, n int64) {
	if r.Window.Kind() != store.KindNone {
		w.used[at] += n
	}
}

// end ends a call, once.
func (w *world) end(e *errand) {
	if e.done {
		return
	}
	e.done = true
	t := w.takes[e.id]
	if t == nil {
		return
	}
	t.holds = false
	for i := range t.lines {
		l := &t.lines[i]
		if d := amountAt(e.actual, i) - l.Charged; d > 0 {
			w.charge(spotOf(e.entity, l.Rule, e.at), l.Rule, d)
		} else {
			w.charge(spot{e.entity, l.Rule.ID, l.ChargedIn}, l.Rule, d)
		}
	}
}

// apply takes a batch, unless it or a later one of its origin was taken.
func (w *world) apply(b *store.Batch) {
	key := fmt.Sprintf("%s %q", b.Origin, b.Entity)
	if b.Seq <= w.seqs[key] {
		return
	}
	w.seqs[key] = b.Seq
	for _, a := range b.Lines {
		w.charge(spotOf(b.Entity, a.Rule, b.At.UnixMilli()), a.Rule, a.Amount)
	}
}

var errWeather = fmt.Errorf("as the test says: %w", store.ErrUnavailable)

// run has the server do something for an entity. It returns an error if no reply comes.
func (w *world) run(e store.Entity, do func()) error {
	switch {
	case w.refused[e], w.weather == refuses:
		return errWeather
	case w.weather == hangs:
		w.late = append(w.late, do)
		return errWeather
	case w.weather == loses:
		do()
		return errWeather
	}
	do()
	return nil
}

// arrive has the server run some of what it was sent before.
func (w *world) arrive(i int) {
	do := w.late[i]
	w.late = append(w.late[:i], w.late[i+1:]...)
	do()
}

// model is a process's remote. What is pending it exports by numbers, in its order.
type model struct {
	store.Counters // what is not used
	w              *world
	pending        []*errand
	killed         bool
	// during is called while records are exported, after they were.
	during func()
}

func (m *model) Reserve(_ context.Context, r *store.Reservation, results []store.Result) (*store.Ticket, error) {
	if err := m.flush(func(e *errand) bool { return e.entity == r.Entity }); err != nil {
		return nil, err
	}
	at := m.w.now().UnixMilli()
	e := &errand{id: len(m.w.errands), entity: r.Entity, at: at, of: m}
	m.w.errands = append(m.w.errands, e)
	kept := *r
	kept.Takes = append([]store.Take(nil), r.Takes...)
	var t *taken
	if err := m.w.run(r.Entity, func() { t = m.w.take(e, &kept, at, results) }); err != nil {
		if !m.w.refused[r.Entity] && m.w.weather != refuses { // else it is certain that it was not run
			m.pending = append(m.pending, e)
		}
		return nil, err
	}
	if t == nil {
		return nil, nil
	}
	return &store.Ticket{Entity: r.Entity, Lines: t.lines, Deadline: t.deadline, Private: e}, nil
}

func (m *model) Read(_ context.Context, e store.Entity, rules []*store.Rule, results []store.Result) error {
	return m.w.run(e, func() {
		for i, r := range rules {
			results[i] = store.Result{Used: m.w.used[spotOf(e, r, m.w.now().UnixMilli())], Held: m.w.held(e, r.ID)}
		}
	})
}

func (m *model) Settle(t *store.Ticket, actual []int64) {
	e := t.Private.(*errand)
	e.actual, e.at = append([]int64(nil), actual...), m.w.now().UnixMilli()
	m.pending = append(m.pending, e)
	if rapid.Bool().Draw(m.w.rt, "settled at once") {
		_ = m.flush(func(o *errand) bool { return o.entity == e.entity })
	}
}

// flush sends some of what is pending.
func (m *model) flush(of func(*errand) bool) (err error) {
	var rest []*errand
	for _, e := range m.pending {
		if of(e) {
			if m.w.run(e.entity, func() { m.w.end(e) }) == nil {
				continue
			}
			err = errWeather
		}
		rest = append(rest, e)
	}
	m.pending = rest
	return err
}

func (m *model) Ping(context.Context) error {
	if err := m.w.run(store.Entity{}, func() {}); err != nil {
		return err
	}
	_ = m.flush(func(*errand) bool { return true }) // it answers all the same
	return nil
}

func (m *model) Charge(_ context.Context, batches []store.Batch) []error {
	errs := make([]error, len(batches))
	for i := range batches {
		b := batches[i]
		b.Lines = append([]store.Amount(nil), b.Lines...)
		if errs[i] = m.flush(func(e *errand) bool { return e.entity == b.Entity && e.actual == nil }); errs[i] != nil {
			continue
		}
		errs[i] = m.w.run(b.Entity, func() { m.w.apply(&b) })
	}
	return errs
}

func (m *model) Identity() string { return "" }

func (m *model) Pending() int { return len(m.pending) }

// Stuck is asked a second after what is pending was sent first.
func (m *model) Stuck() [][]byte {
	_ = m.flush(func(*errand) bool { return true })
	return m.Export()
}

func (m *model) Export() [][]byte {
	var out [][]byte
	for _, e := range m.pending {
		out = append(out, strconv.AppendInt(nil, int64(e.id), 10))
	}
	if do := m.during; do != nil {
		m.during = nil
		do()
	}
	return out
}

func (m *model) Restore(records [][]byte) error {
	for _, r := range records {
		id, err := strconv.Atoi(string(r))
		if err != nil {
			return err
		}
		e := m.w.errands[id]
		e.of = m
		m.pending = append(m.pending, e)
	}
	return nil
}

func (m *model) Close(context.Context) error {
	return m.flush(func(*errand) bool { return true })
}
