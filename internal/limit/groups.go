package limit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// Group is the rules of some of the callers, in place of those at the top level. What is
// counted stays the caller's: who moves to another group keeps what has been used, and
// the same unit and window has the same count in all groups.
type Group struct {
	// Name is what group_key, default_group and keys call the group. Required.
	Name string `json:"name,omitempty"`
	// Applications are the members that the config names; where the instance counts by
	// one placeholder, values of that. Default: none.
	Applications []string `json:"applications,omitempty"`
	// Limits are the rules that count every call of a member.
	Limits []Rule `json:"limits,omitempty"`
	// Models are the rules that count calls of some models. There must be a limit here or
	// in Limits.
	Models []ModelBlock `json:"models,omitempty"`
}

// part is what errors call a group.
func (g *Group) part() string { return "group " + g.Name }

// applicationPart is the place of the line that puts an application into a group.
func applicationPart(app string) string { return "application " + app }

// check checks a group by itself, and that none of those before has its name.
func (g *Group) check(before []Group) error {
	switch {
	case g.Name == "":
		return errors.New("a group needs a name")
	case slices.ContainsFunc(before, func(b Group) bool { return b.Name == g.Name }):
		return fmt.Errorf("the group %q stands here twice", g.Name)
	case !limited(g.Limits, g.Models):
		return fmt.Errorf("group %q has no limit, so that its members would not be limited at all", g.Name)
	}
	return checkName("group", g.Name)
}

// limited tells whether there is any limit.
func limited(limits []Rule, models []ModelBlock) bool {
	return len(limits) > 0 || slices.ContainsFunc(models, func(mb ModelBlock) bool { return len(mb.Limits) > 0 })
}

// checkMembership checks what says who is in which group.
func (c *Config) checkMembership() error {
	if len(c.Groups) == 0 {
		err := errors.New("group_key and default_group need a group, such as `group gold { limit … }`")
		switch {
		case c.GroupKey != "":
			return at("group_key", err)
		case c.DefaultGroup != "":
			return at("default_group", err)
		}
	}
	if c.GroupKey != "" {
		if err := checkKey([]string{c.GroupKey}); err != nil {
			return at("group_key", fmt.Errorf("group_%w", err))
		}
	}
	if c.DefaultGroup != "" && !slices.ContainsFunc(c.Groups, func(g Group) bool { return g.Name == c.DefaultGroup }) {
		return at("default_group", fmt.Errorf("default_group %q is no group of this limiter", c.DefaultGroup))
	}
	in := make(map[string]string)
	for i := range c.Groups {
		for _, app := range c.Groups[i].Applications {
			if app == "" {
				return at(applicationPart(app), fmt.Errorf("group %s: an application has no name", c.Groups[i].Name))
			}
			if other, ok := in[app]; ok {
				return at(applicationPart(app), fmt.Errorf("application %q is in group %s and in group %s", app, other, c.Groups[i].Name))
			}
			in[app] = c.Groups[i].Name
		}
	}
	return nil
}

// membership is who is in which group.
type membership struct {
	byName   map[string]*ruleset
	members  map[string]*ruleset // by application, or by the value of the key
	key      []keyPart           // one, or none
	fallback *ruleset            // default_group, else the top level
}

func newMembership(c *Config, p *plan) membership {
	m := membership{byName: make(map[string]*ruleset), members: make(map[string]*ruleset), fallback: p.base}
	for i, set := range p.groups {
		m.byName[set.group] = set
		for _, app := range c.Groups[i].Applications {
			m.members[bounded(app)] = set
		}
		if set.group == c.DefaultGroup {
			m.fallback = set
		}
	}
	if c.GroupKey != "" {
		m.key = keyParts([]string{c.GroupKey})
	}
	return m
}

// caller is whose counters a call counts in, and by which rules.
type caller struct {
	consumer string
	set      *ruleset
	vars     meter.Vars // of the request
}

// caller finds out who calls, and tells the call which group that is.
func (l *Limiter) caller(r *http.Request, vars meter.Vars, call *meter.Call) (caller, error) {
	consumer, err := l.consumerBy(r, vars)
	if err != nil || len(l.membership.byName) == 0 {
		return caller{consumer, l.ruleset, vars}, err
	}
	set := l.find(r, consumer)
	call.Grouped(set.group)
	c := acquainted.of(store.Entity{Instance: l.id, Consumer: consumer})
	c.mu.Lock()
	c.group = set.group
	c.mu.Unlock()
	return caller{consumer, set, vars}, nil
}

// find is the rules of a caller: by the config, else by group_key, else by the group of
// the API key, else those of default_group.
func (l *Limiter) find(r *http.Request, consumer string) *ruleset {
	m := &l.membership
	if set := m.members[l.member(r, consumer)]; set != nil {
		return set
	}
	name := ""
	if len(m.key) > 0 {
		if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
			name = m.key[0].value(repl)
		}
	}
	if name == "" {
		name = bounded(meter.Var(r, meter.VarGroup))
	}
	if name == "" {
		return m.fallback
	}
	if set := m.byName[name]; set != nil {
		return set
	}
	l.often.log(l.logger, zap.WarnLevel, "a caller's group is none of this limiter; it counts by default_group or the top level", l.id,
		fmt.Errorf("group %q", name))
	return m.fallback
}

// member is by what the config names a caller: its application, or the value of the one
// placeholder that the instance counts by.
func (l *Limiter) member(r *http.Request, consumer string) string {
	if len(l.key) == 1 {
		return consumer
	}
	if app := bounded(meter.Var(r, meter.VarApplication)); app != "" {
		return app
	}
	return meter.DefaultConsumer
}

// setOf is the rules that an entity was last seen under, or those it would be.
func (l *Limiter) setOf(consumer string) *ruleset {
	m := &l.membership
	switch {
	case len(m.byName) == 0:
		return l.ruleset
	case l.shared: // by callers of all groups
		return m.fallback
	}
	if set := m.members[consumer]; set != nil {
		return set
	}
	if c := acquainted.look(store.Entity{Instance: l.id, Consumer: consumer}); c != nil {
		c.mu.Lock()
		group := c.group
		c.mu.Unlock()
		if group == "" {
			return l.ruleset
		}
		if set := m.byName[group]; set != nil {
			return set
		}
	}
	return m.fallback
}
