// Package llmretry is the handler llm_retry: what becomes of a call when the provider
// pushes back.
package llmretry

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/sony/gobreaker/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler sends a call again when the provider has no room for it, and to other routes in
// the end. It does so only while nothing of an answer has reached the client, so that a
// stream never begins anew. It stands behind the limiters: a call is counted once, however
// often it is tried, with what all its attempts report.
//
// Retries are kept to a fifth of the calls that come, and one a second, so that a provider
// in trouble is not buried under them. Each fallback is tried once. If all fails, the
// client gets the provider's last answer.
type Handler struct {
	// Attempts is how often the route behind is tried, the first time included: 1 to 10.
	// Default: 3.
	Attempts int `json:"attempts,omitempty"`

	// On are the statuses, 400 to 599, that another attempt may change. That there was no
	// connection always is one; a connection that broke before the answer is 502, and an
	// answer that took too long 504. Default: 429, 500, 502, 503, 504 and 529.
	On []int `json:"on,omitempty"`

	// MaxWait is the longest wait before an attempt. A provider that asks for a longer one
	// is not tried again. Default: 10s.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// Fallbacks are tried then, in order. Default: none.
	Fallbacks []*Fallback `json:"fallback,omitempty"`

	// Breaker stops calls that are not going to succeed. Default: none.
	Breaker *Breaker `json:"breaker,omitempty"`

	app       *llmapp.App
	meter     *meter.Meter
	logger    *zap.Logger
	routes    []route // the one behind first
	budget    budget
	consumers consumers
}

// Fallback is another way for a call.
type Fallback struct {
	// Model is asked for in place of the client's. Default: the client's.
	Model string `json:"model,omitempty"`

	// Routes are what the call passes before the handlers behind llm_retry, which it does
	// not come to if one of the routes answers it. Default: none, which is another model of
	// the same upstream.
	Routes caddyhttp.RouteList `json:"routes,omitempty"`
}

// route is a way for a call.
type route struct {
	name    string
	model   string
	compile func(next caddyhttp.Handler) caddyhttp.Handler // nil for the one behind
	pricing bool                                           // a handler in routes says what calls cost
	breaker *shared                                        // nil if there is none
	warn    sync.Once
}

// Defaults and bounds.
const (
	defaultAttempts = 3
	mostAttempts    = 10
	defaultWait     = 10 * time.Second
)

var defaultOn = []int{429, 500, 502, 503, 504, statusOverloaded}

// id is by what answers, logs and metrics name the handler that refused.
const id = "llm_retry"

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.llm_retry", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the config and sets up the routes.
func (h *Handler) Provision(ctx caddy.Context) error {
	if err := h.init(); err != nil {
		return fmt.Errorf("llm_retry: %w", err)
	}
	h.logger = ctx.Logger()
	mod, err := ctx.App(llmapp.Name)
	if err != nil {
		return fmt.Errorf("loading llm app: %w", err)
	}
	h.app = mod.(*llmapp.App)
	h.meter = h.app.Meter()
	for i, f := range h.Fallbacks {
		if err := f.Routes.Provision(ctx); err != nil {
			return fmt.Errorf("llm_retry: fallback %d: %w", i+1, err)
		}
		h.routes[i+1].pricing = prices(f.Routes)
	}
	return nil
}

// init checks the config and fills in what it leaves out.
func (h *Handler) init() error {
	if err := h.check(); err != nil {
		return err
	}
	if h.Attempts == 0 {
		h.Attempts = defaultAttempts
	}
	if h.On == nil {
		h.On = slices.Clone(defaultOn)
	}
	if h.MaxWait == 0 {
		h.MaxWait = caddy.Duration(defaultWait)
	}
	h.routes = make([]route, 1+len(h.Fallbacks))
	h.routes[0].name = "primary"
	for i, f := range h.Fallbacks {
		ro := &h.routes[i+1]
		ro.name, ro.model, ro.compile = fmt.Sprintf("fallback %d", i+1), f.Model, f.Routes.Compile
	}
	if h.Breaker != nil {
		for i := range h.routes {
			ro := &h.routes[i]
			ro.breaker = newShared(h.Breaker, func(to gobreaker.State) { h.changed(ro, to) })
		}
	}
	h.budget.init(budgetFloor, budgetMost, time.Now())
	return nil
}

func (h *Handler) check() error {
	if h.Attempts < 0 || h.Attempts > mostAttempts {
		return fmt.Errorf("attempts %d is not a number from 1 to %d", h.Attempts, mostAttempts)
	}
	for i, status := range h.On {
		if status < 400 || status > 599 {
			return fmt.Errorf("on: %d is not a status from 400 to 599", status)
		}
		if slices.Contains(h.On[:i], status) {
			return fmt.Errorf("on: %d stands there twice", status)
		}
	}
	if h.MaxWait < 0 {
		return fmt.Errorf("max_wait %s must be greater than zero", time.Duration(h.MaxWait))
	}
	for i, f := range h.Fallbacks {
		if f == nil || f.Model == "" && len(f.Routes) == 0 {
			return fmt.Errorf("fallback %d: needs a model or routes, or it would be the same again", i+1)
		}
		if f.Model != "" && !usage.ModelName(f.Model) {
			return fmt.Errorf("fallback %d: model %q must be valid UTF-8", i+1, f.Model)
		}
	}
	if h.Breaker != nil {
		if err := h.Breaker.check(); err != nil {
			return fmt.Errorf("breaker: %w", err)
		}
	}
	return nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	call := h.meter.Call(r)
	call.Strip(r)
	if call.Endpoint.Class.LeavesHTTP() {
		return call.Serve(w, r, next) // a connection cannot be opened a second time
	}
	f, err := limit.Inspect(r, call)
	if err != nil {
		call.Refused(r, id)
		return err
	}
	if f != nil {
		return h.refuse(w, r, call, f)
	}
	return call.Serve(w, r, &tries{h: h, call: call, next: next})
}

// changed tells log and metrics the state of a route's breaker.
func (h *Handler) changed(ro *route, to gobreaker.State) {
	metrics.Process.BreakerChanged(metrics.BreakerRoute, stateOf(to))
	switch to {
	case gobreaker.StateOpen:
		h.logger.Warn("a route fails and is left alone", zap.String("route", ro.name), zap.Duration("for", ro.breaker.open))
	case gobreaker.StateClosed:
		h.logger.Info("a route works again", zap.String("route", ro.name))
	}
}

// refuse answers in the provider's place.
func (*Handler) refuse(w http.ResponseWriter, r *http.Request, call *meter.Call, f *limit.Refusal) error {
	call.Refused(r, id)
	metrics.Process.Refused(id, f.Code, false)
	f.Write(w, call.Endpoint.Dialect)
	return nil
}

// retryable tells whether another attempt may change a status.
func (h *Handler) retryable(status int) bool { return slices.Contains(h.On, status) }

// prices tells whether a handler in routes says what calls cost.
func prices(routes caddyhttp.RouteList) bool {
	for i := range routes {
		for _, h := range routes[i].Handlers {
			switch h := h.(type) {
			case *caddyhttp.Subroute:
				if prices(h.Routes) {
					return true
				}
			case interface{ LLMRole() string }:
				if llmapp.Role(h.LLMRole()) == llmapp.RolePricer {
					return true
				}
			}
		}
	}
	return false
}

// LLMRole tells the llm app what the handler does in a route.
func (*Handler) LLMRole() string { return string(llmapp.RoleRetry) }

// Detours are the routes that calls may take besides the one behind.
func (h *Handler) Detours() []caddyhttp.RouteList {
	all := make([]caddyhttp.RouteList, len(h.Fallbacks))
	for i, f := range h.Fallbacks {
		all[i] = f.Routes
	}
	return all
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
