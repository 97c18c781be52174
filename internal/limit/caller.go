package limit

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// RulesOfCaller implements llmapp.RulesByCaller. Rules that only report leave no trace in
// an answer, so they are not among them, and neither are those of an instance whose answers
// do not tell what is left.
func (l *Limiter) RulesOfCaller(r *http.Request) (consumer string, rules []llmapp.RuleInfo) {
	if !l.headers || !l.own(r) {
		return "", nil
	}
	consumer, err := l.consumer(r)
	if err != nil {
		return "", nil
	}
	set := l.ruleset
	if len(l.membership.byName) > 0 {
		set = l.find(r, consumer)
	}
	return consumer, slices.DeleteFunc(l.infosOf(set, consumer, true), func(info llmapp.RuleInfo) bool { return info.Shadow })
}

// own tells whether what a call counts in is its caller's alone: by application if it has
// one, or by a key that holds what only this caller can be. `default` is a counter that
// callers share, and so is that of a group, or of a value that clients may send.
func (l *Limiter) own(r *http.Request) bool {
	if l.config.ConsumerBased {
		app := meter.Var(r, meter.VarApplication)
		return app != "" && app != meter.DefaultConsumer
	}
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	return ok && slices.ContainsFunc(l.key, func(p keyPart) bool {
		return p.caller() && p.value(repl) != ""
	})
}

// caller tells whether the value is one caller's alone.
func (p keyPart) caller() bool { return p.identity() && p.name != "http.vars."+meter.VarGroup }

// Interface guard
var _ llmapp.RulesByCaller = (*Limiter)(nil)
