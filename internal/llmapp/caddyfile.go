package llmapp

import (
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/dustin/go-humanize"
)

func init() {
	httpcaddyfile.RegisterGlobalOption(Name, parseGlobal)
}

// parseGlobal reads the global option `llm`.
func parseGlobal(d *caddyfile.Dispenser, existing any) (any, error) {
	if existing != nil {
		return nil, d.Err("the llm option stands here twice")
	}
	a := new(App)
	if err := a.UnmarshalCaddyfile(d); err != nil {
		return nil, err
	}
	return httpcaddyfile.App{Name: Name, Value: caddyconfig.JSON(a, nil)}, nil
}

// UnmarshalCaddyfile reads the global option. The store may be another one, with
// options of its own. Syntax:
//
//	llm {
//		store memory {
//			persist      <dir> | off
//			max_entities <n>
//		}
//		meter {
//			max_body     <size>
//			max_buffered <size>
//			drain        <duration> | off
//			ask_usage    on | off
//			trust_duration <header>...
//			lease        <duration>
//		}
//	}
func (a *App) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the option's name
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] {
			return d.Errf("%s already specified", word)
		}
		seen[word] = true
		var err error
		switch word {
		case "store":
			err = a.unmarshalStore(d)
		case "meter":
			err = a.Meters.unmarshal(d)
		default:
			err = d.Errf("unrecognized subdirective '%s'", word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *App) unmarshalStore(d *caddyfile.Dispenser) error {
	if !d.NextArg() {
		return d.ArgErr()
	}
	kind := d.Val()
	mod, err := caddyfile.UnmarshalModule(d, "llm.stores."+kind)
	if err != nil {
		return err
	}
	a.StoreRaw = caddyconfig.JSONModuleObject(mod, "type", kind, nil)
	return nil
}

// UnmarshalCaddyfile reads the options of the memory store.
func (m *Memory) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	if d.NextArg() {
		return d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		switch word := d.Val(); word {
		case "persist":
			arg, err := oneArg(d)
			switch {
			case err != nil:
				return err
			case arg == "":
				return d.Err("persist '' is neither off nor a directory")
			case m.Persist != "":
				return d.Err("persist already specified")
			}
			m.Persist = arg
		case "max_entities":
			arg, err := oneArg(d)
			if err != nil {
				return err
			}
			if m.MaxEntities != 0 {
				return d.Err("max_entities already specified")
			}
			n, err := strconv.Atoi(strings.ReplaceAll(arg, "_", ""))
			if err != nil || n <= 0 {
				return d.Errf("max_entities '%s' is not a whole number greater than zero", arg)
			}
			m.MaxEntities = n
		default:
			return d.Errf("unrecognized subdirective '%s'", word)
		}
	}
	return nil
}

func (m *Meter) unmarshal(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] {
			return d.Errf("%s already specified", word)
		}
		seen[word] = true
		if word == "trust_duration" {
			if m.TrustDuration = d.RemainingArgs(); len(m.TrustDuration) == 0 {
				return d.ArgErr()
			}
			if err := m.check(); err != nil {
				return d.WrapErr(err)
			}
			continue
		}
		arg, err := oneArg(d)
		if err != nil {
			return err
		}
		switch word {
		case "max_body", "max_buffered":
			n, err := humanize.ParseBytes(arg)
			if err != nil || n == 0 || n > maxSize {
				return d.Errf("%s '%s' is not a size such as 64MiB", word, arg)
			}
			if word == "max_body" {
				m.MaxBody = int64(n)
			} else {
				m.MaxBuffered = int64(n)
			}
		case "drain":
			drain, err := caddy.ParseDuration(arg)
			switch {
			case arg == "off":
				drain = -1
			case err != nil || drain <= 0:
				return d.Errf("drain '%s' is neither off nor a duration such as 2s", arg)
			}
			m.Drain = caddy.Duration(drain)
		case "ask_usage":
			if arg != "on" && arg != "off" {
				return d.Errf("ask_usage '%s' is none of on, off", arg)
			}
			m.AskUsage = arg
		case "lease":
			l, err := caddy.ParseDuration(arg)
			if err != nil {
				return d.Errf("lease '%s' is not a duration such as 90s", arg)
			}
			m.Lease = caddy.Duration(l)
			if err := m.check(); err != nil {
				return d.WrapErr(err)
			}
		default:
			return d.Errf("unrecognized subdirective '%s'", word)
		}
	}
	return nil
}

func oneArg(d *caddyfile.Dispenser) (string, error) {
	if !d.NextArg() {
		return "", d.ArgErr()
	}
	arg := d.Val()
	if d.NextArg() {
		return "", d.ArgErr()
	}
	return arg, nil
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*App)(nil)
	_ caddyfile.Unmarshaler = (*Memory)(nil)
)
