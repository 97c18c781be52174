// Package llmusage is the handler llm_usage, by which callers see what they may use and
// what they have used, and the command `caddy llm-usage`, by which operators see it.
package llmusage

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// DefaultPath is where the handler answers unless configured otherwise.
const DefaultPath = "/llm/usage"

// Handler tells a caller its own limits, and what it has used of them: as JSON, or as a
// page to those who rather accept HTML. To ask costs nothing and counts as no call; it is
// answered, too, when a limit is used up. Calls of other paths pass.
//
// It shows the counters that are the caller's alone: of instances that count by
// application, if the caller has one, or by a key with `{http.auth.user.id}` or the
// application in it. It never shows a counter that callers share, a rule that only
// reports, or an instance with `headers off`.
//
// The answer is 401 to a caller that nobody has identified, 403 to one whose calls are only
// counted together with those of others, 405 to methods other than GET and HEAD, 429 to
// more than 20 requests in a second of one application, or of a caller that has none, and
// 503 while the counts cannot be read. What was read is told again for a second; `at` says
// when it was read.
type Handler struct {
	// Path is where the handler answers; it has no wildcards or placeholders. Default:
	// `/llm/usage`.
	Path string `json:"path,omitempty"`

	// Instances are the ids of the limiters that are shown. Default: those that calls come
	// to which pass this handler.
	Instances []string `json:"instances,omitempty"`

	app    *llmapp.App
	path   caddyhttp.MatchPath
	ahead  atomic.Pointer[[]llmapp.Instance] // to be shown; nil if nobody has looked
	pace   pace
	recent llmapp.Recent
	logger *zap.Logger
	now    func() time.Time
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.llm_usage", New: func() caddy.Module { return new(Handler) }}
}

// Provision checks the options.
func (h *Handler) Provision(ctx caddy.Context) error {
	h.logger = ctx.Logger()
	if h.now == nil {
		h.now = time.Now
	}
	if err := h.check(); err != nil {
		return fmt.Errorf("llm_usage: %w", err)
	}
	h.path = caddyhttp.MatchPath{h.at()}
	if err := h.path.Provision(ctx); err != nil {
		return fmt.Errorf("llm_usage: path: %w", err)
	}
	mod, err := ctx.App(llmapp.Name)
	if err != nil {
		return fmt.Errorf("loading llm app: %w", err)
	}
	h.app = mod.(*llmapp.App)
	return nil
}

// at is the path that is answered.
func (h *Handler) at() string {
	if h.Path == "" {
		return DefaultPath
	}
	return h.Path
}

func (h *Handler) check() error {
	if err := checkPath(h.at()); err != nil {
		return err
	}
	for i, id := range h.Instances {
		switch {
		case id == "":
			return fmt.Errorf("instances[%d]: an instance has no name", i)
		case slices.Contains(h.Instances[:i], id):
			return fmt.Errorf("instances[%d]: instance %q stands here twice", i, id)
		}
	}
	return nil
}

func checkPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return fmt.Errorf("path %q does not start with /", path)
	case strings.ContainsAny(path, "*?#%{}\\") || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("path %q is not a plain path: wildcards, escapes, queries, placeholders and blanks cannot stand in it", path)
	case caddyhttp.CleanPath(path, true) != path:
		return fmt.Errorf("path %q is not clean: write %q", path, caddyhttp.CleanPath(path, true))
	}
	return nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	if matches, err := h.path.MatchWithError(r); err != nil || !matches {
		if err != nil {
			return err
		}
		return next.ServeHTTP(w, r)
	}
	header(w.Header())
	doc, f := h.answer(r)
	if f != nil {
		writeRefusal(w, r, f)
		return nil
	}
	return writeDocument(w, r, doc)
}

// answer is what a request is to be told, or why it is told nothing.
func (h *Handler) answer(r *http.Request) (*document, *limit.Refusal) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, methodNotAllowed
	}
	who := callerOf(r)
	if who == (caller{}) {
		return nil, nobody
	}
	now := h.now()
	if !h.pace.admits(who.paced(), now) {
		return nil, tooOften
	}
	qs, at, current, err := h.recent.QuotasOf(h.app, r, h.instances(), now)
	switch {
	case err != nil:
		if c := h.logger.Check(zap.DebugLevel, "reading what a caller has used"); c != nil {
			c.Write(zap.Error(err)) // the store tells operators that it is away
		}
		return nil, unavailable
	case len(qs) == 0 && who.application == "":
		return nil, noApplication
	}
	return newDocument(who, meter.Var(r, meter.VarGroup), qs, current, at), nil
}

// instances are those that are shown. Servers may start before the app that walks the
// routes.
func (h *Handler) instances() []llmapp.Instance {
	_ = h.app.Routes() // a config that is wrong is not going to run
	if p := h.ahead.Load(); p != nil {
		return *p
	}
	return nil
}

// caller is who asks.
type caller struct {
	application string // empty for a key bound to none
	id          string // of the key, or what another authenticator calls the user
}

// paced is whose requests are limited together: the keys of an application have counters in
// common, and more keys are no more reason to ask.
func (c caller) paced() caller {
	if c.application != "" {
		c.id = ""
	}
	return c
}

func callerOf(r *http.Request) caller {
	c := caller{application: meter.Var(r, meter.VarApplication)}
	if c.application == meter.DefaultConsumer {
		c.application = ""
	}
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		c.id, _ = repl.GetString("http.auth.user.id")
	}
	return c
}

// LLMRole tells the llm app what the handler does in a route.
func (*Handler) LLMRole() string { return string(llmapp.RoleUsage) }

// Named are the instances that the options name.
func (h *Handler) Named() []string { return h.Instances }

// LookAhead takes from the llm app which limiters calls will come to.
func (h *Handler) LookAhead(a llmapp.Ahead) {
	show := a.Instances
	if len(h.Instances) > 0 {
		show = nil
		for _, id := range h.Instances {
			if in := h.app.Instance(id); in != nil {
				show = append(show, in)
			}
		}
	}
	show = slices.DeleteFunc(slices.Clone(show), llmapp.Instance.Shared)
	if len(show) == 0 {
		h.logger.Warn("no limiter that counts callers apart stands behind llm_usage, so it has nothing to show: put it before the limiters, or name them by `instances`")
	}
	h.ahead.Store(&show)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
	_ llmapp.Lookout              = (*Handler)(nil)
)
