package redis

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

const (
	// opsMost and callsMost bound a batch, so that no script runs for long.
	opsMost   = 128
	callsMost = 64
	// rulesMost bounds its counters, since Lua cannot pass on thousands of values.
	rulesMost = 512
)

// batch is what is sent of a queue at once. Its queue's lock guards it.
type batch struct {
	// replica and number tell it apart from all others of the entity, or if it was
	// exported before it was sent, origin and number.
	replica int
	origin  string
	number  int64

	ops   []*op
	calls []*call

	args []any
	// asked tells of each call whether it was still waited for when sent last.
	asked  []bool
	sent   time.Time
	edits  uint64    // by hand, in its shard until then
	until  time.Time // when those who wait give up
	tries  int
	moved  int  // how often the server found it to be of another time
	doubt  bool // it may have been applied
	told   bool // that its reply is not understood
	flying bool
	// frozen is set where others may send it, too, so that it stays as it is;
	// restored where it is another's.
	frozen, restored bool
	undo             bool // it is what giveBack queues
}

// build takes what is to be sent next into a batch, which becomes the queue's. The
// shard is locked, and the queue has none.
func (s *Store) build(q *queue, r *replica) *batch {
	var b *batch
	if len(q.frozen) > 0 {
		b, q.frozen = q.frozen[0], q.frozen[1:]
	} else {
		b = &batch{replica: r.number, number: r.next()}
		b.ops = bounded(q.ops)
		q.ops = q.ops[len(b.ops):]
		if len(q.ops) == 0 {
			q.ops = nil
			b.call(q)
		}
		b.renew(q)
	}
	b.until = s.now().Add(s.timeout)
	q.batch = b
	s.encode(q, b)
	return b
}

// resend takes the batch in doubt, which is on no way, up again.
func (s *Store) resend(q *queue) {
	q.batch.until = s.now().Add(s.timeout)
	s.encode(q, q.batch)
}

// bounded returns the first ops, as many as go in a batch.
func bounded(ops []*op) []*op {
	rules := 0
	for i, o := range ops {
		rules += o.rules()
		if i == opsMost || i > 0 && rules > rulesMost {
			return ops[:i:i]
		}
	}
	return ops[:len(ops):len(ops)]
}

// call takes calls that wait into the batch, as many as go with its ops.
func (b *batch) call(q *queue) {
	rules := 0
	for _, o := range b.ops {
		rules += o.rules()
	}
	for _, c := range q.calls {
		if len(b.calls) == callsMost || rules > 0 && rules+len(c.takes) > rulesMost {
			break
		}
		rules += len(c.takes)
		b.calls = append(b.calls, c)
	}
	if q.calls = q.calls[len(b.calls):]; len(q.calls) == 0 {
		q.calls = nil
	}
}

// renew takes renewals into the batch: one where others wait, so that of these and
// those neither stands behind all of the other; else as many as go.
func (b *batch) renew(q *queue) {
	alone := len(b.ops)+len(b.calls) == 0
	rules, n := 0, 0
	for _, o := range q.renewals {
		o.dropSettled()
		rules += o.rules()
		if n > 0 && (!alone || rules > rulesMost) {
			break
		}
		n++
	}
	b.ops = append(b.ops, q.renewals[:n]...)
	if q.renewals = q.renewals[n:]; len(q.renewals) == 0 {
		q.renewals = nil
	}
}

// rules is how many counters the op changes at most.
func (o *op) rules() int {
	n := len(o.lines)
	for _, t := range o.tickets {
		n += len(t.Lines)
	}
	return n
}

// encode makes the script's arguments anew: ages grow, and calls are given up.
func (s *Store) encode(q *queue, b *batch) {
	b.sent, b.flying, b.edits = s.now(), true, q.shard.edits
	b.tries++
	if b.single() {
		b.asked = append(b.asked[:0], true)
		b.args = s.short(b, q.entity)
		return
	}
	e := encoder{now: b.sent, rules: make([]*store.Rule, 0, 8), args: make([]any, 0, 64)}
	if b.doubt {
		e.add("d")
	}
	for _, o := range b.ops {
		if o.kind == renewing {
			e.renew(o, s.grid)
		} else {
			e.settle(o)
		}
	}
	ops := len(e.args)
	b.asked = b.asked[:0]
	for _, c := range b.calls {
		b.asked = append(b.asked, !c.gone)
		if c.gone {
			e.add("x")
			continue
		}
		e.take(c, s.grid)
	}
	b.args = s.head(&e, b.field(), b.number, ops, q.entity)
}

// field is where the server remembers the last batch of whom it is of.
func (b *batch) field() string {
	if b.origin != "" {
		return "q" + b.origin
	}
	return "q" + strconv.Itoa(b.replica)
}

// head puts what comes first before the ops.
func (s *Store) head(e *encoder, field string, number int64, ops int, name store.Entity) []any {
	head := make([]any, 0, 5+3*len(e.rules)+len(e.args))
	head = append(head, field, number, len(e.rules), 6+3*len(e.rules)+ops, unsaid(name))
	at := e.now.UnixMilli() + s.skew.Load()
	for _, r := range e.rules {
		letter, param := window(r, at)
		head = append(head, s.fields.of(s.seeds[0], r.ID), letter, param)
	}
	return append(head, e.args...)
}

// unsaid is the consumer's name where the key does not say it.
func unsaid(name store.Entity) string {
	if name.Consumer != "" && !plain(name.Consumer) {
		return name.Consumer
	}
	return ""
}

// kindLetters are what scripts and records call the kinds of windows.
var kindLetters = [...]string{
	store.KindNone: "n", store.KindCalendar: "c", store.KindFixed: "f", store.KindRolling: "r", store.KindBucket: "b",
}

// window returns a window's letter and parameters for the script. at is the
// server's time, about.
func window(r *store.Rule, at int64) (letter string, param any) {
	kind, length := r.Window.Kind(), r.Window.Length().Milliseconds()
	switch letter = kindLetters[kind]; kind {
	case store.KindCalendar:
		before, start, end, after := r.Window.Edges(at)
		b := strconv.AppendInt(make([]byte, 0, 56), before, 10)
		for _, edge := range [...]int64{start, end, after} {
			b = strconv.AppendInt(append(b, ' '), edge, 10)
		}
		return letter, b
	case store.KindFixed, store.KindRolling:
		return letter, length
	case store.KindBucket:
		return letter, strconv.FormatInt(length, 10) + " " + strconv.FormatInt(max(0, r.Refill), 10)
	default:
		return letter, ""
	}
}

// encoder collects the arguments of ops and calls, and the rules they are of.
type encoder struct {
	now   time.Time
	rules []*store.Rule
	args  []any
}

func (e *encoder) add(args ...any) { e.args = append(e.args, args...) }

// rule returns the number of a rule in the script's list, from 1.
func (e *encoder) rule(r *store.Rule) int {
	for i, known := range e.rules {
		if known == r || known.ID == r.ID {
			e.rules[i] = r // the newest config's
			return i + 1
		}
	}
	e.rules = append(e.rules, r)
	return len(e.rules)
}

func (e *encoder) settle(o *op) {
	e.add("s", max(0, e.now.Sub(o.at).Milliseconds()), len(o.lines))
	for i := range o.lines {
		l := &o.lines[i]
		e.add(e.rule(l.rule), l.used)
		e.amounts(l.back)
		e.amounts(l.release)
	}
}

func (e *encoder) amounts(amounts []amount) {
	at := len(e.args)
	e.add(0)
	n := 0
	for _, a := range amounts {
		if a.n > 0 {
			e.add(a.at, a.n)
			n++
		}
	}
	e.args[at] = n
}

func (e *encoder) renew(o *op, grid func(int64) int64) {
	lease := counter.CeilMilli(o.lease)
	e.add("m", lease, grid(lease), 0)
	at, n := len(e.args)-1, 0
	for _, t := range o.tickets {
		for i := range t.Lines {
			if l := &t.Lines[i]; l.Held > 0 {
				e.add(e.rule(l.Rule), t.deadline, l.Held)
				n++
			}
		}
	}
	e.args[at] = n
}

func (e *encoder) take(c *call, grid func(int64) int64) {
	lease := counter.CeilMilli(c.lease)
	e.add("t", lease, grid(lease), len(c.takes))
	for i := range c.takes {
		t := &c.takes[i]
		ranged := rangeOf(t)
		e.add(8*e.rule(t.Rule)+flags(t), t.Limit, max(1, t.Need), max(0, t.Charge), max(0, t.Hold))
		if ranged {
			e.add(t.HoldMost)
		}
	}
}

// flags of a take, as the script has them.
func flags(t *store.Take) int {
	n := 0
	if t.IgnoreHeld {
		n++
	}
	if t.Shadow {
		n += 2
	}
	if rangeOf(t) {
		n += 4
	}
	return n
}

// rangeOf tells whether a take holds what is free of a range.
func rangeOf(t *store.Take) bool { return t.HoldMost > max(0, t.Hold) }

// drive sends a batch until it is answered or in doubt, and then what others wait
// for meanwhile, on a goroutine of its own.
func (s *Store) drive(q *queue, b *batch) {
	ctx, cancel := context.WithTimeout(context.Background(), max(time.Millisecond, b.until.Sub(b.sent)))
	defer cancel()
	for {
		reply, err := s.apply.run(ctx, s.client, q.key, b.args...)
		next := s.answer(q, b, reply, err)
		if next == nil {
			return
		}
		if next != b {
			go s.drive(q, next)
			return
		}
	}
}

// dropSettled leaves tickets out of a renewal that has not been sent yet and whose
// calls have ended meanwhile.
func (o *op) dropSettled() {
	o.tickets = slices.DeleteFunc(o.tickets, func(t *ticket) bool { return t.settled })
}
