// Package apikeyauth tells callers of LLM APIs apart by their API keys. It knows
// keys by their SHA-256 only, and no key passes beyond it.
package apikeyauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/llmlimits/caddy-llm-limits/internal/limit"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func init() {
	caddy.RegisterModule(new(Handler))
}

// Handler admits requests that carry a known API key and tells the handlers after it
// whose they are. Others get a 401 in the error format of the API they called.
//
// A key is looked for in the places in which SDKs send one: the headers
// Authorization (Bearer), X-Api-Key, Api-Key and X-Goog-Api-Key. Where headers or
// query parameters are configured, they are the places instead. Two different keys
// in one request are refused.
//
// No key gets past this handler. It strips all the places named above, the
// configured ones, Authorization and Proxy-Authorization of any scheme, every query
// parameter that holds the key just presented, and X-Wso2-Application-Id: from the
// request that goes on and from the original one that error routes and
// {http.request.orig_uri} see.
//
// A request that passes has these set; names it has none for are empty:
//
// Placeholder | Description
// ------------|------------
// `{http.auth.user.id}` | The id of the key; also the access log's user_id. Not set for anonymous requests.
// `{http.vars.x-wso2-application-id}` | The application the key is bound to
// `{http.vars.llm_group}` | The group of the key
// `{http.vars.llm.key_id}` | The id of the key
type Handler struct {
	// Keys are the keys known from the configuration. Default: none; then there
	// must be a keys file or a store of keys.
	Keys []Key `json:"keys,omitempty"`

	// KeysFile is the path of a file with more keys, a JSON object of the form
	// {"keys": [...]} with the fields of Keys, and comments as in Go. It must be there and valid at load;
	// it is read again when it changes, and if it is bad then, the keys of its last
	// good version stay. Placeholders such as {env.KEYS_FILE} are replaced at load.
	// Default: none.
	KeysFile string `json:"keys_file,omitempty"`

	// KeysStore admits the keys that are issued at run time, by the admin endpoint or
	// the command llm-key. They are in the store of the llm app, and work on all
	// replicas that share it. A key whose hash is also in Keys or the keys file is what
	// those say it is; one that only shares the id of such a key is refused. Default:
	// false.
	KeysStore bool `json:"keys_store,omitempty"`

	// KeyCache is how long keys that are known work while that store cannot be reached;
	// after it, as with keys that are not known, calls are answered with 503. At least
	// 1s. Default: 10m.
	KeyCache caddy.Duration `json:"key_cache,omitempty"`

	// Headers are where keys stand, instead of in the default places. Default:
	// Authorization with the prefix Bearer, X-Api-Key, Api-Key, X-Goog-Api-Key,
	// unless Query is given.
	Headers []HeaderPlace `json:"headers,omitempty"`

	// Query are the names of query parameters in which keys stand, instead of in
	// the default places. URLs end up in logs, so headers are better. Default: none.
	Query []string `json:"query,omitempty"`

	// Optional admits requests without any key, as anonymous: with its group and
	// models and no application. A wrong key is refused all the same. Default:
	// absent, a key is required.
	Optional *Anonymous `json:"optional,omitempty"`

	places    *places
	anonymous *grant // nil if a key is required
	index     atomic.Pointer[index]
	file      *keysFile // nil without one
	ring      *ring     // nil without a store of keys
	acquired  bool      // ring has to be given back
	keyCache  time.Duration
	meter     *meter.Meter
	logger    *zap.Logger
	now       func() time.Time
}

// Anonymous is what requests without a key are granted.
type Anonymous struct {
	// Group of all anonymous requests. Default: none.
	Group string `json:"group,omitempty"`

	// Models that anonymous requests may use. Default: all.
	Models Models `json:"models,omitzero"`
}

// CaddyModule returns the Caddy module information.
func (*Handler) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.api_key_auth",
		New: func() caddy.Module { return new(Handler) },
	}
}

// LLMRole tells the app that checks the order of handlers what this one is for.
func (*Handler) LLMRole() string { return "auth" }

// Provision checks the configuration, reads the keys file and begins to watch it.
func (h *Handler) Provision(ctx caddy.Context) error {
	if h.logger == nil {
		h.logger = ctx.Logger()
	}
	if h.now == nil {
		h.now = time.Now
	}
	var app *llmapp.App
	if h.meter == nil {
		mod, err := ctx.App(llmapp.Name)
		if err != nil {
			return fmt.Errorf("getting the llm app: %w", err)
		}
		app = mod.(*llmapp.App)
		h.meter = app.Meter()
	}
	var err error
	if h.places, err = newPlaces(h.Headers, h.Query); err != nil {
		return err
	}
	if h.Optional != nil {
		if h.anonymous, err = h.Optional.compile(); err != nil {
			return fmt.Errorf("optional: %w", err)
		}
	}
	if err := h.loadKeys(); err != nil {
		return err
	}
	if err := h.provisionStored(app); err != nil {
		return err
	}
	if app != nil {
		h.warnOfClashes(app)
	}
	if h.file != nil {
		go h.file.watch(ctx)
	}
	return nil
}

// loadKeys builds the first index.
func (h *Handler) loadKeys() error {
	repl := caddy.NewReplacer()
	// a copy: a resolved hash must not show up in the configuration
	inline := make([]Key, len(h.Keys))
	for i, k := range h.Keys {
		var err error
		if k.Hash, err = resolveHash(repl, k.Hash); err != nil {
			return fmt.Errorf("keys[%d] (id %q): %w", i, k.ID, err)
		}
		if k.Previous != nil {
			previous := *k.Previous
			if previous.Hash, err = resolveHash(repl, previous.Hash); err != nil {
				return fmt.Errorf("keys[%d] (id %q): previous: %w", i, k.ID, err)
			}
			k.Previous = &previous
		}
		inline[i] = k
	}
	if h.KeysFile == "" {
		x := newIndexer(len(inline))
		if err := x.add(inline, false); err != nil {
			return err
		}
		h.index.Store(&x.index)
		return nil
	}
	path, err := repl.ReplaceOrErr(h.KeysFile, true, true)
	if err != nil {
		return fmt.Errorf("keys_file: %w", err)
	}
	h.file = newKeysFile(path, inline, &h.index, h.logger)
	if err := h.file.load(); err != nil {
		return fmt.Errorf("keys_file: %w", err)
	}
	return nil
}

func (a *Anonymous) compile() (*grant, error) {
	if err := checkOptionalName("group", a.Group); err != nil {
		return nil, err
	}
	models, err := a.Models.compile()
	if err != nil {
		return nil, err
	}
	return &grant{id: "", application: "", group: a.Group, models: models}, nil
}

// Validate refuses a handler that could admit nobody by a key.
func (h *Handler) Validate() error {
	if len(h.Keys) == 0 && h.KeysFile == "" && !h.KeysStore {
		return errNoSource
	}
	return nil
}

var errNoSource = errors.New("there must be a key, a keys_file or keys_store")

// The variables that the handlers after this one read.
const (
	applicationVar = "x-wso2-application-id"
	groupVar       = "llm_group"
	keyIDVar       = "llm.key_id"
	userIDKey      = "http.auth.user.id"
)

// ServeHTTP implements [caddyhttp.MiddlewareHandler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	// everything after this line, refusals too, sees a request without keys
	secret, err := h.places.take(r)
	g := h.anonymous
	if err == nil {
		g, err = h.find(r.Context(), secret)
	} else if errors.Is(err, errNoKey) && g != nil {
		err = nil
	}
	if err != nil {
		h.refuseKey(w, r, g, err)
		return nil
	}
	h.identify(r, g)
	usage.StripMethodOverride(r.Header)
	ep := usage.Identify(r.Method, r.URL, r.Header)
	ep.StripUpgrade(r.Header)

	release, err := h.checkModel(r, ep.Class, g.models)
	defer release()
	if err != nil {
		return h.refuseCall(w, r, g, err)
	}
	return next.ServeHTTP(w, r)
}

// find is the grant that a secret leads to, wherever it is stated.
func (h *Handler) find(ctx context.Context, secret string) (*grant, error) {
	d, err := digestOf(secret)
	if err != nil {
		return nil, err
	}
	now := h.now()
	g, err := h.index.Load().get(d, now)
	if h.ring != nil && errors.Is(err, errUnknown) {
		return h.findStored(ctx, secret, d, now)
	}
	return g, err
}

// identify sets every variable, so that none an earlier handler has set is taken for
// the identity of this call.
func (h *Handler) identify(r *http.Request, g *grant) {
	ctx := r.Context()
	if vars, ok := ctx.Value(caddyhttp.VarsCtxKey).(map[string]any); ok { // SetVar would look it up each time
		vars[applicationVar] = g.application
		vars[keyIDVar] = g.id
		// One less where there is no group: with more than eight in all, the map must grow.
		if _, taken := vars[groupVar]; taken || g.group != "" {
			vars[groupVar] = g.group
		}
	}
	if g == h.anonymous {
		return // whoever another authenticator has found stays
	}
	if repl, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set(userIDKey, g.id)
	}
}

// refuseKey answers 401, or 503 where nobody can say whose a key is. What is wrong with a key is for the log alone: it would tell
// a guesser which keys there are.
func (h *Handler) refuseKey(w http.ResponseWriter, r *http.Request, g *grant, cause error) {
	h.logRefusal(r, g, cause.Error())
	metrics.Process.AuthFailed(reason(cause))
	if errors.Is(cause, errAway) {
		refusal := &limit.Refusal{
			Status:     http.StatusServiceUnavailable,
			Code:       "keys_unavailable",
			Message:    "API keys cannot be checked at this moment",
			RetryAfter: time.Second,
		}
		refusal.Write(w, dialect(r))
		return
	}
	challenge, message := `Bearer realm="llm", error="invalid_token"`, "invalid API key"
	switch {
	case errors.Is(cause, errNoKey):
		challenge, message = `Bearer realm="llm"`, "no API key"
	case errors.Is(cause, errTwoKeys):
		message = "two different API keys"
	}
	w.Header().Set("WWW-Authenticate", challenge)
	refusal := &limit.Refusal{
		Status:  http.StatusUnauthorized,
		Code:    "invalid_api_key",
		Type:    "authentication_error",
		Message: message,
	}
	refusal.Write(w, dialect(r))
}

// modelRefusal repeats nothing of the request, as no refusal does.
func modelRefusal(message string) *limit.Refusal {
	return &limit.Refusal{
		Status:  http.StatusForbidden,
		Code:    "model_not_allowed",
		Type:    "permission_error",
		Message: message,
		Param:   "model",
	}
}

// checkModel holds calls that use a model to the list. A call whose model is not known
// is refused, else it would be the way around every list. What has been read of the
// request stays in memory until release is called, which is never nil.
func (h *Handler) checkModel(r *http.Request, class usage.Class, allowed *allowlist) (release func(), err error) {
	if allowed == nil {
		return func() {}, nil
	}
	switch class {
	case usage.Free:
		return func() {}, nil
	case usage.Realtime, usage.Upgrade:
		// what is said on the connection may name other models
		return func() {}, modelRefusal("this API key is limited to certain models, and the models of this connection are not known beforehand")
	default:
	}
	model, release, err := h.meter.RequestModel(r)
	others := h.meter.Call(r).OtherModels()
	switch {
	case err != nil:
		return release, err
	case model == "":
		return release, modelRefusal("this API key is limited to certain models, and the model of this call is not known")
	case !allowed.allows(model), slices.ContainsFunc(others, func(m string) bool { return !allowed.allows(m) }):
		return release, modelRefusal("this API key may not use the model of this call")
	}
	return release, nil
}

// refuseCall answers a call that its key does not cover, or whose body cannot be
// read. What is not about the request is left to Caddy.
func (h *Handler) refuseCall(w http.ResponseWriter, r *http.Request, g *grant, cause error) error {
	var refusal *limit.Refusal
	if !errors.As(cause, &refusal) {
		if refusal = limit.RefusalOf(cause); refusal == nil {
			return fmt.Errorf("reading the model of the request: %w", cause)
		}
	}
	h.logRefusal(r, g, refusal.Code)
	metrics.Process.AuthFailed(refusal.Code)
	refusal.Write(w, dialect(r))
	return nil
}

func dialect(r *http.Request) usage.Dialect {
	return usage.Identify(r.Method, r.URL, r.Header).Dialect
}

// logRefusal notes a refusal at debug level: it is the client's fault, and nothing the
// client sent is in it.
func (h *Handler) logRefusal(r *http.Request, g *grant, reason string) {
	c := h.logger.Check(zapcore.DebugLevel, "request refused")
	if c == nil {
		return
	}
	fields := []zap.Field{zap.String("reason", reason)}
	if g != nil && g.id != "" {
		fields = append(fields, zap.Any("key_id", g.id))
	}
	if ip, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok {
		fields = append(fields, zap.String("client_ip", ip))
	}
	c.Write(fields...)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Handler)(nil)
	_ caddy.Validator             = (*Handler)(nil)
	_ caddy.CleanerUpper          = (*Handler)(nil)
	_ caddyhttp.MiddlewareHandler = (*Handler)(nil)
)
