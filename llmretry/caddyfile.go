package llmretry

import (
	"strconv"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("llm_retry", parseCaddyfile)
}

// parseCaddyfile reads the handler. Syntax:
//
//	llm_retry [<matcher>] {
//		attempts <n>
//		on       <status>...
//		max_wait <duration>
//		fallback [<model>] {
//			<directives>
//		}
//		breaker  <failures> per <duration> [open <duration>]
//	}
//
// `fallback` may be repeated; one with a model needs no block.
func parseCaddyfile(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h, d := new(Handler), helper.Dispenser
	d.Next() // the directive's name
	if d.NextArg() {
		return nil, d.Errf("unexpected '%s': llm_retry has no name", d.Val())
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] && word != "fallback" {
			return nil, d.Errf("%s already specified", word)
		}
		seen[word] = true
		if word == "fallback" {
			if err := h.unmarshalFallback(helper); err != nil {
				return nil, err
			}
			continue
		}
		if err := h.unmarshal(d, word); err != nil {
			return nil, err
		}
		if err := h.check(); err != nil {
			return nil, d.WrapErr(err)
		}
	}
	return h, nil
}

// unmarshal reads one line.
func (h *Handler) unmarshal(d *caddyfile.Dispenser, word string) error {
	args := d.RemainingArgs()
	switch word {
	case "attempts":
		if len(args) != 1 {
			return d.ArgErr()
		}
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 {
			return d.Errf("attempts '%s' is not a number from 1 to %d", args[0], mostAttempts)
		}
		h.Attempts = n
	case "on":
		if len(args) == 0 {
			return d.ArgErr()
		}
		for _, arg := range args {
			status, err := strconv.Atoi(arg)
			if err != nil {
				return d.Errf("on: '%s' is not a status from 400 to 599", arg)
			}
			h.On = append(h.On, status)
		}
	case "max_wait":
		if len(args) != 1 {
			return d.ArgErr()
		}
		var err error
		if h.MaxWait, err = duration(d, word, args[0]); err != nil {
			return err
		}
	case "breaker":
		return h.unmarshalBreaker(d, args)
	default:
		return d.Errf("unrecognized subdirective '%s'", word)
	}
	return nil
}

// unmarshalBreaker reads the arguments of breaker.
func (h *Handler) unmarshalBreaker(d *caddyfile.Dispenser, args []string) (err error) {
	if len(args) != 3 && len(args) != 5 || args[1] != "per" || len(args) == 5 && args[3] != "open" {
		return d.Err("breaker takes `<failures> per <duration> [open <duration>]`")
	}
	b := new(Breaker)
	if b.Failures, err = strconv.Atoi(args[0]); err != nil {
		return d.Errf("breaker: '%s' is not a number", args[0])
	}
	if b.Per, err = duration(d, "breaker", args[2]); err != nil {
		return err
	}
	if len(args) == 5 {
		if b.Open, err = duration(d, "breaker", args[4]); err != nil {
			return err
		}
	}
	h.Breaker = b
	return nil
}

// duration reads a duration greater than zero.
func duration(d *caddyfile.Dispenser, word, s string) (caddy.Duration, error) {
	n, err := caddy.ParseDuration(s)
	if err != nil {
		return 0, d.Errf("%s: '%s' is not a duration", word, s)
	}
	if n <= 0 {
		return 0, d.Errf("%s: %s must be greater than zero", word, n)
	}
	return caddy.Duration(n), nil
}

// unmarshalFallback reads a model and a block of directives.
func (h *Handler) unmarshalFallback(helper httpcaddyfile.Helper) error {
	d := helper.NewFromNextSegment()
	d.Next() // fallback
	start := *d
	f := new(Fallback)
	if d.NextArg() {
		f.Model = d.Val()
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	handler, err := httpcaddyfile.ParseSegmentAsSubroute(helper.WithDispenser(d.NewFromNextSegment()))
	if err != nil {
		return err
	}
	if sub, ok := handler.(*caddyhttp.Subroute); ok {
		f.Routes = sub.Routes
	}
	if f.Model == "" && len(f.Routes) == 0 {
		return start.Err("fallback needs a model or directives, or it would be the same again")
	}
	h.Fallbacks = append(h.Fallbacks, f)
	return nil
}
