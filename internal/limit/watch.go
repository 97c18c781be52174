package limit

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
)

// The events that limiters emit.
const (
	eventRefused   = "llm.refused"
	eventThreshold = "llm.threshold"
)

// news is what operators are to be told of a rule.
type news struct {
	rule          int
	percent, used int64
}

// begin has the counters watched where operators are to be told of them. It returns when,
// for look, since the store is about to be asked.
func (e *entry) begin() (at int64) {
	if !slices.ContainsFunc(e.rules, (*rule).watched) {
		return 0
	}
	e.watch = tracked.of(e.asked.Entity)
	return e.watch.now()
}

// look compares the counters with what was known of them, once the store has decided that
// was asked at an instant.
func (e *entry) look(who *caller, at int64) {
	if e.watch == nil {
		return
	}
	if !e.l.shared {
		c := who.vars.Consumer()
		e.who, e.named = c.Name, c.Named
	}
	e.tell(who.consumer, e.compare(at))
}

// compare is what look finds.
func (e *entry) compare(at int64) (found []news) {
	t := e.watch
	t.mu.Lock()
	defer t.mu.Unlock()
	doubt := t.since(at)
	if e.ticket != nil {
		t.charges.Add(1)
	}
	for i, ru := range e.rules {
		if !ru.watched() {
			continue
		}
		res := &e.results[i]
		var charged int64
		if e.ticket != nil {
			charged = e.ticket.Lines[i].Charged
		}
		var window int64
		if !ru.slides() {
			window = res.WindowStart.UnixMilli()
		}
		m := t.mark(ru, i, window, res.Used-charged, res.Limit)
		if percent := m.look(window, res.Used-charged, charged, res.Limit, doubt); percent > 0 {
			found = append(found, news{i, percent, res.Used})
		}
	}
	return found
}

// spend notes what is charged to each rule beyond what the admission did. The track must
// have noted that the charge is on its way. o is how the call ended, or what it has used so
// far; nil if nothing came of it.
func (e *entry) spend(o *meter.Outcome, amount func(i int) int64) {
	if e.watch != nil {
		e.tell(e.ticket.Entity.Consumer, e.charge(o, amount))
	}
}

// charge is what spend finds.
func (e *entry) charge(o *meter.Outcome, amount func(i int) int64) (found []news) {
	t := e.watch
	t.mu.Lock()
	defer t.mu.Unlock()
	t.charges.Add(1)
	for i, ru := range e.rules {
		if !ru.watched() {
			continue
		}
		n := amount(i)
		if n == 0 {
			continue
		}
		var window int64
		if !ru.slides() {
			window, _ = ru.store.Window.Span(o.Now().UnixMilli()) // the call may have outlasted its own
		}
		m := t.mark(ru, i, window, e.results[i].Used, e.results[i].Limit)
		m.enter(window)
		if percent := m.charge(n); percent > 0 {
			found = append(found, news{i, percent, m.seen + m.own})
		}
	}
	return found
}

// tell tells operators what was found of a consumer.
func (e *entry) tell(consumer string, found []news) {
	for _, n := range found {
		e.tellOf(consumer, n.rule, n.percent, n.used)
	}
}

// tellOf tells operators that a share of a limit is used.
func (e *entry) tellOf(consumer string, i int, percent, used int64) {
	ru, res := e.rules[i], &e.results[i]
	var who *metrics.Consumer
	if !e.l.shared {
		who = &metrics.Consumer{Name: e.who, Named: e.named}
	}
	metrics.Process.Threshold(who, e.l.id, ru.words, int(percent))
	if c := e.l.logger.Check(zap.InfoLevel, "a limit is used up or nearly so"); c != nil {
		c.Write(zap.String("instance", e.l.id), zap.String("rule", ru.words), zap.String("model", ru.model), zap.String("consumer", consumer), zap.Int64("percent", percent))
	}
	data := map[string]any{
		"instance": e.l.id, "rule": ru.words, "unit": string(ru.unit), "consumer": consumer,
		"percent": percent, "used": amountOf(ru.unit, used), "limit": amountOf(ru.unit, res.Limit),
	}
	if ru.model != "" {
		data["model"] = ru.model
	}
	if !res.ResetAt.IsZero() {
		data["resets_at"] = res.ResetAt.UTC().Format(time.RFC3339)
	}
	llmapp.Emit(eventThreshold, data)
}

// amountOf is an amount as the admin API has it: dollars are decimal strings, and
// seconds may have a fraction.
func amountOf(u Unit, n int64) any {
	switch {
	case u == USD:
		return money.USD(n).String()
	case u.Seconds():
		return float64(n) / milli
	}
	return n
}
