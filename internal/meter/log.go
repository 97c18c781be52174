package meter

import (
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap/zapcore"

	"github.com/llmlimits/caddy-llm-limits/internal/money"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Variables of a request by which handlers tell each other who calls.
const (
	VarApplication = "x-wso2-application-id"
	VarGroup       = "llm_group"
	VarKeyID       = "llm.key_id" // the public id of the key
)

// DefaultConsumer is what a call counts under that has no application.
const DefaultConsumer = "default"

// Vars are the variables of a request.
type Vars map[string]any

// VarsOf returns the variables of a request, nil outside of Caddy. They are looked for
// through all of its contexts, so that who wants several should ask once.
func VarsOf(r *http.Request) Vars {
	vars, _ := r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	return vars
}

// Text returns a variable that is a string, or the empty string.
func (v Vars) Text(name string) string {
	switch s := v[name].(type) {
	case string:
		return s
	case *text:
		return s.String()
	}
	return ""
}

// Var returns a variable of a request that is a string, or the empty string.
func Var(r *http.Request, name string) string { return VarsOf(r).Text(name) }

// logEntry is the object `llm` of the access log.
type logEntry struct {
	consumer, keyID, group string
	api                    usage.API
	model, served          string
	usage                  usage.Usage // of all models
	other                  int64       // tokens of it that other models used
	source                 Source
	cost                   money.USD
	costStatus             CostStatus
	priceKey               string
	refusedBy              string
	shadowed               []string
	servedBy               string
	attempts               int
}

// set takes what is to be logged of a call that has ended.
func (e *logEntry) set(c *Call, r *http.Request) {
	o := &c.result
	*e = logEntry{
		consumer: Var(r, VarApplication), keyID: Var(r, VarKeyID), group: c.group(r),
		api: c.Endpoint.API, model: clip(c.Model()), served: clip(o.ServedModel),
		usage: o.All(), source: o.Source, cost: o.Cost, costStatus: o.CostStatus, priceKey: o.Basis.Key, refusedBy: c.refusedBy, shadowed: c.shadowed,
	}
	if e.consumer == "" {
		e.consumer = DefaultConsumer
	}
	e.servedBy, e.attempts = c.attempts.by, c.attempts.n
	if e.served == "" && c.attempts.routed != nil {
		e.served = clip(c.asked())
	}
	e.other = e.usage.Total() - o.Usage.Total()
}

// Grouped notes the group by whose rules a limiter counts the call, empty for none of its
// groups. The first limiter that has groups decides what is logged, whatever group the key
// names.
func (c *Call) Grouped(group string) {
	if c.grouped == nil {
		c.grouped = &group
	}
}

// group is that of the first limiter which has groups, else that of the key.
func (c *Call) group(r *http.Request) string {
	if c.grouped != nil {
		return *c.grouped
	}
	return Var(r, VarGroup)
}

// clip bounds a name that others choose, at a rune.
func clip(s string) string {
	if len(s) <= modelMax {
		return s
	}
	n := modelMax
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n])
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (e *logEntry) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("consumer", e.consumer)
	addString(enc, "key_id", e.keyID)
	addString(enc, "group", e.group)
	enc.AddString("api", e.api.String())
	addString(enc, "model", e.model)
	addString(enc, "served_model", e.served)
	if e.source != SourceNone {
		u := &e.usage
		enc.AddInt64("input_tokens", u.Input)
		enc.AddInt64("output_tokens", u.Output)
		enc.AddInt64("total_tokens", u.Total())
		enc.AddInt64("cache_read_tokens", u.CacheRead)
		enc.AddInt64("cache_write_tokens", u.CacheWrite5m+u.CacheWrite1h)
		enc.AddInt64("reasoning_tokens", u.Reasoning)
		enc.AddInt64("other_tokens", e.other)
	}
	if e.costStatus != "" && e.costStatus != CostUnpriced {
		enc.AddString("cost_usd", e.cost.String())
	}
	addString(enc, "cost_status", string(e.costStatus))
	addString(enc, "price_key", e.priceKey)
	enc.AddString("usage_source", string(e.source))
	if e.attempts > 0 {
		enc.AddString("served_by", e.servedBy)
		enc.AddInt("attempts", e.attempts)
	}
	addString(enc, "refused_by", e.refusedBy)
	addString(enc, "shadow_refused_by", strings.Join(e.shadowed, ","))
	return nil
}

func addString(enc zapcore.ObjectEncoder, key, s string) {
	if s != "" {
		enc.AddString(key, s)
	}
}
