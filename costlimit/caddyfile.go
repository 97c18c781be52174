package costlimit

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
)

func init() {
	httpcaddyfile.RegisterHandlerDirective("cost_limit", parseCaddyfile)
}

func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	c := new(Handler)
	if err := c.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return c, c.Tag(h)
}

// UnmarshalCaddyfile reads the handler. Syntax:
//
//	cost_limit [<matcher>] [<name>] {
//		consumer_based
//		key       <placeholder>...
//		limit     $<amount> per <window> [burst $<amount>] [shadow]
//		model <glob>... {
//			limit …
//			per_model
//			type <word>
//		}
//		unlisted  deny | allow
//		group <name> {
//			limit …
//			model …
//		}
//		groups {
//			<group> <application>...
//		}
//		group_key     <placeholder>
//		default_group <name>
//		share     <pool>
//		mode      charge_after | reserve | strict
//		timezone  <IANA name>
//		unmetered deny | allow
//		headers   on | off
//		reject    <status> [<message>]
//		errors
//		shadow
//	}
//
// A window is minute, hour, day, week or month, a duration, or `rolling <duration>`.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return h.Config.UnmarshalCaddyfile(d, limit.CostLimit)
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
