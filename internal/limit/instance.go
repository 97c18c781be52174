package limit

import (
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

// Directive implements llmapp.Instance.
func (l *Limiter) Directive() string { return l.directive }

// ID implements llmapp.Instance.
func (l *Limiter) ID() string { return l.id }

// Name implements llmapp.Instance.
func (l *Limiter) Name() string { return l.config.Name }

// Pool implements llmapp.Instance.
func (l *Limiter) Pool() string { return l.config.Share }

// Shared implements llmapp.Instance.
func (l *Limiter) Shared() bool { return l.shared }

// Key implements llmapp.Instance.
func (l *Limiter) Key() []string {
	if l.config.ConsumerBased {
		return []string{"application"}
	}
	return l.config.Key
}

// Mode implements llmapp.Instance.
func (l *Limiter) Mode() string { return string(l.config.Mode) }

// Rules implements llmapp.Instance.
func (l *Limiter) Rules() []llmapp.RuleInfo {
	infos := make([]llmapp.RuleInfo, len(l.rules))
	for i, r := range l.rules {
		infos[i] = llmapp.RuleInfo{Words: r.words, Unit: string(r.unit), Limit: r.limit, Shadow: r.shadow, Store: r.store}
	}
	return infos
}

// Role is the limiter's part in a chain.
func (l *Limiter) Role() llmapp.Role {
	if l.config.ConsumerBased || slices.ContainsFunc(l.key, keyPart.identity) {
		return llmapp.RoleConsumerLimiter
	}
	return llmapp.RoleLimiter
}

// UnknownPlaceholders are those of the key that are not Caddy's own.
func (l *Limiter) UnknownPlaceholders() []string { return unknownPlaceholders(l.config.Key) }

// Interface guards
var _ llmapp.Instance = (*Limiter)(nil)
