package limit

import (
	"fmt"
	"slices"
	"strings"
)

// What a config leaves open is told at load: calls that no limit holds, and counters that
// clients can make up. `unlisted` says that the operator knows.

// open are the warnings of a config under which calls may pass that nothing limits.
func (c *Config) open(p *plan) (warnings []string) {
	if c.Unlisted != "" {
		return nil
	}
	const remedy = ": say `unlisted deny`, or a limit beside the blocks"
	for _, set := range append([]*ruleset{p.base}, p.groups...) {
		all, units := set.uncovered(c.Shadow)
		in := ""
		if len(units) > 0 {
			in = " in " + join(units)
		}
		switch {
		case len(set.blocks) == 0:
			if set.group == "" && len(c.Groups) > 0 && c.DefaultGroup == "" && len(holding(set.rules, c.Shadow)) == 0 {
				warnings = append(warnings, "callers in no group are not limited: say default_group, or limits at the top level")
			}
		case !all && in == "":
		case set.group == "":
			warnings = append(warnings, "models in no model block are not limited"+in+remedy)
		default:
			warnings = append(warnings, "members of group "+set.group+" are not limited"+in+" in models of no model block"+remedy)
		}
	}
	return warnings
}

// uncovered tells what limits of blocks do not hold for models outside of them: all is set
// if such models have no limit at all, else units are those that limit models of blocks
// alone. Rules that only report hold nobody, but where the whole instance does.
func (s *ruleset) uncovered(shadow bool) (all bool, units []Unit) {
	beside := holding(s.rules, shadow)
	for _, b := range s.blocks {
		if b.takesAll() { // what the operator says of all other models is what is meant
			return len(beside) == 0 && len(holding(b.rules, shadow)) == 0, nil
		}
		for _, ru := range holding(b.rules, shadow) {
			covered := slices.ContainsFunc(beside, func(by *rule) bool { return by.unit.covers(ru.unit) })
			if !covered && !slices.Contains(units, ru.unit) {
				units = append(units, ru.unit)
			}
		}
	}
	if len(beside) == 0 {
		return true, nil
	}
	return false, units
}

// covers tells whether who is limited in u is limited in v as well.
func (u Unit) covers(v Unit) bool {
	return u == v || u == Tokens && (v == InputTokens || v == OutputTokens || v == UncachedTokens)
}

// holding are the rules that can refuse; those of an instance in shadow could.
func holding(rules []*rule, shadow bool) []*rule {
	var hold []*rule
	for _, ru := range rules {
		if !ru.shadow || shadow {
			hold = append(hold, ru)
		}
	}
	return hold
}

// made are the warnings of a config under which clients can make up counters or rules.
func (l *Limiter) made() (warnings []string) {
	c := l.config
	if c.GroupKey != "" && inventable([]string{c.GroupKey}) {
		warnings = append(warnings, "clients can choose their group by the group_key "+c.GroupKey)
	}
	if l.known {
		return warnings
	}
	apart := "each counts apart"
	if l.plan.perModel() {
		apart = fmt.Sprintf("each counts apart, by per_model in up to %d models of its own", modelsMost)
	}
	return append(warnings, fmt.Sprintf("clients can make up values of the key %s; %s, and new ones are refused when the store is full",
		strings.Join(c.Key, " "), apart))
}

// perModel tells whether models have counters of their own.
func (p *plan) perModel() bool {
	for _, set := range append([]*ruleset{p.base}, p.groups...) {
		if slices.ContainsFunc(set.blocks, func(b *block) bool { return b.perModel && len(b.rules) > 0 }) {
			return true
		}
	}
	return false
}
