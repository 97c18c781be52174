package llmlimits

import (
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
)

// directive is the word that a Caddyfile has for a block, and the name of one that has
// no other.
const directive = "llm_limits"

func init() {
	httpcaddyfile.RegisterDirective(directive, parseCaddyfile)
}

// parseCaddyfile reads the directive. Syntax:
//
//	llm_limits [<matcher>] [<name>] {
//		consumer {
//			<lines of token_limit and cost_limit>
//		}
//		backend {
//			<lines of token_limit and cost_limit>
//		}
//		resource <path> {
//			consumer { … }
//			backend { … }
//		}
//	}
//
// `consumer` counts each application apart, `backend` all callers together. Limits in
// dollars, which begin with a dollar sign, go into a cost_limit, all others into a
// token_limit; other lines into both.
func parseCaddyfile(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	matcher, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	start := *h.Dispenser // before the directive's name
	c, err := readChain(h.Dispenser)
	if err != nil {
		return nil, err
	}
	start.Next()
	key := "llm.limits." + c.name
	if _, twice := h.State[key]; twice {
		return nil, start.Errf("two llm_limits are named '%s'; give each a name of its own", c.name)
	}
	h.State[key] = true

	handlers, err := c.handlers(h)
	if err != nil {
		return nil, err
	}
	route := caddyhttp.Route{HandlersRaw: handlers}
	if matcher != nil {
		route.MatcherSetsRaw = []caddy.ModuleMap{matcher}
	}
	return []httpcaddyfile.ConfigValue{{Class: "route", Value: route}}, nil
}

// readChain reads a block; the dispenser stands before the directive's name.
func readChain(d *caddyfile.Dispenser) (*chain, error) {
	d.Next() // the directive's name
	start := *d
	c := &chain{name: directive}
	if d.NextArg() {
		c.name = d.Val()
		if err := limit.CheckName(c.name); err != nil {
			return nil, d.WrapErr(err)
		}
		if d.NextArg() {
			return nil, d.ArgErr()
		}
	}
	c.top = make(limits)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if d.Val() != "resource" {
			if err := c.top.read(d, c.name, ""); err != nil {
				return nil, err
			}
			continue
		}
		if err := c.readResource(d); err != nil {
			return nil, err
		}
	}
	if len(c.top) == 0 && len(c.resources) == 0 {
		return nil, start.Errf("%s needs a `consumer` or a `backend` block", directive)
	}
	slices.SortStableFunc(c.resources, func(a, b resource) int { return a.path.compare(b.path) })
	return c, nil
}

// readResource reads the block of a path.
func (c *chain) readResource(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	start := *d
	p, err := parsePath(d.Val())
	if err != nil {
		return d.WrapErr(err)
	}
	for _, other := range c.resources {
		if err := p.conflict(other.path); err != nil {
			return d.WrapErr(err)
		}
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	r := resource{path: p, limits: make(limits)}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if err := r.read(d, c.name, p); err != nil {
			return err
		}
	}
	if len(r.limits) == 0 {
		return start.Errf("resource %s needs a `consumer` or a `backend` block", p)
	}
	c.resources = append(c.resources, r)
	return nil
}

// read reads the block of a side, on whose name the dispenser stands.
func (l limits) read(d *caddyfile.Dispenser, block string, p path) error {
	s := side(d.Val())
	if !slices.Contains(sides, s) {
		return d.Errf("unrecognized subdirective '%s'", d.Val())
	}
	if _, twice := l[s]; twice {
		return d.Errf("%s already specified", s)
	}
	ls, err := sortLines(d.NextSegment(), s)
	if err != nil {
		return err
	}
	for _, k := range []kind{tokens, cost} {
		if ls[k].limits == 0 {
			continue
		}
		c := &limit.Config{Name: instanceName(block, p, s, k), ConsumerBased: s == consumer}
		if err := c.UnmarshalCaddyfile(caddyfile.NewDispenser(ls[k].tokens), k.limiter); err != nil {
			return err
		}
		l[s] = append(l[s], instance{c, k})
	}
	return nil
}
