package limit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// reader reads the lines of a limiter.
type reader struct {
	*Config
	d  *caddyfile.Dispenser
	k  *Kind
	at places
}

// UnmarshalCaddyfile reads what all limiters have in common; the dispenser stands
// before the directive's name.
func (c *Config) UnmarshalCaddyfile(d *caddyfile.Dispenser, k *Kind) error {
	d.Next() // the directive's name
	start := *d
	if d.NextArg() {
		c.Name = d.Val()
		if err := checkName("name", c.Name); err != nil {
			return d.WrapErr(err)
		}
		if d.NextArg() {
			return d.ArgErr()
		}
	}
	rd := &reader{Config: c, d: d, k: k, at: make(places)}
	var joining []members
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] && word != "limit" && word != "model" && word != "group" {
			return d.Errf("%s already specified", word)
		}
		seen[word] = true
		rd.at.mark("", word, d)
		if word == "consumer_based" {
			rd.at.mark("", "key", d) // which it excludes: the later one is wrong
		}
		var err error
		if args := d.RemainingArgs(); word == "groups" {
			joining, err = unmarshalMembers(d, args)
		} else {
			err = rd.line(word, args)
		}
		if err != nil {
			return err
		}
	}
	if err := rd.join(joining); err != nil {
		return err
	}
	// what a line alone cannot show
	if _, err := c.compile(k); err != nil {
		return rd.at.wrap(start, err)
	}
	return nil
}

// CheckName checks the name of an instance, or what those of several begin with.
func CheckName(name string) error { return checkName("name", name) }

// limit reads a limit into the rules of a part; around is what they are part of.
func (rd *reader) limit(rules *[]Rule, around string, args []string) error {
	rule, err := parseRule(rd.d, rd.k, args)
	if err != nil {
		return err
	}
	rd.at.mark(around, fmt.Sprintf("limits[%d]", len(*rules)), rd.d)
	*rules = append(*rules, rule)
	return nil
}

// line reads one line.
func (rd *reader) line(word string, args []string) error {
	c, d := rd.Config, rd.d
	switch word {
	case "limit":
		return rd.limit(&c.Limits, "", args)
	case "model":
		return rd.model(&c.Models, "", args)
	case "group":
		return rd.group(args)
	case "key":
		if len(args) == 0 {
			return d.ArgErr()
		}
		c.Key = args
		return wrap(d, checkKey(args))
	case "usage_fields":
		if len(args) == 0 {
			return d.ArgErr()
		}
		c.UsageFields = args
		if _, err := usage.NewFields(args); err != nil {
			return d.WrapErr(fmt.Errorf("usage_fields: %w", err))
		}
		return nil
	case "reject":
		if len(args) == 0 || len(args) > 2 {
			return d.ArgErr()
		}
		status, err := strconv.Atoi(args[0])
		if err != nil || status < 400 || status > 599 {
			return d.Errf("reject status '%s' is not between 400 and 599", args[0])
		}
		c.Reject = &Reject{Status: status}
		if len(args) == 2 {
			c.Reject.Message = args[1]
		}
		return nil
	}

	flag := map[string]*bool{"consumer_based": &c.ConsumerBased, "errors": &c.Errors, "shadow": &c.Shadow}[word]
	if flag != nil {
		if len(args) > 0 {
			return d.ArgErr()
		}
		*flag = true
		return nil
	}

	if len(args) != 1 && slices.Contains([]string{"share", "mode", "timezone", "unmetered", "headers", "unlisted", "group_key", "default_group"}, word) {
		return d.ArgErr()
	}
	switch word {
	case "share":
		c.Share = args[0]
		return wrap(d, checkName("share", c.Share))
	case "mode":
		c.Mode = Mode(args[0])
		return wrap(d, oneOf("mode", args[0], string(ChargeAfter), string(Reserve), string(Strict)))
	case "timezone":
		c.Timezone = args[0]
		_, err := loadZone(args[0])
		return wrap(d, err)
	case "unmetered":
		c.Unmetered = args[0]
		return wrap(d, oneOf(word, args[0], "deny", "allow"))
	case "unlisted":
		c.Unlisted = args[0]
		return wrap(d, oneOf(word, args[0], "deny", "allow"))
	case "group_key":
		c.GroupKey = args[0]
		return wrap(d, checkKey(args))
	case "default_group":
		c.DefaultGroup = args[0]
		return wrap(d, checkName(word, args[0]))
	case "headers":
		c.Headers = args[0]
		return wrap(d, oneOf(word, args[0], "on", "off"))
	}
	return d.Errf("unrecognized subdirective '%s'", word)
}

// parseRule reads `<amount> <unit> per <window> [burst <n>] [shadow]` or
// `<n> concurrent [shadow]`; without a unit where dollars are counted.
func parseRule(d *caddyfile.Dispenser, k *Kind, args []string) (Rule, error) {
	if k.dollars() {
		if len(args) > 2 && args[1] != "per" && args[2] == "per" {
			return Rule{}, d.Errf("%s counts dollars, so that no unit is said: write `limit %s %s`", k.directive, args[0], strings.Join(args[2:], " "))
		}
		if len(args) < 2 {
			return Rule{}, d.Errf("limit needs an amount and a window, such as `%s`", k.example)
		}
		args = append([]string{args[0], string(USD)}, args[1:]...)
	}
	if len(args) < 2 {
		return Rule{}, d.Errf("limit needs an amount, a unit and a window, such as `limit 10k tokens per hour`")
	}
	r := Rule{Amount: args[0], Unit: Unit(args[1])}
	rest := args[2:]
	if r.Unit != Concurrent {
		if len(rest) < 2 || rest[0] != "per" {
			said := args[0]
			if !k.dollars() {
				said += " " + args[1]
			}
			return r, d.Errf("limit %s needs a window, such as `per hour`", said)
		}
		rest = rest[1:]
		if rest[0] == "rolling" {
			r.Rolling = true
			if rest = rest[1:]; len(rest) == 0 {
				return r, d.Err("rolling needs a duration, such as `rolling 1h`")
			}
		}
		r.Window, rest = rest[0], rest[1:]
		if len(rest) >= 2 && rest[0] == "burst" {
			r.Burst, rest = rest[1], rest[2:]
		}
	}
	if len(rest) > 0 && rest[0] == "shadow" {
		r.Shadow, rest = true, rest[1:]
	}
	if len(rest) > 0 {
		return r, d.Errf("unexpected '%s' in limit", strings.Join(rest, " "))
	}
	_, err := r.compile(nil, k)
	return r, wrap(d, err)
}

func wrap(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// Tag gives a named instance its name as `@id`, so that the admin API finds it by
// `/id/<name>`. A name that stands in a Caddyfile twice is refused, but for members
// of a pool, which have none.
func (c *Config) Tag(h httpcaddyfile.Helper) error {
	if c.Name == "" || c.Share != "" {
		return nil
	}
	key := "llm.instance." + c.Name
	if _, ok := h.State[key]; ok {
		d := *h.Dispenser
		d.Reset() // to the line of the directive
		d.Next()
		return d.Errf("the name '%s' stands here twice; instances that are to count together say `share %s`", c.Name, c.Name)
	}
	h.State[key] = true
	if strings.Contains(c.Name, "/") {
		return nil // no path under /id/ could name it
	}
	c.ID = c.Name
	return nil
}
