// Package llmcost is the handler llm_cost: what calls cost.
package llmcost

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/pricing"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler says what the calls that pass it cost, for the cost_limits of the route and for
// the log. A call is priced once, when it has ended, and before any limiter is charged.
// Where several llm_cost stand in its way, the innermost counts that says anything about
// prices: one without options prices by the built-in table what no other does. It does not
// matter whether limiters stand before it or behind it.
//
// It sets two variables when the response has ended:
//
// Placeholder | Description
// ------------|------------
// `{http.vars.x-llm-cost}` | The cost in USD, with 12 decimals; empty where the call is unpriced or refused
// `{http.vars.x-llm-cost-status}` | `calculated`, `reported` (by the provider), `estimated` or `unpriced`
type Handler struct {
	// Provider is whose prices apply, by LiteLLM's names of providers: `openai`,
	// `anthropic`, `azure`, `bedrock`, `vertex_ai`, `gemini`, … Default: told by the API
	// that is called, by the host and by the model.
	Provider string `json:"provider,omitempty"`

	// Prices are files and URLs of price tables, in LiteLLM's or genai-prices' JSON, over
	// the built-in one; of two that know a model the later counts. They are read again as
	// they change, and a copy that cannot be used leaves the one before in force. URLs are
	// fetched in the background, begin with https (or http on this machine), and the last
	// good copy of each is kept in Caddy's data directory. Default: none, which is the
	// built-in table.
	Prices []string `json:"prices,omitempty"`

	// Own are prices of the operator's, over all tables. Default: none.
	Own []Price `json:"price,omitempty"`

	// Alias names the models that stand behind names that no table knows, such as those of
	// deployments. Default: none.
	Alias map[string]string `json:"alias,omitempty"`

	// UnknownModel says what becomes of calls of a model without a price. Default:
	// `deny` where a cost_limit stands in the route, else `unpriced`.
	UnknownModel *UnknownModel `json:"unknown_model,omitempty"`

	pricer *pricing.Pricer
	tables *tables
	app    *llmapp.App
	ahead  atomic.Pointer[llmapp.Ahead]
}

// Price is what the models of a name cost.
type Price struct {
	// Match is a model's name, or several by `*`, which stands for any characters. A name
	// with more letters of its own counts before one with fewer. Required.
	Match string `json:"match"`
	// Rates are decimal strings by what they are for: `input`, `output`, `cache_read`, …
	// in USD per million tokens, `image` per image, `request` per call. Those that are
	// absent are as in the table. Required.
	Rates map[string]string `json:"rates"`
}

// UnknownModel says what becomes of calls of a model without a price.
type UnknownModel struct {
	// Policy is `unpriced`: the call passes, and its cost is absent; `deny`: it is
	// answered with 400; `zero`: it costs nothing; or `default`: it costs what Input and
	// Output say. Required.
	Policy string `json:"policy"`
	// Input and Output are decimal strings, in USD per million tokens. Required for
	// `default`, and for nothing else.
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
}

// id is by what answers and logs name the handler that refused.
const id = "llm_cost"

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.llm_cost", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the config and opens the tables. It reads files, and the copies of
// what was fetched before; the network is left alone until the config runs.
func (h *Handler) Provision(ctx caddy.Context) error {
	o, err := h.options()
	if err != nil {
		return fmt.Errorf("llm_cost: %w", err)
	}
	o.Logger = ctx.Logger()
	mod, err := ctx.App(llmapp.Name)
	if err != nil {
		return fmt.Errorf("loading llm app: %w", err)
	}
	h.app = mod.(*llmapp.App)
	if h.tables, err = openTables(h.Prices); err != nil {
		return fmt.Errorf("llm_cost: %w", err)
	}
	if err := h.check(h.tables.table(), &o, time.Now()); err != nil {
		return fmt.Errorf("llm_cost: %w", err)
	}
	h.app.AskUsage()
	h.app.OnStart(h.tables.start)
	o.Table = h.tables.table
	h.pricer, err = pricing.New(o)
	if err != nil {
		return fmt.Errorf("llm_cost: %w", err)
	}
	return nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	call := h.app.Meter().Call(r)
	call.Strip(r)
	f, err := limit.Inspect(r, call)
	if err != nil {
		call.Refused(r, id)
		return err
	}
	if f == nil && h.denies(call) {
		f = limit.ModelNotPriced()
	}
	if f != nil {
		call.Refused(r, id)
		metrics.Process.Refused(id, f.Code, false)
		f.Write(w, call.Endpoint.Dialect)
		return nil
	}
	call.Meter(r)
	if h.bare() {
		call.PriceByDefault(h.pricer)
	} else {
		call.Price(h.pricer)
	}
	return call.Serve(w, r, next)
}

// LookAhead takes from the llm app which upstream calls will come to.
func (h *Handler) LookAhead(a llmapp.Ahead) { h.ahead.Store(&a) }

// denies tells whether a call is to be refused since it has no price, here or further in.
func (h *Handler) denies(call *meter.Call) bool {
	own := meter.Pricer(h.pricer)
	if outer := call.Pricer(); h.bare() && outer != nil {
		own = outer // has the last word here
	}
	if !own.Denies(limit.Budgeted(call)) {
		return false
	}
	// Servers may start before the app that walks the routes.
	_ = h.app.Routes() // a config that is wrong is not going to run
	p, host := limit.Foresee(h.ahead.Load(), own)
	return !limit.Priceable(call, p, host)
}

// Cleanup gives the tables back.
func (h *Handler) Cleanup() error { return h.tables.close() }

// LLMRole tells the llm app what the handler does in a route.
func (*Handler) LLMRole() string { return string(llmapp.RolePricer) }

// Pricer says what calls cost; nil if that is not for this handler to say.
func (h *Handler) Pricer() meter.Pricer {
	if h.bare() {
		return nil
	}
	return h.pricer
}

// bare tells whether the handler has no options. The one that llm_limits brings has none,
// and must not take the place of prices that the operator has written further out.
func (h *Handler) bare() bool {
	return h.Provider == "" && len(h.Prices) == 0 && len(h.Own) == 0 && len(h.Alias) == 0 && h.UnknownModel == nil
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ llmapp.Lookout              = (*Handler)(nil)
)
