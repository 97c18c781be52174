// Package tokenlimit is the handler token_limit: limits of requests, tokens, images and
// seconds, for a route and for each of its consumers, groups and models.
package tokenlimit

import (
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler limits requests, tokens, images and seconds of audio and video. A call is admitted if it fits in all rules;
// what it really used, as the provider reports it, is charged when it has ended.
// A call that does not fit is answered with 429 and costs nothing.
//
// It sets these placeholders for error routes and `reject` messages:
//
// Placeholder | Description
// ------------|------------
// `{http.llm.refusal.instance}` | The instance that refused
// `{http.llm.refusal.status}` | The status of the answer
// `{http.llm.refusal.code}` | What is wrong, for programs: `rate_limit_exceeded`
// `{http.llm.refusal.message}` | What is wrong, for people
// `{http.llm.refusal.rule}` | The rule without its amount: `tokens per hour`
// `{http.llm.refusal.unit}` | Its unit
// `{http.llm.refusal.window}` | Its window
// `{http.llm.refusal.limit}` | Its amount, where the count is the caller's own
// `{http.llm.refusal.used}` | What is used of it, where the count is the caller's own
// `{http.llm.refusal.remaining}` | 0
// `{http.llm.refusal.reset}` | When it starts again, as RFC 3339
// `{http.llm.refusal.retry_after}` | Seconds to wait
type Handler struct {
	limit.Config

	limiter *limit.Limiter
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.token_limit", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the rules and makes the instance known.
func (h *Handler) Provision(ctx caddy.Context) (err error) {
	h.limiter, err = limit.Provision(ctx, &h.Config, limit.TokenLimit, nil)
	return err
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	return h.limiter.ServeHTTP(w, r, next)
}

// Instance is the limiter as the llm app knows it.
func (h *Handler) Instance() llmapp.Instance { return h.limiter }

// LLMRole tells the llm app what the handler does in a route.
func (h *Handler) LLMRole() string { return string(h.limiter.Role()) }

// UnknownPlaceholders are those of the key that are not Caddy's own.
func (h *Handler) UnknownPlaceholders() []string { return h.limiter.UnknownPlaceholders() }

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
