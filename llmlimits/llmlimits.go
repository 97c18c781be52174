// Package llmlimits is the Caddyfile directive llm_limits: the limits of a backend and
// of each of its consumers, in requests, tokens and dollars, from one block.
//
// It is no handler. The config that it is adapted to holds the handlers that somebody
// would write by hand: token_limit, cost_limit and llm_cost.
package llmlimits

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
)

// side is which of the two a limit is for.
type side string

// The sides, in the order in which calls pass them: one that its consumer's limits
// refuse must take nothing of what all callers share.
const (
	consumer side = "consumer"
	backend  side = "backend"
)

var sides = []side{consumer, backend}

// chain is what a block says.
type chain struct {
	name      string
	top       limits
	resources []resource
}

// resource is what a block says of a path.
type resource struct {
	path path
	limits
}

// limits are the instances of each side, in the order in which calls pass them.
type limits map[side][]instance

// instance is a limiter that a block expands to.
type instance struct {
	config *limit.Config
	kind   kind
}

// kind is what an instance counts.
type kind struct {
	handler string // the module that counts it
	suffix  string // of the instance's name
	what    string // is limited, in words
	limiter *limit.Kind
}

// The kinds of instances. Requests count with the tokens.
var (
	tokens = kind{"token_limit", "tokens", "requests or tokens", limit.TokenLimit}
	cost   = kind{"cost_limit", "cost", "dollars", limit.CostLimit}
)

var pathWords = strings.NewReplacer("/", ".", ".", "..")

// instanceName is the name of an instance. It depends on nothing but what the instance
// is for, so that counts stay with it whatever is edited beside it. Slashes of a path
// become dots, for no path below /id/ at the admin endpoint could name it otherwise, and
// dots become two, so that /v1/a.b is not /v1/a/b.
func instanceName(block string, p path, s side, k kind) string {
	parts := []string{block}
	if p != "" {
		parts = append(parts, pathWords.Replace(strings.TrimPrefix(string(p), "/")))
	}
	return strings.Join(append(parts, string(s), k.suffix), ".")
}

// handlers are the JSON of the handlers that a block expands to.
func (c *chain) handlers(h httpcaddyfile.Helper) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if c.spends() {
		all = append(all, caddyconfig.JSONModuleObject(struct{}{}, "handler", "llm_cost", nil))
	}
	var routes caddyhttp.RouteList
	for _, s := range sides {
		ofSide, err := c.routes(h, s)
		if err != nil {
			return nil, err
		}
		routes = append(routes, ofSide...)
	}
	if len(c.resources) == 0 {
		for _, r := range routes {
			all = append(all, r.HandlersRaw...)
		}
		return all, nil
	}
	sub := caddyhttp.Subroute{Routes: routes}
	return append(all, caddyconfig.JSONModuleObject(sub, "handler", "subroute", nil)), nil
}

// spends tells whether anything is limited in dollars.
func (c *chain) spends() bool {
	all := []limits{c.top}
	for _, r := range c.resources {
		all = append(all, r.limits)
	}
	for _, l := range all {
		for _, s := range sides {
			for _, in := range l[s] {
				if in.kind == cost {
					return true
				}
			}
		}
	}
	return false
}

// routes are those of one side, of which a call passes the first that matches: the most
// specific path that has limits of this side, else the top level.
func (c *chain) routes(h httpcaddyfile.Helper, s side) (caddyhttp.RouteList, error) {
	var values []httpcaddyfile.ConfigValue
	add := func(instances []instance, match []caddy.ModuleMap) error {
		if len(instances) == 0 {
			return nil
		}
		r := caddyhttp.Route{MatcherSetsRaw: match}
		for _, in := range instances {
			if err := in.config.Tag(h); err != nil {
				return err
			}
			r.HandlersRaw = append(r.HandlersRaw, caddyconfig.JSONModuleObject(in.config, "handler", in.kind.handler, nil))
		}
		values = append(values, httpcaddyfile.ConfigValue{Class: "route", Value: r})
		return nil
	}
	for _, r := range c.resources {
		if err := add(r.limits[s], []caddy.ModuleMap{{"llm_resource": h.JSON(MatchResource{string(r.path)})}}); err != nil {
			return nil, fmt.Errorf("resource %s: %w", r.path, err)
		}
	}
	if err := add(c.top[s], nil); err != nil {
		return nil, err
	}
	h.GroupRoutes(values)
	routes := make(caddyhttp.RouteList, 0, len(values))
	for _, v := range values {
		routes = append(routes, v.Value.(caddyhttp.Route))
	}
	return routes, nil
}
