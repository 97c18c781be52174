package llmusage

import (
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

func init() {
	httpcaddyfile.RegisterDirective("llm_usage", parseCaddyfile)
}

func parseCaddyfile(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	matchers, err := matchersOf(h)
	if err != nil {
		return nil, err
	}
	u := new(Handler)
	if err := u.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return h.NewRoute(matchers, u), nil
}

// matchersOf takes out the matcher. A path is none, as it would be of other directives: it
// says where the handler answers.
func matchersOf(h httpcaddyfile.Helper) (matchers caddy.ModuleMap, err error) {
	h.Next() // the directive's name
	word := ""
	if h.NextArg() {
		word = h.Val()
		h.Prev()
	}
	if word == "*" || strings.HasPrefix(word, "@") {
		if matchers, err = h.ExtractMatcherSet(); err != nil {
			return nil, h.WrapErr(err)
		}
		return matchers, nil
	}
	h.Reset()
	return nil, nil
}

// UnmarshalCaddyfile reads the handler. Syntax:
//
//	llm_usage [<matcher>] [<path>] {
//		instances <id>...
//	}
//
// The matcher is a named one, or `*`.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	if d.NextArg() {
		h.Path = d.Val()
		if err := checkPath(h.Path); err != nil {
			return d.WrapErr(err)
		}
		if d.NextArg() {
			return d.Errf("unexpected '%s': llm_usage takes one path", d.Val())
		}
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		if d.Val() != "instances" {
			return d.Errf("unrecognized subdirective '%s'", d.Val())
		}
		if len(h.Instances) > 0 {
			return d.Err("instances already specified")
		}
		if h.Instances = d.RemainingArgs(); len(h.Instances) == 0 {
			return d.ArgErr()
		}
		if err := h.check(); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
