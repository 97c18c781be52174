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
	limits int  // how many
	models bool // whether a model block with limits is among them
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
	if ls[tokens].limits == 0 && ls[cost].limits == 0 {
		return nil, d.Errf("%s needs at least one limit, such as `limit 10k tokens per hour` or `limit $10 per day`", s)
	}
	return ls, nil
}

// sortBlock sorts the lines of a block, of which each kind gets the first line and the
// braces. Blocks within it are sorted like it.
func sortBlock(block caddyfile.Segment) (sorted, error) {
	ls := sorted{tokens: {}, cost: {}}
	d := caddyfile.NewDispenser(block)
	d.Next()
	head := 1
	for d.NextArg() {
		head++
	}
	ls.giveAll(block[:min(head+1, len(block))]) // with the opening brace
	var later []caddyfile.Segment
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
			ls[k].give(line)
			ls[k].limits++
		case "model", "group":
			if err := ls.block(word, line); err != nil {
				return nil, err
			}
		case "unlisted", "usage_fields":
			later = append(later, line)
		default:
			ls.giveAll(line)
		}
	}
	for _, line := range later {
		ls.giveSome(line)
	}
	if head < len(block) {
		ls.giveAll(block[len(block)-1:])
	}
	return ls, nil
}

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

// block sorts the lines of a block within the block. A model block goes to the kinds that
// it has limits of: each instance knows its own. A group goes to both, for it replaces the
// limits of both, be it by none.
func (ls sorted) block(word string, block caddyfile.Segment) error {
	inner, err := sortBlock(block)
	if err != nil {
		return err
	}
	some := inner[tokens].limits+inner[cost].limits > 0
	for k, in := range inner {
		if word == "model" && some && in.limits == 0 {
			continue
		}
		l := ls[k]
		l.give(in.tokens)
		l.limits += in.limits
		l.models = l.models || in.models || word == "model" && in.limits > 0
	}
	return nil
}

// giveSome adds a line that makes sense to some kinds of instances alone. Where it makes
// sense to none it goes to one that says so.
func (ls sorted) giveSome(line caddyfile.Segment) {
	if line[0].Text == "unlisted" && (ls[tokens].models || ls[cost].models) {
		for _, l := range ls {
			if l.models {
				l.give(line)
			}
		}
		return
	}
	if ls[tokens].limits > 0 {
		ls[tokens].give(line)
		return
	}
	ls[cost].give(line)
}

func (ls sorted) giveAll(line caddyfile.Segment) {
	for _, l := range ls {
		l.give(line)
	}
}

func (l *lines) give(line caddyfile.Segment) { l.tokens = append(l.tokens, line...) }
