package tokenlimit

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
)

const directive = "token_limit"

func init() {
	httpcaddyfile.RegisterHandlerDirective(directive, parseCaddyfile)
}

func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	t := new(Handler)
	if err := t.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return t, t.Tag(h)
}

// UnmarshalCaddyfile reads the handler. Syntax:
//
//	token_limit [<matcher>] [<name>] {
//		consumer_based
//		key          <placeholder>...
//		limit        <amount> <unit> per <window> [burst <n>] [shadow]
//		limit        <n> concurrent [shadow]
//		model <glob>... {
//			limit …
//			per_model
//			type <word>
//		}
//		unlisted     deny | allow
//		group <name> {
//			limit …
//			model …
//		}
//		groups {
//			<group> <application>...
//		}
//		group_key     <placeholder>
//		default_group <name>
//		share        <pool>
//		mode         charge_after | reserve | strict
//		timezone     <IANA name>
//		usage_fields <path>...
//		unmetered    deny | allow
//		headers      on | off
//		reject       <status> [<message>]
//		errors
//		shadow
//	}
//
// A unit is requests, tokens, input_tokens, output_tokens, uncached_tokens, images,
// audio_seconds or video_seconds. A window is minute, hour, day, week or month, a duration, or `rolling <duration>`. A
// path is member names joined by dots, and # for every element of an array.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return h.Config.UnmarshalCaddyfile(d, limit.TokenLimit)
}

// Interface guards
var _ caddyfile.Unmarshaler = (*Handler)(nil)
