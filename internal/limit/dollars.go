package limit

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// maxDollars is the largest limit in dollars. It leaves counters room to run far past
// their limit.
const maxDollars = 1_000_000 * money.Dollar

// parseDollars reads an amount such as `$10`, `$0.10` or `$1_000`, in picodollars. The
// error quotes s.
func parseDollars(s string) (int64, error) {
	digits, ok := strings.CutPrefix(s, "$")
	if !ok {
		return 0, fmt.Errorf("amount %q has no dollar sign: write it as $10 or $0.10", s)
	}
	usd, err := money.ParseUSD(digits)
	switch {
	case err != nil && strings.HasSuffix(err.Error(), "picodollar"):
		return 0, fmt.Errorf("amount %q is finer than a picodollar, $0.000000000001", s)
	case err != nil:
		return 0, fmt.Errorf("amount %q is not an amount of dollars such as $10 or $0.10", s)
	case usd <= 0:
		return 0, fmt.Errorf("amount %q must be greater than zero", s)
	case usd > maxDollars:
		return 0, fmt.Errorf("amount %q is larger than $1_000_000", s)
	}
	return int64(usd), nil
}

// quote is what a call may cost, as an instance that counts dollars is told when it is
// to admit the call.
type quote struct {
	pricer meter.Pricer
	of     *meter.Call
	models []string // that may serve the call; the requested one first
	host   string   // of the upstream; empty if it is not known
	at     time.Time
	call   *meter.Priced // as it was asked for, while it is being admitted
	known  bool          // at least one has a price

	modelsBuf [1]string // room for those of most calls

	input, choices int64 // tokens at worst, and answers
	hold           int64 // picodollars to hold while the call is under way
	more           int64 // what else may be held so that a cap can be written in
	owed           int64 // to charge if the call turns out to have no price, and does not say what it used
}

// quote asks what a call may cost. A call is refused that has no price, unless the
// operator says otherwise.
func (l *Limiter) quote(call *meter.Call, w *wants) (*quote, *Refusal) {
	p, host := l.pricer(call)
	return l.quoteBy(p, host, call, w)
}

// quoteBy is quote by a pricer, of calls to an upstream that may not be known.
func (l *Limiter) quoteBy(p meter.Pricer, host string, call *meter.Call, w *wants) (*quote, *Refusal) {
	if uncounted(call) {
		return nil, nil
	}
	q := w.room
	if q == nil {
		q = new(quote)
	}
	q.pricer, q.of, q.host, q.call, q.choices = p, call, host, call.Asked(host), max(call.Request.Choices, 1)
	q.at = q.call.At
	q.models = append(append(q.modelsBuf[:0], q.call.Requested), call.Request.OtherModels...)

	if l.config.Mode == Strict {
		q.input = w.input
		if what := q.unbounded(); what != "" {
			return nil, notBounded(what)
		}
	}
	in, out := call.ExpectedInput(), call.ExpectedOutput()
	unpriced := false
	for _, m := range q.models {
		usd, ok := q.price(m, in, out)
		unpriced = unpriced || !ok
		q.known = q.known || ok
		q.owed = max(q.owed, int64(usd))
	}
	if unpriced && l.enforced && !w.reports && q.pricer.Denies(true) {
		return nil, ModelNotPriced()
	}
	switch {
	case l.config.Mode == ChargeAfter:
	case !q.known:
		q.hold = q.owed
	case l.config.Mode == Strict:
		q.hold = q.worst(w.output)
		if w.writeCap {
			q.more = max(q.worst(w.output+w.more)-q.hold, 0)
		}
	case l.shared:
		q.hold = q.typical()
	default:
		q.hold = q.owed
	}
	return q, nil
}

// unbounded is what the call is billed by that its request does not bound; empty if there
// is nothing.
func (q *quote) unbounded() string {
	switch q.call.API {
	case usage.OpenAIAudio:
		if q.call.Hints.Characters > 0 && q.worst(0) == q.worst(mostCap) {
			return "" // by the character
		}
		return sound(q.of.Request)
	case usage.MistralOCR:
		return "the number of pages"
	case usage.CohereRerank:
		return "the number and length of documents"
	default:
		return ""
	}
}

// price is what a call of a model is thought to cost that uses so many tokens. ok is
// false where it has no price, and usd then what such calls are presumed to cost. A model
// that is billed by something else than tokens is taken for what that is known of, or for
// what its calls usually cost.
func (q *quote) price(model string, input, output int64) (usd money.USD, ok bool) {
	p := q.call
	if model == p.Requested && p == q.of.Asked(q.host) {
		usd, ok = q.of.Expect(q.pricer, q.host, input, output)
	} else {
		other := *p
		other.Requested = model
		p = &other
		usd, ok = q.pricer.Expect(p, input, output)
	}
	if ok {
		return usd, true
	}
	if _, ok = q.pricer.Worst(p, input, output); !ok {
		return q.of.Presumed(q.pricer, p, input, output), false
	}
	usd, _ = q.pricer.Expect(p, 0, 0)
	usual, _ := q.of.TypicalCost()
	return max(usd, usual), true
}

// worst is the most that the call can cost with so much output, in tokens of all answers.
func (q *quote) worst(output int64) (most int64) {
	p := *q.call
	for _, m := range q.models {
		p.Requested = m
		usd, ok := q.pricer.Worst(&p, q.input, output)
		if ok {
			most = max(most, int64(usd))
		}
		if ok && p.Usage.Images > 0 && p.Hints != (usage.Hints{}) {
			// The row of a size has no price for tokens, which may be what is billed.
			unsized := p
			unsized.Hints.ImageSize, unsized.Hints.ImageQuality = "", ""
			usd, _ = q.pricer.Worst(&unsized, q.input, output)
			most = max(most, int64(usd))
		}
	}
	return most
}

// typical is what calls of the model usually cost, whatever this one asks for.
func (q *quote) typical() int64 {
	if usd, ok := q.of.TypicalCost(); ok {
		return int64(usd)
	}
	in, out := int64(meter.Unlearned), int64(0)
	if q.of.Endpoint.API.Generates() {
		in, out = out, in
	}
	var hold money.USD
	usual, p := *q, ordinary(q.call)
	usual.call = &p
	for _, m := range q.models {
		usd, _ := usual.price(m, in, out)
		hold = max(hold, usd)
	}
	return int64(hold)
}

// ordinary is a call that asks for no more than calls usually do of what is not billed by
// the token: nobody may lock others out of a budget by asking for a thousand pictures.
func ordinary(p *meter.Priced) meter.Priced {
	q := *p
	q.Usage.Images = min(q.Usage.Images, 1)
	q.Usage.AudioMillis = min(q.Usage.AudioMillis, 60_000)
	q.Hints.Characters = min(q.Hints.Characters, 1_000)
	return q
}

// outputWithin is the most output of each answer that costs no more than so many
// picodollars, up to a bound; 0 if not even the prompt does.
func (q *quote) outputWithin(usd, bound int64) int64 {
	least, most := int64(0), bound
	for least < most {
		mid := least + (most-least+1)/2
		if q.worst(mid*q.choices) <= usd {
			least = mid
		} else {
			most = mid - 1
		}
	}
	return least
}

// ModelNotPriced is the answer to a call whose model has no price where it must have one.
func ModelNotPriced() *Refusal {
	return &Refusal{
		Status: http.StatusBadRequest, Code: "model_not_priced", Param: "model",
		Message: "this gateway has no price for the model of this call, and admits only calls that it can price",
	}
}

// used is what a call that turned out to have no price is charged: what it used, at the
// price that it was admitted by, or at what such calls are presumed to cost. One that has
// not said what it used is charged no less than was expected.
func (q *quote) used(o *meter.Outcome) int64 {
	if q.pricer == nil {
		return q.owed
	}
	p := q.again()
	p.Served, p.Usage, p.Other, p.Terms = o.ServedModel, o.Usage, o.Other, o.Terms
	var most money.USD
	known := false
	for _, m := range q.models {
		p.Requested = m
		if usd, status := q.pricer.Price(&p); status != meter.CostUnpriced {
			most, known = max(most, usd), true
		}
	}
	if !known {
		all := o.All()
		most = q.of.Presumed(q.pricer, &p, all.Input, all.Output)
		known = most > 0
	}
	if known && o.Source == meter.SourceReported {
		return int64(most)
	}
	return max(int64(most), q.owed)
}

// again is the call as it was asked for when it was admitted.
func (q *quote) again() meter.Priced {
	p := q.of.Priced()
	p.Host, p.At = q.host, q.at
	return p
}

// cost is what to charge a call in picodollars that has ended. One that turned out to
// have no price is not free.
func (e *entry) cost(o *meter.Outcome) int64 {
	switch {
	case o.CostStatus != meter.CostUnpriced:
		return int64(o.Cost)
	case e.quote == nil || o.Source == meter.SourceNone:
		return int64(o.Cost) // let pass unseen, by the operator's word
	default:
		return max(int64(o.Cost), e.quote.used(o))
	}
}

// costInside is what these models cost that were used inside a call which another one
// answered. Where one has no price of its own, it is what the call cost.
func (e *entry) costInside(o *meter.Outcome, models []string) int64 {
	all := e.cost(o)
	if e.quote == nil || e.quote.pricer == nil {
		return all
	}
	var sum int64
	p := e.quote.again()
	p.Terms, p.Other = o.Terms, nil
	p.Terms.CostKnown = false // that would be the whole
	for i := range o.Other {
		if each := &o.Other[i]; slices.Contains(models, modelname.Normal(each.Model)) {
			p.Requested, p.Served, p.Usage = each.Model, each.Model, each.Usage
			usd, status := e.quote.pricer.Price(&p)
			if status == meter.CostUnpriced {
				return all
			}
			sum = add(sum, int64(usd))
		}
	}
	return min(sum, all)
}

// amount is how much of a rule's unit a call has used, of which all is used.
func (e *entry) amount(i int, o *meter.Outcome, all *usage.Usage) int64 {
	used, inside := e.part(i, o, all)
	switch u := e.rules[i].unit; {
	case used == nil:
		return 0
	case u == Requests:
		return e.ticket.Lines[i].Charged
	case u == USD && inside:
		return e.costInside(o, e.shares()[i].models)
	case u == USD:
		return e.cost(o)
	case e.rules[i].media:
		m := e.media()
		return m.settled(u, o, used)
	default:
		return u.Of(used)
	}
}

// Budgeted tells whether a limit in dollars that can refuse has admitted the call.
func Budgeted(call *meter.Call) bool {
	for _, each := range call.Entries() {
		if e, ok := each.(*entry); ok && e.quote != nil && e.l.enforced {
			return true
		}
	}
	return false
}

// Priceable tells whether all models that a call may use have a price, or need none. host
// is the upstream's, if it is known.
func Priceable(call *meter.Call, p meter.Pricer, host string) bool {
	if uncounted(call) {
		return true
	}
	q := quote{pricer: p, of: call, host: host, call: call.Asked(host)}
	for _, m := range append([]string{q.call.Requested}, call.Request.OtherModels...) {
		if _, ok := q.price(m, 1, 1); !ok {
			return false
		}
	}
	return true
}
