// Package costlimit is the handler cost_limit: budgets in dollars, for a route and for
// each of its consumers.
package costlimit

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/pricing"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler limits what calls cost. A call is admitted if it fits in all budgets; what it
// really cost is charged when it has ended, to the picodollar. A call that does not fit
// is answered with 429 and costs nothing.
//
// What a call costs is said by the llm_cost of its route, which may stand before or
// behind this handler. Without one it is the built-in table, and a call of a model that
// the table does not have is answered with 400 `model_not_priced`.
//
// Amounts begin with a dollar sign, go up to $1_000_000 and down to a picodollar. The
// unit of its rules is `usd`; `usage_fields` is refused, for it does not tell input from
// output.
//
// The placeholders `{http.llm.refusal.*}` are those of token_limit; `limit` and `used`
// are decimal dollars.
type Handler struct {
	limit.Config

	limiter *limit.Limiter
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.cost_limit", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the rules and makes the instance known.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	h.limiter, err = limit.Provision(ctx, &h.Config, limit.CostLimit, pricing.Default())
	if err != nil {
		return err
	}
	h.limiter.App().OnStart(pricing.AnnounceBuiltin)
	return nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.limiter.ServeHTTP(w, r, next)
}

// Instance is the limiter as the llm app knows it.
func (h *Handler) Instance() llmapp.Instance { return h.limiter }

// LLMRole tells the llm app what the handler does in a route.
func (h *Handler) LLMRole() string { return string(h.limiter.Role()) }

// LookAhead takes from the llm app what calls will come to further in: handlers that say
// what they cost, and the upstream.
func (h *Handler) LookAhead(a llmapp.Ahead) { h.limiter.LookAhead(a) }

// UnknownPlaceholders are those of the key that are not Caddy's own.
func (h *Handler) UnknownPlaceholders() []string { return h.limiter.UnknownPlaceholders() }

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ llmapp.Lookout              = (*Handler)(nil)
)
