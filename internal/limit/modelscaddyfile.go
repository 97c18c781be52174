package limit

import (
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// model reads a block of rules for some models into those of a part; args are its globs:
//
//	model <glob>... {
//		limit …
//		per_model
//		type <word>
//	}
func (rd *reader) model(blocks *[]ModelBlock, around string, args []string) error {
	d, mb := rd.d, ModelBlock{Match: args}
	if err := mb.checkMatch(); err != nil {
		return d.WrapErr(err)
	}
	part := fmt.Sprintf("models[%d]", len(*blocks))
	rd.at.mark(around, part, d)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word, args := d.Val(), d.RemainingArgs()
		var err error
		switch word {
		case "limit":
			err = rd.limit(&mb.Limits, around+"/"+part, args)
		case "per_model":
			if len(args) > 0 {
				return d.ArgErr()
			}
			if mb.PerModel {
				return d.Errf("%s already specified", word)
			}
			mb.PerModel = true
		case "type":
			if len(args) != 1 {
				return d.ArgErr()
			}
			if mb.Type != "" {
				return d.Errf("%s already specified", word)
			}
			mb.Type = args[0]
			err = wrap(d, mb.checkType())
		default:
			err = d.Errf("unrecognized subdirective '%s' of model", word)
		}
		if err != nil {
			return err
		}
	}
	*blocks = append(*blocks, mb)
	return nil
}

// group reads the rules of a group; args are its name:
//
//	group <name> {
//		limit …
//		model …
//	}
//
// The lines of `groups` may have named its members already.
func (rd *reader) group(args []string) error {
	d := rd.d
	if len(args) != 1 {
		return d.ArgErr()
	}
	start, g := *d, Group{Name: args[0]}
	around := "/" + g.part()
	rd.at.mark("", g.part(), d)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word, args := d.Val(), d.RemainingArgs()
		var err error
		switch word {
		case "limit":
			err = rd.limit(&g.Limits, around, args)
		case "model":
			err = rd.model(&g.Models, around, args)
		default:
			err = d.Errf("unrecognized subdirective '%s' of group", word)
		}
		if err != nil {
			return err
		}
	}
	if err := g.check(rd.Groups); err != nil {
		return start.WrapErr(err)
	}
	rd.Groups = append(rd.Groups, g)
	return nil
}

// members is a line of `groups`, which may stand before the group's own.
type members struct {
	group        string
	applications []string
	at           caddyfile.Dispenser
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
		line := members{group: d.Val(), at: *d, applications: d.RemainingArgs()}
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
func (rd *reader) join(lines []members) error {
	for _, line := range lines {
		i := slices.IndexFunc(rd.Groups, func(g Group) bool { return g.Name == line.group })
		if i < 0 {
			return line.at.Errf("groups: there is no group '%s' here", line.group)
		}
		g := &rd.Groups[i]
		g.Applications = append(g.Applications, line.applications...)
		for _, app := range line.applications {
			rd.at.mark("", applicationPart(app), &line.at)
		}
	}
	return nil
}
