package limit

import (
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// RulesOfModel implements llmapp.RulesByModel. A model that this process has not met is
// taken to have counters of its own where the config counts each model apart.
func (l *Limiter) RulesOfModel(consumer, model string) []llmapp.RuleInfo {
	set := l.setOf(consumer)
	infos := []llmapp.RuleInfo{}
	for _, ru := range set.rules {
		infos = append(infos, set.info(ru))
	}
	forms := modelname.Forms(model)
	b, exact := set.blockOf(forms)
	if b == nil {
		return infos
	}
	rules := b.rules
	if b.perModel {
		e := store.Entity{Instance: l.id, Consumer: consumer}
		rules = b.rulesFor(metSlot(e, forms[len(forms)-1], exact))
	}
	for _, ru := range rules {
		infos = append(infos, set.info(ru))
	}
	return infos
}

// metSlot is the name of a model's counters as far as this process knows; see slot.
func metSlot(e store.Entity, normal, exact string) slot {
	if exact != "" {
		return slot{model: exact}
	}
	name := bounded(normal)
	if c := acquainted.look(e); c != nil {
		if own, full := c.knows(name, time.Now()); full && !own {
			name = otherModels
		}
	}
	return slot{model: name, other: name == otherModels}
}

// RuleOfID implements llmapp.RulesByModel.
func (l *Limiter) RuleOfID(id string) (info llmapp.RuleInfo, ok bool) {
	for _, set := range append([]*ruleset{l.plan.base}, l.plan.groups...) {
		set.all(func(ru *rule) {
			if own := ru.ofID(id); own != nil && !ok {
				info, ok = set.info(own), true
			}
		})
	}
	return info, ok
}

// ofID is the rule, or that of one of its models, if its counter has that name; else nil.
func (ru *rule) ofID(id string) *rule {
	if ru.block == nil || !ru.block.perModel {
		if ru.store.ID == id {
			return ru
		}
		return nil
	}
	rest, ok := strings.CutPrefix(id, ru.store.ID)
	if !ok {
		return nil
	}
	model, own := strings.CutPrefix(rest, "=")
	switch {
	case own:
	case rest == "~":
		model = otherModels
	default:
		return nil
	}
	for _, of := range ru.block.rulesFor(slot{model: model, other: !own}) {
		if of.store.ID == id {
			return of
		}
	}
	return nil
}
