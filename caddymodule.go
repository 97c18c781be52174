// Package llmlimits registers the Caddy modules of this repository, so that the
// one import that xcaddy writes is enough. It has no API of its own.
//
// The modules are:
//
//   - http.handlers.api_key_auth: who calls, by API key;
//   - http.handlers.llm_usage: what callers have used, for themselves;
//   - http.handlers.llm_cost: what calls cost;
//   - http.handlers.token_limit: how much they may use;
//   - http.handlers.cost_limit: how much they may spend;
//   - http.handlers.llm_retry: what becomes of calls that fail upstream;
//   - http.matchers.llm_resource: calls by path, however it is spelled;
//   - llm: the app that holds the counters both share, with its global option
//     of the same name;
//   - admin.api.llm: the use of everybody, at the admin endpoint;
//   - admin.api.llm_keys: the keys that are issued at run time, there too, for which
//     there is the command llm-key.
//
// The Caddyfile has a directive more, llm_limits, which stands for several handlers. The
// command llm-ui serves the operator's page.
package llmlimits

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	// The modules register themselves when they are imported.
	_ "github.com/llmlimits/caddy-llm-limits/apikeyauth"
	_ "github.com/llmlimits/caddy-llm-limits/costlimit"
	_ "github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	_ "github.com/llmlimits/caddy-llm-limits/llmcost"
	_ "github.com/llmlimits/caddy-llm-limits/llmlimits"
	_ "github.com/llmlimits/caddy-llm-limits/llmretry"
	_ "github.com/llmlimits/caddy-llm-limits/llmui"
	_ "github.com/llmlimits/caddy-llm-limits/llmusage"
	_ "github.com/llmlimits/caddy-llm-limits/tokenlimit"
)

// orderedDirectives are the directives that handle requests, the outermost
// first.
var orderedDirectives = []string{
	"api_key_auth",
	"llm_usage",
	"llm_cost",
	"token_limit",
	"cost_limit",
	"llm_limits",
	"llm_retry",
}

// init gives the directives their place, so that nobody has to write an order
// option. They stand before invoke, the first directive that may dispatch to an
// upstream: whatever answers is metered, a named route too. encode stands
// further out, so that what is metered is what the upstream sent.
//
// All are registered here and nowhere else. Each goes to the place directly
// before invoke, thus after those before it, whereas the order in which the
// packages of this repository initialize is a matter of their names.
func init() {
	for _, dir := range orderedDirectives {
		httpcaddyfile.RegisterDirectiveOrder(dir, httpcaddyfile.Before, "invoke")
	}
}
