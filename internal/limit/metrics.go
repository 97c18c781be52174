package limit

import (
	"cmp"
	"net/http"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
)

// count counts a refusal by the rule that it names, else by its code, and tells of it
// if the call does not go on.
func (l *Limiter) count(r *http.Request, f *Refusal, shadow bool) {
	rule := ""
	if f.violation != nil {
		rule = f.violation.rule.words
	}
	metrics.Process.Refused(l.id, cmp.Or(rule, f.Code), shadow)
	if shadow {
		return
	}
	llmapp.Emit(eventRefused, map[string]any{
		"instance": l.id, "rule": rule, "code": f.Code, "status": f.Status,
		"consumer": cmp.Or(bounded(meter.Var(r, meter.VarApplication)), meter.DefaultConsumer),
		"key_id":   meter.Var(r, meter.VarKeyID),
	})
}
