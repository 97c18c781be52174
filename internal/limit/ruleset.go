package limit

import (
	"errors"
	"fmt"
	"time"
)

// ruleset is what calls of one group are checked against, or of those in none.
type ruleset struct {
	group  string  // empty for the top level
	rules  []*rule // count every call
	blocks []*block
}

// plan is all rules of a config.
type plan struct {
	base   *ruleset
	groups []*ruleset
}

// all calls f with every rule, that of each block once.
func (p *plan) all(f func(ru *rule)) {
	p.base.all(f)
	for _, set := range p.groups {
		set.all(f)
	}
}

func (s *ruleset) all(f func(ru *rule)) {
	for _, ru := range s.rules {
		f(ru)
	}
	for _, b := range s.blocks {
		for _, ru := range b.rules {
			f(ru)
		}
	}
}

// plan compiles the rules of a config.
func (c *Config) plan(zone *time.Location, k *Kind) (*plan, error) {
	if !limited(c.Limits, c.Models) && len(c.Groups) == 0 {
		return nil, fmt.Errorf("needs at least one limit, such as `%s`", k.example)
	}
	base, err := c.ruleset("", c.Limits, c.Models, zone, k)
	if err != nil {
		return nil, err
	}
	p := &plan{base: base}
	for i := range c.Groups {
		g := &c.Groups[i]
		if err := g.check(c.Groups[:i]); err != nil {
			return nil, within(fmt.Sprintf("groups[%d]", i), err)
		}
		set, err := c.ruleset(g.Name, g.Limits, g.Models, zone, k)
		if err != nil {
			return nil, within(g.part(), err)
		}
		p.groups = append(p.groups, set)
	}
	if err := c.checkMembership(); err != nil {
		return nil, err
	}
	if c.Unlisted == "deny" && !p.hasBlocks() {
		return nil, at("unlisted", errors.New("unlisted deny needs a model block, or no model at all would be allowed"))
	}
	return p, nil
}

func (p *plan) hasBlocks() bool {
	for _, set := range p.groups {
		if len(set.blocks) > 0 {
			return true
		}
	}
	return len(p.base.blocks) > 0
}

// ruleset compiles the rules of a group, or of the top level.
func (c *Config) ruleset(group string, limits []Rule, models []ModelBlock, zone *time.Location, k *Kind) (*ruleset, error) {
	rules, err := c.rules(limits, zone, k)
	if err != nil {
		return nil, err
	}
	s := &ruleset{group: group, rules: rules}
	for i := range models {
		b, err := c.block(&models[i], s.blocks, zone, k)
		if err != nil {
			return nil, within(fmt.Sprintf("models[%d]", i), err)
		}
		s.blocks = append(s.blocks, b)
	}
	return s, nil
}

// rules compiles a list of limits, in which none may stand twice.
func (c *Config) rules(limits []Rule, zone *time.Location, k *Kind) ([]*rule, error) {
	rules := make([]*rule, 0, len(limits))
	seen := make(map[string]bool)
	for i := range limits {
		r, err := limits[i].compile(zone, k)
		if err != nil {
			return nil, within(fmt.Sprintf("limits[%d]", i), err)
		}
		if seen[r.store.ID] {
			return nil, within(fmt.Sprintf("limits[%d]", i), fmt.Errorf("a limit of %s stands here twice", r.words))
		}
		seen[r.store.ID] = true
		r.shadow = r.shadow || c.Shadow
		rules = append(rules, r)
	}
	return rules, nil
}
