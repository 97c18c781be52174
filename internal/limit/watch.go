package limit

import (
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// The events that limiters emit.
const (
	eventRefused   = "llm.refused"
	eventThreshold = "llm.threshold"
)

// watch is how an entry follows its counters.
type watch struct {
	track    *track // nil where no rule is watched
	consumer string // the entity's
	who      metrics.Consumer
}

// look compares the counters with what was known of them, once the store has decided.
func (e *entry) look(r *http.Request, consumer string) {
	for i, ru := range e.rules {
		if !ru.watched() {
			continue
		}
		if e.watch.track == nil {
			e.watch = watch{tracked.of(store.Entity{Instance: e.l.id, Consumer: consumer}), consumer, meter.Consumer(r)}
		}
		res := &e.results[i]
		var charged int64
		if e.ticket != nil {
			charged = e.ticket.Lines[i].Charged
		}
		var window int64
		if ru.store.Window.Kind() != store.KindRolling {
			window = res.WindowStart.UnixMilli()
		}

		t := e.watch.track
		t.mu.Lock()
		m := t.mark(ru, i, window, res.Used-charged, res.Limit)
		percent := m.look(window, res.Used-charged, res.Limit, t.settling > 0)
		percent = max(percent, m.charge(charged))
		t.mu.Unlock()
		e.tell(i, percent, res.Used)
	}
}

// spent notes what is charged to a rule beyond what the admission did. The track must
// have noted that the charge is on its way.
func (e *entry) spent(i int, amount int64) {
	if e.watch.track == nil || !e.rules[i].watched() || amount == 0 {
		return
	}
	ru, t := e.rules[i], e.watch.track
	var window int64
	if ru.store.Window.Kind() != store.KindRolling {
		window, _ = ru.store.Window.Span(time.Now().UnixMilli()) // the call may have outlasted its own
	}
	t.mu.Lock()
	m := t.mark(ru, i, window, e.results[i].Used, e.results[i].Limit)
	m.enter(window)
	percent := m.charge(amount)
	used := m.seen + m.own
	t.mu.Unlock()
	e.tell(i, percent, used)
}

// tell tells operators that a share of a limit is used; 0 percent is nothing to tell.
func (e *entry) tell(i int, percent, used int64) {
	if percent == 0 {
		return
	}
	ru, res := e.rules[i], &e.results[i]
	who := &e.watch.who
	if e.l.shared {
		who = nil
	}
	metrics.Process.Threshold(who, e.l.id, ru.words, int(percent))
	if c := e.l.logger.Check(zap.InfoLevel, "a limit is used up or nearly so"); c != nil {
		c.Write(zap.String("instance", e.l.id), zap.String("rule", ru.words), zap.String("model", ru.model), zap.String("consumer", e.watch.consumer), zap.Int64("percent", percent))
	}
	data := map[string]any{
		"instance": e.l.id, "rule": ru.words, "unit": string(ru.unit), "consumer": e.watch.consumer,
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
