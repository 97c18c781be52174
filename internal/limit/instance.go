package limit

import (
	"slices"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/store"
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
	infos := l.ruleset.infos()
	for _, set := range l.plan.groups {
		infos = append(infos, set.infos()...)
	}
	return infos
}

// infos are the rules of a group, those of each block once.
func (s *ruleset) infos() []llmapp.RuleInfo {
	infos := []llmapp.RuleInfo{}
	s.all(func(ru *rule) { infos = append(infos, s.info(ru)) })
	return infos
}

func (s *ruleset) info(ru *rule) llmapp.RuleInfo {
	info := llmapp.RuleInfo{
		Words: ru.words, Unit: string(ru.unit), Window: ru.window, Limit: ru.limit, Shadow: ru.shadow, Store: ru.store,
		Group: s.group, Model: ru.model,
	}
	if b := ru.block; b != nil {
		info.PerModel, info.Type = b.perModel, b.kind
		for _, g := range b.globs {
			info.Models = append(info.Models, g.String())
		}
	}
	return info
}

// RulesOf implements llmapp.RulesByConsumer. Of models that have counters of their own
// there are those that the config names, and those that this process has met.
func (l *Limiter) RulesOf(consumer string) []llmapp.RuleInfo {
	set := l.setOf(consumer)
	infos := []llmapp.RuleInfo{}
	for _, ru := range set.rules {
		infos = append(infos, set.info(ru))
	}
	var met []string
	if c := acquainted.look(store.Entity{Instance: l.id, Consumer: consumer}); c != nil {
		met = c.models()
	}
	for _, b := range set.blocks {
		for _, s := range b.slots(set, met) {
			for _, ru := range s {
				infos = append(infos, set.info(ru))
			}
		}
	}
	return infos
}

// slots are the rules of a block: one list, or one for each model that may have counters.
func (b *block) slots(set *ruleset, met []string) [][]*rule {
	if !b.perModel {
		return [][]*rule{b.rules}
	}
	var lists [][]*rule
	for _, g := range b.globs {
		if g.Exact() {
			lists = append(lists, b.rulesFor(slot{model: g.String()}))
		}
	}
	for _, name := range met {
		if in, exact := set.blockOf([]string{name}); in == b && exact == "" {
			lists = append(lists, b.rulesFor(slot{model: name}))
		}
	}
	return append(lists, b.rulesFor(slot{model: otherModels, other: true}))
}

// Role is the limiter's part in a chain.
func (l *Limiter) Role() llmapp.Role {
	if l.config.ConsumerBased || len(l.config.Groups) > 0 || slices.ContainsFunc(l.key, keyPart.identity) {
		return llmapp.RoleConsumerLimiter
	}
	return llmapp.RoleLimiter
}

// UnknownPlaceholders are those of the key and of group_key that are not Caddy's own.
func (l *Limiter) UnknownPlaceholders() []string {
	parts := l.config.Key
	if l.config.GroupKey != "" {
		parts = append(slices.Clone(parts), l.config.GroupKey)
	}
	return unknownPlaceholders(parts)
}

// Interface guards
var _ llmapp.RulesByModel = (*Limiter)(nil)
