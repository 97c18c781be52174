package limit

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// violation is why a call does not fit.
type violation struct {
	rule   *rule // the one that is named: of those used up, the one with the longest window
	result store.Result
	own    []quota // the state of the instance's rules, where the client may see it
	kind   string  // what the config calls the kind of the model; empty where it does not
	public bool    // the client may see amounts: they are its own, or the operator shows them
}

// violated makes an answer of the rules that have no room for a call.
func (l *Limiter) violated(e *entry, takes []store.Take, w *wants) *Refusal {
	v := &violation{public: l.headers || !l.shared, kind: e.kind}
	var wait time.Duration
	fits := true
	for i, ru := range e.rules {
		if ru.shadow || !e.refuses(i) {
			continue
		}
		wait = max(wait, e.results[i].RetryAfter)
		none := e.results[i].Limit == 0 // set by an operator: no size of a call fits
		if none {
			wait = max(wait, time.Until(e.results[i].ResetAt))
		}
		if v.rule == nil || ru.length > v.rule.length {
			v.rule, v.result = ru, e.results[i]
		}
		if takes[i].Need > e.results[i].Limit && !none {
			fits = false
		}
	}
	if l.headers {
		v.own = e.quotas(nil)
	}
	if !fits {
		return l.tooLarge(e, takes, w)
	}
	return &Refusal{
		Status: l.config.Reject.status(), Code: "rate_limit_exceeded",
		Message: v.message(time.Now()), RetryAfter: max(wait, time.Second), violation: v,
	}
}

// tooLarge answers a call that would not fit if it were the only one.
func (l *Limiter) tooLarge(e *entry, takes []store.Take, w *wants) *Refusal {
	f := &Refusal{Status: http.StatusBadRequest, Code: "request_too_large", Message: "this call at its largest is more than the whole limit"}
	if l.shared && !l.headers {
		return f
	}
	for i, ru := range e.rules {
		limit := e.results[i].Limit
		if ru.shadow || !e.refuses(i) || takes[i].Need <= limit || limit == 0 {
			continue
		}
		f.Message = fmt.Sprintf("this call may use up to %s of a limit of %s %s", ru.unit.words(takes[i].Need), ru.unit.words(limit), ru.words)
		if ru.unit.Media() {
			break
		}
		switch most := w.fits(ru.unit, limit); {
		case w.capless:
			f.Message += "; fewer or smaller pictures fit"
		case most > 0:
			f.Message += fmt.Sprintf("; a cap of %d output tokens fits", most)
		default:
			f.Message += "; a shorter prompt fits"
		}
		break
	}
	return f
}

// message names the rule; for a shared counter only that it is used up.
func (v *violation) message(now time.Time) string {
	var reset string
	if at := v.result.ResetAt; !at.IsZero() {
		reset = fmt.Sprintf("; resets at %s (in %s)", at.UTC().Format(time.RFC3339), span(at.Sub(now)))
	}
	if !v.public {
		return "a limit that all callers share is reached" + reset
	}
	if v.rule.unit == Concurrent {
		return fmt.Sprintf("limit of concurrent calls reached: limit %d, at work %d", v.result.Limit, v.result.Held)
	}
	held, u := "", v.rule.unit
	if v.result.Held > 0 {
		held = ", held by calls at work " + u.words(v.result.Held)
	}
	return fmt.Sprintf("limit of %s reached: limit %s, used %s%s%s", v.rule.words, u.words(v.result.Limit), u.words(v.result.Used), held, reset)
}

// ban sets the fields that say which limit is used up.
func (v *violation) ban(h http.Header, model, modelType string, now time.Time) {
	h.Set("X-RateLimit-Ban-Level", level(v.rule.window))
	if model = headerSafe(model); model != "" {
		h.Set("X-RateLimit-Model", model)
	}
	h.Set("X-RateLimit-Model-Type", modelType)
	h.Set("X-RateLimit-Unit", string(v.rule.unit))
	h.Set("X-RateLimit-Window", cmp.Or(v.rule.window, string(Concurrent)))
	// these three belong together: what another instance said of its own rules, which
	// still have room, must not stand beside them
	if h.Del(hLimit); v.public {
		h.Set(hLimit, v.rule.unit.number(v.result.Limit))
	}
	h.Set(hRemaining, "0")
	named := quota{v.rule, &v.result}
	h.Set(hReset, strconv.FormatInt(named.reset(now), 10))
}

// headerSafe returns a name that a client sent if it can stand in a header field.
func headerSafe(s string) string {
	if len(s) > 256 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

// setPlaceholders fills in {http.llm.refusal.*} for error routes and messages.
func (f *Refusal) setPlaceholders(repl *caddy.Replacer, instance string) {
	if repl == nil {
		return
	}
	set := func(name string, value any) { repl.Set("http.llm.refusal."+name, value) }
	set("instance", instance)
	set("status", f.Status)
	set("code", f.Code)
	set("message", f.Message)
	if f.RetryAfter > 0 {
		set("retry_after", seconds(f.RetryAfter))
	}
	v := f.violation
	if v == nil {
		return
	}
	set("rule", v.rule.words)
	set("unit", string(v.rule.unit))
	set("window", v.rule.window)
	set("remaining", 0)
	if !v.result.ResetAt.IsZero() {
		set("reset", v.result.ResetAt.UTC().Format(time.RFC3339))
	}
	if v.public {
		set("limit", v.rule.unit.number(v.result.Limit))
		set("used", v.rule.unit.number(v.result.Used))
	}
}
