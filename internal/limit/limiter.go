// Package limit is the engine of the limiters: it reads their rules, works out what
// a call wants from each, has the store admit it, and charges what it used in the
// end. token_limit and what is to follow differ only in their units.
package limit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// Limiter is one instance of a limiter, ready to serve.
type Limiter struct {
	id         string
	directive  string
	config     *Config
	key        []keyPart
	*ruleset   // of callers in no group
	membership membership
	plan       *plan
	fields     *usage.Fields
	metered    bool // some rule counts what only the response tells
	counts     bool // some rule counts more than requests
	reads      bool // what the request asks for must be known
	shared     bool // all callers count in one counter
	known      bool // the operator says who the consumers are
	dollars    bool // what is counted is what calls cost
	enforced   bool // some rule refuses
	headers    bool
	logger     *zap.Logger
	often      often
	byDefault  meter.Pricer                 // prices where no handler brings prices; nil but for dollars
	ahead      atomic.Pointer[llmapp.Ahead] // what stands further in; nil if nobody has looked
	app        *llmapp.App

	// What the app has for as long as the config runs.
	meter    *meter.Meter
	counters store.Counters
	leases   *store.Leases
}

// Provision checks a config and makes a limiter of it, known to the llm app. Limits in
// dollars need to know who prices calls where no handler brings prices of its own; for
// all others p is nil.
func Provision(ctx caddy.Context, c *Config, k *Kind, p meter.Pricer) (*Limiter, error) {
	directive := k.directive
	l, err := newLimiter(c, k)
	if err != nil {
		return nil, c.in(directive, err)
	}
	l.byDefault = p
	l.logger = ctx.Logger()

	mod, err := ctx.App(llmapp.Name)
	if err != nil {
		return nil, fmt.Errorf("loading llm app: %w", err)
	}
	l.app = mod.(*llmapp.App)
	l.meter, l.counters, l.leases = l.app.Meter(), l.app.Counters(), l.app.Leases()
	if err := l.app.Register(l); err != nil {
		return nil, c.in(directive, err)
	}
	if l.metered {
		l.app.AskUsage()
	}
	for _, warning := range append(c.open(l.plan), l.made()...) {
		l.logger.Warn(warning, zap.String("instance", l.id))
	}
	return l, nil
}

// App is the llm app of the config.
func (l *Limiter) App() *llmapp.App { return l.app }

// newLimiter is a limiter that no app knows.
func newLimiter(c *Config, k *Kind) (*Limiter, error) {
	p, err := c.compile(k)
	if err != nil {
		return nil, err
	}
	directive := k.directive
	c.Mode = cmp.Or(c.Mode, Reserve)
	l := &Limiter{
		id: instanceID(c, directive), directive: directive, config: c, key: keyParts(c.Key),
		ruleset: p.base, plan: p, membership: newMembership(c, p),
		shared: !c.ConsumerBased && len(c.Key) == 0, dollars: k.dollars(),
	}
	if len(c.UsageFields) > 0 {
		if l.fields, err = usage.NewFields(c.UsageFields); err != nil {
			return nil, fmt.Errorf("usage_fields: %w", err)
		}
	}
	l.known = l.shared || c.ConsumerBased || !inventable(c.Key)
	l.headers = c.Headers == "on" || c.Headers == "" && !l.shared
	p.all(func(ru *rule) {
		l.metered = l.metered || ru.unit.Metered()
		l.counts = l.counts || ru.unit.Metered() || ru.unit.Media()
		l.enforced = l.enforced || !ru.shadow
	})
	l.reads = l.counts || p.hasBlocks()
	return l, nil
}

// in says which instance an error is about.
func (c *Config) in(directive string, err error) error {
	if c.Name != "" {
		return fmt.Errorf("%s %s: %w", directive, c.Name, err)
	}
	return fmt.Errorf("%s: %w", directive, err)
}

// instanceID is by what an instance's counters are known. It never depends on the
// rules, so that an edited rule finds what has been used.
func instanceID(c *Config, directive string) string {
	switch {
	case c.Share != "":
		return c.Share
	case c.Name != "":
		return c.Name
	}
	expr := "shared"
	if c.ConsumerBased {
		expr = "consumer"
	} else if len(c.Key) > 0 {
		expr = "key " + strings.Join(c.Key, " ")
	}
	sum := sha256.Sum256([]byte(directive + "\x00" + expr))
	return directive + "-" + hex.EncodeToString(sum[:4])
}

// ServeHTTP admits a call or refuses it, and charges it when it has ended.
func (l *Limiter) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	vars := meter.VarsOf(r)
	call := l.meter.CallIn(r, vars)
	if call.Has(l.id) {
		return call.Serve(w, r, next) // counted already, further out
	}
	who, err := l.caller(r, vars, call)
	switch {
	case call.Endpoint.Class == usage.Minting:
		return l.refuse(w, r, call, notMetered("it hands out credentials of the provider's"))
	case call.Endpoint.Class.LeavesHTTP() && !l.counts && l.config.Unmetered != "allow":
		return l.deny(w, r, call, next, notMetered("it opens a connection on which requests cannot be counted"))
	}
	if err != nil {
		return l.deny(w, r, call, next, l.unavailable(err))
	}
	call.Strip(r)
	f, err := l.inspect(r, call)
	if err != nil {
		call.Refused(r, l.id)
		return err
	}
	if f != nil {
		return l.deny(w, r, call, next, f)
	}
	e, f, err := l.admit(r, call, who)
	if err != nil {
		f = l.unavailable(err)
	}
	if f != nil {
		return l.deny(w, r, call, next, f)
	}
	if e != nil {
		call.Add(e)
	}
	if !l.app.AsksUsage() {
		call.Unasked()
	}
	return call.Serve(w, r, next)
}

// inspect reads the request where a rule counts what it asks for or what its answer
// uses, and has that read. An error is not the client's doing.
func (l *Limiter) inspect(r *http.Request, call *meter.Call) (*Refusal, error) {
	if !l.reads {
		return nil, nil
	}
	if f, err := Inspect(r, call); f != nil || err != nil {
		return f, err
	}
	if !l.counts {
		return nil, nil
	}
	if f := l.endpoint(call); f != nil || !l.metered {
		return f, nil
	}
	call.Meter(r)
	if l.fields != nil {
		call.Seek(l.fields)
	}
	return nil, nil
}

// Inspect reads what a request asks for. An error is not the client's doing.
func Inspect(r *http.Request, call *meter.Call) (*Refusal, error) {
	err := call.Inspect(r)
	if f := RefusalOf(err); f != nil {
		return f, nil
	}
	return nil, err
}

// deny refuses a call. An instance in shadow lets it go on, uncounted.
func (l *Limiter) deny(w http.ResponseWriter, r *http.Request, call *meter.Call, next caddyhttp.Handler, f *Refusal) error {
	if l.config.Shadow && !f.spent {
		call.Shadowed(l.id)
		l.count(r, f, true)
		return call.Serve(w, r, next)
	}
	return l.refuse(w, r, call, f)
}

// endpoint refuses a call whose use would not be seen.
func (l *Limiter) endpoint(call *meter.Call) *Refusal {
	switch {
	case call.Endpoint.Class == usage.Upgrade:
		return notMetered("it opens a connection that is not metered")
	case l.config.Unmetered == "allow":
		return nil
	case call.Endpoint.Class == usage.Unmetered:
		return notMetered("what it uses is not reported in its answer")
	case call.Request.Background:
		return notMetered("what a background response uses is not reported in its answer")
	}
	return nil
}

func notMetered(why string) *Refusal {
	return &Refusal{
		Status: http.StatusForbidden, Code: "endpoint_not_metered",
		Message: "this gateway does not allow this endpoint: " + why,
	}
}

// unavailable is the answer when the store cannot say whether a call fits.
func (l *Limiter) unavailable(err error) *Refusal {
	if errors.Is(err, store.ErrFull) {
		l.often.log(l.logger, zap.WarnLevel, "no room for the counters of another consumer", l.id, err)
		return &Refusal{
			Status: http.StatusServiceUnavailable, Code: "limits_full",
			Message: "limits cannot be kept for another consumer at this moment", RetryAfter: time.Minute,
		}
	}
	l.often.log(l.logger, zap.ErrorLevel, "checking limits", l.id, err)
	return &Refusal{
		Status: http.StatusServiceUnavailable, Code: "limits_unavailable",
		Message: "limits cannot be checked at this moment", RetryAfter: time.Second,
	}
}

// refuse answers in place of the provider. What limiters further out took is given
// back when the call ends.
func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request, call *meter.Call, f *Refusal) error {
	call.Refused(r, l.id)
	l.count(r, f, false)
	now := time.Now()
	if v := f.violation; v != nil {
		qs := collect(nil, call.Entries())
		writeQuotas(w.Header(), append(qs, v.own...), now)
		v.ban(w.Header(), cmp.Or(v.model, call.Model()), cmp.Or(v.kind, call.ModelType()), now)
	}
	if c := l.logger.Check(zap.DebugLevel, "refused"); c != nil {
		c.Write(zap.String("instance", l.id), zap.Int("status", f.Status), zap.String("code", f.Code))
	}
	repl, _ := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	f.setPlaceholders(repl, l.id)
	if rj := l.config.Reject; f.violation != nil && rj != nil && rj.Message != "" && repl != nil {
		f.Message = repl.ReplaceAll(rj.Message, "")
	}
	if l.config.Errors {
		f.headers(w.Header())
		return caddyhttp.Error(f.Status, f)
	}
	f.Write(w, call.Endpoint.Dialect)
	return nil
}

// collect appends the state of all the caller's own rules of the limiters that have
// admitted the call.
func collect(qs []quota, entries []meter.Entry) []quota {
	for _, e := range entries {
		if e, ok := e.(*entry); ok && e.l.headers {
			qs = e.quotas(qs)
		}
	}
	return qs
}
