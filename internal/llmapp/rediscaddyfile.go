package llmapp

import (
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/llmlimits/caddy-llm-limits/store/outage"
)

// UnmarshalCaddyfile reads the options of the Redis store. Syntax:
//
//	store redis {
//		address   <host[:port]>...
//		cluster
//		sentinel  <master>
//		username  <name>
//		password  <password>
//		sentinel_username <name>
//		sentinel_password <password>
//		db        <n>
//		tls {
//			ca          <file>
//			cert        <file>
//			key         <file>
//			server_name <name>
//		}
//		prefix    <prefix>
//		timeout   <duration>
//		on_outage local | allow | deny
//		replicas  <n>
//		persist   <dir> | off
//	}
func (r *Redis) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	lines := make(map[string]caddyfile.Dispenser) // where each stands, the last of several
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] && word != "address" {
			return d.Errf("%s already specified", word)
		}
		seen[word], lines[word] = true, *d
		if word == "sentinel" {
			lines["cluster"] = *d // which it excludes: the later one is wrong
		}
		if err := r.unmarshalOption(d, word); err != nil {
			return err
		}
	}
	word, err := r.wrong()
	if at, ok := lines[word]; ok {
		d = &at
	}
	return wrap(d, err)
}

func (r *Redis) unmarshalOption(d *caddyfile.Dispenser, word string) error {
	switch word {
	case "address":
		addresses := d.RemainingArgs()
		if len(addresses) == 0 {
			return d.ArgErr()
		}
		r.Addresses = append(r.Addresses, addresses...)
		for _, a := range addresses {
			if strings.Contains(a, "{") {
				continue // a placeholder, whose value is checked when it is known
			}
			if _, err := hostPort(a, redisPort); err != nil {
				return d.WrapErr(err)
			}
		}
		return nil
	case "cluster":
		if d.NextArg() {
			return d.ArgErr()
		}
		r.Cluster = true
		return nil
	case "tls":
		if d.NextArg() {
			return d.ArgErr()
		}
		r.TLS = new(RedisTLS)
		return r.TLS.unmarshal(d)
	}
	if to := r.text(word); to != nil {
		return text(d, word, to)
	}
	switch word {
	case "db", "timeout", "replicas", "on_outage":
	default:
		return d.Errf("unrecognized subdirective '%s'", word)
	}
	arg, err := oneArg(d)
	if err != nil {
		return err
	}
	switch word {
	case "db":
		if r.DB, err = strconv.Atoi(arg); err != nil || r.DB < 0 {
			return d.Errf("db '%s' is not a whole number", arg)
		}
	case "timeout":
		t, err := caddy.ParseDuration(arg)
		if err != nil || t <= 0 {
			return d.Errf("timeout '%s' is not a duration such as 250ms", arg)
		}
		r.Timeout = caddy.Duration(t)
		return wrap(d, r.checkTimeout())
	case "replicas":
		if r.Replicas, err = strconv.Atoi(arg); err != nil || r.Replicas <= 0 {
			return d.Errf("replicas '%s' is not a whole number greater than zero", arg)
		}
	case "on_outage":
		r.OnOutage = arg
		_, err := outage.ParsePolicy(arg)
		return wrap(d, err)
	}
	return nil
}

// wrap says in which line an error is.
func wrap(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// text is the field of an option that is any text, nil if it is none.
func (r *Redis) text(word string) *string {
	switch word {
	case "sentinel":
		return &r.Sentinel
	case "username":
		return &r.Username
	case "password":
		return &r.Password
	case "sentinel_username":
		return &r.SentinelUsername
	case "sentinel_password":
		return &r.SentinelPassword
	case "prefix":
		return &r.Prefix
	case "persist":
		return &r.Persist
	default:
		return nil
	}
}

// text reads an argument that must not be empty.
func text(d *caddyfile.Dispenser, word string, to *string) (err error) {
	if *to, err = oneArg(d); err == nil && *to == "" {
		err = d.Errf("%s must not be empty", word)
	}
	return err
}

func (t *RedisTLS) unmarshal(d *caddyfile.Dispenser) error {
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if seen[word] {
			return d.Errf("%s already specified", word)
		}
		seen[word] = true
		to, ok := map[string]*string{"ca": &t.CA, "cert": &t.Cert, "key": &t.Key, "server_name": &t.ServerName}[word]
		if !ok {
			return d.Errf("unrecognized subdirective '%s'", word)
		}
		if err := text(d, word, to); err != nil {
			return err
		}
	}
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Redis)(nil)
