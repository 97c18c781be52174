package llmlimits

import (
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// lines are those of a block that one kind of instance gets to read. It reads them as it
// reads those of its own directive: what can be written in one can be written in the
// other, and means the same.
type lines struct {
	tokens caddyfile.Segment
	limits int               // how many
	lacks  caddyfile.Segment // a group that has limits, but none of this kind
}

// sorted are the lines of a block by the kind of instance that they are for.
type sorted map[kind]*lines

// notHere says why lines of the limiters have no place in a block.
var notHere = map[string]string{
	"consumer_based": "`consumer` counts by application and `backend` all callers together, always",
	"key":            "`consumer` counts by application and `backend` all callers together; to count by anything else write a token_limit or cost_limit",
	"share":          "each instance of a block counts by itself; to count together write a token_limit or cost_limit",
}

// sortLines sorts the lines of the block of a side.
func sortLines(block caddyfile.Segment, s side) (sorted, error) {
	d := caddyfile.NewDispenser(block)
	d.Next() // the side
	if d.NextArg() {
		return nil, d.Errf("unexpected '%s' after %s", d.Val(), s)
	}
	ls, err := sortBlock(block)
	if err != nil {
		return nil, err
	}
	if ls.limits() == 0 {
		return nil, d.Errf("%s needs at least one limit, such as `limit 10k tokens per hour` or `limit $10 per day`", s)
	}
	for _, k := range []kind{tokens, cost} {
		if l := ls[k]; l.limits > 0 && len(l.lacks) > 0 {
			d := caddyfile.NewDispenser(l.lacks)
			d.Next()
			return nil, d.Errf("%s has no limit of %s, and the others here do not hold for it: its members could use any amount; say a limit, be it a large one", words(l.lacks), k.what)
		}
	}
	return ls, nil
}

// sortBlock sorts the lines of a block, of which each kind gets the first line and the
// braces. Blocks within it are sorted like it.
func sortBlock(block caddyfile.Segment) (sorted, error) {
	d := caddyfile.NewDispenser(block)
	d.Next()
	head := 1
	for d.NextArg() {
		head++
	}
	ls := sorted{tokens: {}, cost: {}}
	body := []share{whole(block[:min(head+1, len(block))])} // with the opening brace
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if why, ok := notHere[word]; ok {
			return nil, d.Errf("%s has no place here: %s", word, why)
		}
		line := d.NextSegment()
		switch word {
		case "limit":
			k, err := kindOf(d, line)
			if err != nil {
				return nil, err
			}
			ls[k].limits++
			body = append(body, share{k: line})
		case "model", "group":
			parts, err := ls.block(word, line)
			if err != nil {
				return nil, err
			}
			body = append(body, parts)
		default:
			body = append(body, whole(line))
		}
	}
	if head < len(block) {
		body = append(body, whole(block[len(block)-1:]))
	}
	for _, each := range body {
		for k, line := range each {
			if ls.fit(k, line) {
				ls[k].tokens = append(ls[k].tokens, line...)
			}
		}
	}
	return ls, nil
}

// share is what each kind of instance gets of a line, or of a block.
type share map[kind]caddyfile.Segment

func whole(line caddyfile.Segment) share { return share{tokens: line, cost: line} }

// kindOf is the kind of instance that a limit is for.
func kindOf(d *caddyfile.Dispenser, line caddyfile.Segment) (kind, error) {
	switch {
	case len(line) > 1 && strings.HasPrefix(line[1].Text, "$"):
		return cost, nil
	case len(line) > 2 && line[2].Text == "per":
		return kind{}, d.Errf("limit %s has no unit: write `limit %[1]s tokens %s`, or `limit $%[1]s %[2]s` for dollars", line[1].Text, words(line[2:]))
	}
	return tokens, nil
}

func words(line caddyfile.Segment) string {
	texts := make([]string, len(line))
	for i, t := range line {
		texts[i] = t.Text
	}
	return strings.Join(texts, " ")
}

// block sorts the lines of a block within the block. It goes to both kinds: a model belongs
// to the first block that names it, whichever kind it has limits of, and a group replaces
// the limits of both.
func (ls sorted) block(word string, block caddyfile.Segment) (share, error) {
	inner, err := sortBlock(block)
	if err != nil {
		return nil, err
	}
	parts := make(share)
	for k, in := range inner {
		if word == "group" && in.limits == 0 && inner.limits() > 0 {
			ls[k].lacks = block[:min(2, len(block))]
		}
		parts[k] = in.tokens
		ls[k].limits += in.limits
	}
	return parts, nil
}

// fit tells whether a line is for a kind of instance. One that would make sense to no
// instance of the block goes to all, of which the first says so.
func (ls sorted) fit(k kind, line caddyfile.Segment) bool {
	if line[0].Text == "usage_fields" { // tell nothing of dollars
		return k == tokens || ls[tokens].limits == 0
	}
	return true
}

// limits is how many there are.
func (ls sorted) limits() int { return ls[tokens].limits + ls[cost].limits }
