package limit

import (
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// unmarshalModel reads a block of rules for some models; args are its globs:
//
//	model <glob>... {
//		limit …
//		per_model
//		type <word>
//	}
func unmarshalModel(d *caddyfile.Dispenser, k *Kind, args []string) (mb ModelBlock, err error) {
	mb.Match = args
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word, args := d.Val(), d.RemainingArgs()
		switch word {
		case "limit":
			rule, err := parseRule(d, k, args)
			if err != nil {
				return mb, err
			}
			mb.Limits = append(mb.Limits, rule)
		case "per_model":
			if len(args) > 0 {
				return mb, d.ArgErr()
			}
			if mb.PerModel {
				return mb, d.Errf("%s already specified", word)
			}
			mb.PerModel = true
		case "type":
			if len(args) != 1 {
				return mb, d.ArgErr()
			}
			if mb.Type != "" {
				return mb, d.Errf("%s already specified", word)
			}
			mb.Type = args[0]
		default:
			return mb, d.Errf("unrecognized subdirective '%s' of model", word)
		}
	}
	return mb, wrap(d, mb.check())
}

// unmarshalGroup reads the rules of a group; args are its name:
//
//	group <name> {
//		limit …
//		model …
//	}
//
// The lines of `groups` may have named its members already.
func (c *Config) unmarshalGroup(d *caddyfile.Dispenser, k *Kind, args []string) error {
	if len(args) != 1 {
		return d.ArgErr()
	}
	g := Group{Name: args[0]}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word, args := d.Val(), d.RemainingArgs()
		switch word {
		case "limit":
			rule, err := parseRule(d, k, args)
			if err != nil {
				return err
			}
			g.Limits = append(g.Limits, rule)
		case "model":
			mb, err := unmarshalModel(d, k, args)
			if err != nil {
				return err
			}
			g.Models = append(g.Models, mb)
		default:
			return d.Errf("unrecognized subdirective '%s' of group", word)
		}
	}
	if err := g.check(c.Groups); err != nil {
		return d.WrapErr(err)
	}
	c.Groups = append(c.Groups, g)
	return nil
}

// members is a line of `groups`, which may stand before the group's own.
type members struct {
	group        string
	applications []string
	at           caddyfile.Token
}

// unmarshalMembers reads who is in which group:
//
//	groups {
//		<group> <application>...
//	}
func unmarshalMembers(d *caddyfile.Dispenser, args []string) (lines []members, err error) {
	if len(args) > 0 {
		return nil, d.ArgErr()
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		line := members{group: d.Val(), at: d.Token(), applications: d.RemainingArgs()}
		if len(line.applications) == 0 {
			return nil, d.ArgErr()
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil, d.Err("groups needs a line, such as `gold app-a app-b`")
	}
	return lines, nil
}

// join puts the members into their groups.
func (c *Config) join(d *caddyfile.Dispenser, lines []members) error {
	for _, line := range lines {
		i := slices.IndexFunc(c.Groups, func(g Group) bool { return g.Name == line.group })
		if i < 0 {
			return d.Errf("groups: there is no group '%s' here (line %d)", line.group, line.at.Line)
		}
		c.Groups[i].Applications = append(c.Groups[i].Applications, line.applications...)
	}
	return nil
}
