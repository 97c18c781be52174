package llmcost

import (
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/llmcost/prices"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("llm_cost", parseCaddyfile)
}

func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	c := new(Handler)
	return c, c.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile reads the handler. Syntax:
//
//	llm_cost [<matcher>] {
//		provider <name>
//		prices   <file | URL>...
//		price    <model> {
//			<field> <USD>
//		}
//		alias    <name> <model>
//		unknown_model unpriced | deny | zero | default <input> <output>
//	}
//
// `prices`, `price` and `alias` may be repeated. Prices are in USD per million tokens, or
// per image, request, second, page, query or search.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the directive's name
	start := *d
	if d.NextArg() {
		return d.Errf("unexpected '%s': llm_cost has no name", d.Val())
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] && (word == "provider" || word == "unknown_model") {
			return d.Errf("%s already specified", word)
		}
		seen[word] = true
		if err := h.unmarshal(d, word); err != nil {
			return err
		}
	}
	// what a line alone cannot show
	if _, err := h.options(); err != nil {
		return start.WrapErr(err)
	}
	return nil
}

// checkLine checks what stands here so far, but for the prices, each of which is checked
// with its block.
func (h *Handler) checkLine(d *caddyfile.Dispenser) error {
	so := Handler{Provider: h.Provider, Prices: h.Prices, Alias: h.Alias, UnknownModel: h.UnknownModel}
	if _, err := so.options(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// unmarshal reads one line, or a block.
func (h *Handler) unmarshal(d *caddyfile.Dispenser, word string) error {
	args := d.RemainingArgs()
	switch word {
	case "provider":
		if len(args) != 1 {
			return d.ArgErr()
		}
		h.Provider = args[0]
	case "prices":
		if len(args) == 0 {
			return d.ArgErr()
		}
		h.Prices = append(h.Prices, args...)
	case "price":
		if len(args) != 1 {
			return d.ArgErr()
		}
		return h.unmarshalPrice(d, args[0])
	case "alias":
		if len(args) != 2 {
			return d.ArgErr()
		}
		if _, twice := h.Alias[args[0]]; twice {
			return d.Errf("alias '%s' already specified", args[0])
		}
		for name := range h.Alias {
			if strings.EqualFold(name, args[0]) {
				return d.Errf("alias %q is given twice", args[0])
			}
		}
		if h.Alias == nil {
			h.Alias = make(map[string]string)
		}
		h.Alias[args[0]] = args[1]
	case "unknown_model":
		if len(args) == 0 || len(args) > 3 || args[0] == "default" && len(args) != 3 || args[0] != "default" && len(args) > 1 {
			return d.Errf("unknown_model takes unpriced, deny, zero or `default <input> <output>`, not '%s'", strings.Join(args, " "))
		}
		h.UnknownModel = &UnknownModel{Policy: args[0]}
		if len(args) == 3 {
			h.UnknownModel.Input, h.UnknownModel.Output = args[1], args[2]
		}
	default:
		return d.Errf("unrecognized subdirective '%s'", word)
	}
	return h.checkLine(d)
}

// unmarshalPrice reads the block of a price.
func (h *Handler) unmarshalPrice(d *caddyfile.Dispenser, match string) error {
	start, p := *d, Price{Match: match, Rates: make(map[string]string)}
	if _, err := prices.NewOwn(match); err != nil {
		return d.WrapErr(err)
	}
	if slices.ContainsFunc(h.Own, func(other Price) bool { return other.key() == p.key() }) {
		return d.Errf("price %q stands here twice", match)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		field := d.Val()
		args := d.RemainingArgs()
		if len(args) != 1 {
			return d.ArgErr()
		}
		if _, twice := p.Rates[field]; twice {
			return d.Errf("%s already specified", field)
		}
		p.Rates[field] = args[0]
		if _, err := p.own(); err != nil {
			return d.WrapErr(err)
		}
	}
	if _, err := p.own(); err != nil {
		return start.WrapErr(err)
	}
	h.Own = append(h.Own, p)
	return nil
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
