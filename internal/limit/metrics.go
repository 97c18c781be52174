package limit

import "github.com/llmlimits/caddy-llm-limits/internal/metrics"

// count counts a refusal by the rule that it names, else by its code.
func (l *Limiter) count(f *Refusal, shadow bool) {
	rule := f.Code
	if f.violation != nil {
		rule = f.violation.rule.words
	}
	metrics.Process.Refused(l.id, rule, shadow)
}
