package apikeyauth

import (
	"errors"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("api_key_auth", parseCaddyfile)
}

func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	var a Handler
	err := a.UnmarshalCaddyfile(h.Dispenser)
	return &a, err
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler. Syntax:
//
//	api_key_auth [<matcher>] {
//		key <id> <sha256:hex> {
//			application <app>
//			group <name>
//			models <glob>... | none
//			expires <date | RFC 3339>
//		}
//		keys_file <path>
//		keys_store
//		key_cache <duration>
//		header <name> [<prefix>]
//		query <name>
//		optional {
//			group <name>
//			models <glob>... | none
//		}
//	}
//
// The hash of a key may be a placeholder such as {env.KEY_HASH}. Where a header or a
// query is given, keys stand there and no longer in the default places
// (Authorization with Bearer, X-Api-Key, Api-Key, X-Goog-Api-Key).
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // consume the directive's name
	start, cache := *d, *d
	if d.NextArg() {
		// not repeated: it may be a key that was meant for the block
		return d.Err("api_key_auth takes no arguments; what it does is said in its block")
	}
	x := newIndexer(0)
	for d.NextBlock(0) {
		var err error
		switch word := d.Val(); word {
		case "key":
			err = h.unmarshalKey(d, x)
		case "keys_file":
			err = unmarshalString(d, &h.KeysFile)
		case "keys_store":
			err = h.unmarshalKeysStore(d)
		case "key_cache":
			cache = *d
			err = h.unmarshalKeyCache(d)
		case "header":
			err = h.unmarshalHeader(d)
		case "query":
			err = h.unmarshalQuery(d)
		case "optional":
			err = h.unmarshalOptional(d)
		default:
			err = d.Errf("unrecognized subdirective '%s'", word)
		}
		if err != nil {
			return err
		}
	}
	if err := h.Validate(); err != nil {
		return start.WrapErr(err)
	}
	return wrap(&cache, h.checkKeyCache())
}

// errKeyArgs does not repeat the arguments: one of them may be a key.
var errKeyArgs = errors.New("key takes an id and the key's hash: key <id> sha256:<64 hex digits>")

// unmarshalKey reads a key. The indexer holds the keys before it.
func (h *Handler) unmarshalKey(d *caddyfile.Dispenser, x *indexer) error {
	args := d.RemainingArgs()
	if len(args) != 2 {
		return d.WrapErr(errKeyArgs)
	}
	k := Key{ID: args[0], Hash: args[1]}
	// before the block is read, so that an error names the line of the hash
	if err := x.addLiteral(&k, origin{pos: len(h.Keys)}); err != nil {
		return d.WrapErr(err)
	}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var err error
		switch word := d.Val(); word {
		case "application":
			if err = unmarshalString(d, &k.Application); err == nil {
				err = wrap(d, checkApplication(k.Application))
			}
		case "group":
			err = unmarshalGroup(d, &k.Group)
		case "models":
			err = unmarshalModels(d, &k.Models)
		case "expires":
			if err = unmarshalString(d, &k.Expires); err == nil {
				_, err = parseTime("expires", k.Expires)
				err = wrap(d, err)
			}
		default:
			err = d.Errf("unrecognized subdirective '%s'", word)
		}
		if err != nil {
			return err
		}
	}
	h.Keys = append(h.Keys, k)
	return nil
}

func (h *Handler) unmarshalKeysStore(d *caddyfile.Dispenser) error {
	if h.KeysStore {
		return d.Err("keys_store already specified")
	}
	if d.NextArg() {
		return d.Err("keys_store takes no arguments: the store is that of the llm option")
	}
	h.KeysStore = true
	return nil
}

func (h *Handler) unmarshalKeyCache(d *caddyfile.Dispenser) error {
	if h.KeyCache != 0 {
		return d.Err("key_cache already specified")
	}
	var text string
	if err := unmarshalString(d, &text); err != nil {
		return err
	}
	cache, err := caddy.ParseDuration(text)
	if err != nil || cache < leastKeyCache {
		return d.Errf("key_cache must be a duration of at least %s, such as 10m, not %q", leastKeyCache, text)
	}
	h.KeyCache = caddy.Duration(cache)
	return nil
}

func (h *Handler) unmarshalHeader(d *caddyfile.Dispenser) error {
	var place HeaderPlace
	switch args := d.RemainingArgs(); len(args) {
	case 2:
		place.Prefix = args[1]
		fallthrough
	case 1:
		place.Name = args[0]
	default:
		return d.Err("header takes a name and, where one comes before the key, a prefix")
	}
	h.Headers = append(h.Headers, place)
	_, err := newPlaces(h.Headers, nil)
	return wrap(d, err)
}

func (h *Handler) unmarshalQuery(d *caddyfile.Dispenser) error {
	var name string
	if err := unmarshalString(d, &name); err != nil {
		return err
	}
	h.Query = append(h.Query, name)
	_, err := newPlaces(nil, h.Query)
	return wrap(d, err)
}

func (h *Handler) unmarshalOptional(d *caddyfile.Dispenser) error {
	if h.Optional != nil {
		return d.Err("optional already specified")
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	h.Optional = new(Anonymous)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		var err error
		switch word := d.Val(); word {
		case "group":
			err = unmarshalGroup(d, &h.Optional.Group)
		case "models":
			err = unmarshalModels(d, &h.Optional.Models)
		default:
			err = d.Errf("unrecognized subdirective '%s'", word)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmarshalString reads the one argument of a subdirective that may stand once.
func unmarshalString(d *caddyfile.Dispenser, to *string) error {
	word := d.Val()
	if *to != "" {
		return d.Errf("%s already specified", word)
	}
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("%s takes one argument", word)
	}
	if args[0] == "" {
		return d.Errf("%s must not be empty", word)
	}
	*to = args[0]
	return nil
}

func unmarshalGroup(d *caddyfile.Dispenser, to *string) error {
	if err := unmarshalString(d, to); err != nil {
		return err
	}
	return wrap(d, checkName("group", *to))
}

func unmarshalModels(d *caddyfile.Dispenser, to *Models) error {
	if *to != nil {
		return d.Err("models already specified")
	}
	*to = append(Models{}, d.RemainingArgs()...)
	_, err := to.compile()
	return wrap(d, err)
}

// wrap is WrapErr for errors that may be nil.
func wrap(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)
