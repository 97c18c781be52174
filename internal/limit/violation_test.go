package limit

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// refused is an entry whose rules are in a state, and what was taken of each.
func refused(l *Limiter, needs []int64, results ...store.Result) (*entry, []store.Take) {
	e := &entry{l: l, rules: l.rules, results: results}
	takes := make([]store.Take, len(l.rules))
	for i, ru := range l.rules {
		takes[i] = store.Take{Rule: ru.store, Need: 1}
		if needs != nil {
			takes[i].Need = needs[i]
		}
		if results[i].Limit == 0 {
			results[i].Limit = ru.limit
		}
	}
	return e, takes
}

func TestViolatedNamesTheLongestWindow(t *testing.T) {
	lines := []string{
		"10 requests per minute", "100 tokens per hour", "1k tokens per rolling 90m", "2k tokens per day",
		"3k output_tokens per 3d", "9k tokens per week", "99k tokens per month", "5 concurrent", "7 requests per hour burst 9",
	}
	rapid.Check(t, func(rt *rapid.T) {
		l := newTestLimiter(t, Config{Limits: parse(t, lines...), ConsumerBased: rapid.Bool().Draw(rt, "own")})
		results := make([]store.Result, len(l.rules))
		var longest, wait time.Duration
		violated := 0
		for i, ru := range l.rules {
			ru.shadow = rapid.IntRange(0, 4).Draw(rt, "shadow") == 0
			if rapid.Bool().Draw(rt, "exceeded") {
				results[i].Exceeded = true
				results[i].RetryAfter = time.Duration(rapid.Int64Range(1, 40*24*3600*1000).Draw(rt, "wait")) * time.Millisecond
			}
			if results[i].Exceeded && !ru.shadow {
				violated++
				longest, wait = max(longest, ru.length), max(wait, results[i].RetryAfter)
			}
		}
		if violated == 0 {
			rt.Skip("nothing is violated")
		}
		e, takes := refused(l, nil, results...)
		f := l.violated(e, takes, &wants{})

		if f.Status != http.StatusTooManyRequests || f.Code != "rate_limit_exceeded" {
			rt.Fatalf("got %d %s", f.Status, f.Code)
		}
		if f.violation.rule.shadow || f.violation.rule.length != longest {
			rt.Errorf("%q is named, and the longest window that is used up has %s", f.violation.rule.words, longest)
		}
		if want := max(wait, time.Second); f.RetryAfter != want {
			rt.Errorf("wait %s, want %s", f.RetryAfter, want)
		}
		h := make(http.Header)
		f.violation.ban(h, "m", "text", noon)
		f.headers(h)
		if got, want := h.Get("X-RateLimit-Ban-Level"), level(f.violation.rule.window); got != want {
			rt.Errorf("got the level %q, want %q", got, want)
		}
		n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if err != nil || n != seconds(max(wait, time.Second)) || n < 1 || n > 2_147_483 {
			rt.Errorf("got Retry-After %q for %s", h.Get("Retry-After"), wait)
		}
		if h.Get("X-RateLimit-Remaining") != "0" {
			rt.Errorf("%s remain", h.Get("X-RateLimit-Remaining"))
		}
	})
}

func TestBanHeaders(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config Config
		model  string
		want   map[string]string // an empty value: the field is absent
	}{
		{"own", Config{ConsumerBased: true, Limits: parse(t, "50 requests per day")}, "gpt-4o", map[string]string{
			"X-RateLimit-Ban-Level": "daily", "X-RateLimit-Model": "gpt-4o", "X-RateLimit-Model-Type": "text", "X-RateLimit-Unit": "requests",
			"X-RateLimit-Window": "day", "X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3600",
		}},
		{"own, quiet", Config{ConsumerBased: true, Headers: "off", Limits: parse(t, "50 requests per day")}, "", map[string]string{
			"X-RateLimit-Ban-Level": "daily", "X-RateLimit-Model": "", "X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "0",
		}},
		{"shared", Config{Limits: parse(t, "50 tokens per week")}, "gpt-4o", map[string]string{
			"X-RateLimit-Ban-Level": "weekly", "X-RateLimit-Unit": "tokens", "X-RateLimit-Window": "week",
			"X-RateLimit-Limit": "", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "3600",
		}},
		{"shared, and shown", Config{Headers: "on", Limits: parse(t, "50 tokens per month")}, "gpt-4o", map[string]string{
			"X-RateLimit-Ban-Level": "monthly", "X-RateLimit-Limit": "50",
		}},
		{"a duration", Config{ConsumerBased: true, Limits: parse(t, "50 tokens per 90s")}, "", map[string]string{
			"X-RateLimit-Ban-Level": "90s", "X-RateLimit-Window": "90s",
		}},
		{"a rolling window", Config{ConsumerBased: true, Limits: parse(t, "50 tokens per rolling 1h")}, "", map[string]string{
			"X-RateLimit-Ban-Level": "rolling 1h", "X-RateLimit-Window": "rolling 1h",
		}},
		{"a bucket", Config{ConsumerBased: true, Limits: parse(t, "50 tokens per 1h burst 70")}, "", map[string]string{
			"X-RateLimit-Ban-Level": "1h", "X-RateLimit-Window": "1h burst", "X-RateLimit-Limit": "70",
		}},
		{"calls at one time", Config{ConsumerBased: true, Limits: parse(t, "3 concurrent")}, "", map[string]string{
			"X-RateLimit-Ban-Level": "concurrent", "X-RateLimit-Window": "concurrent", "X-RateLimit-Unit": "concurrent", "X-RateLimit-Limit": "3",
		}},
		{"a model that would break the header", Config{ConsumerBased: true, Limits: parse(t, "1 requests per minute")}, "a\r\nSet-Cookie: b", map[string]string{
			"X-RateLimit-Ban-Level": "minutely", "X-RateLimit-Model": "",
		}},
		{"a model in another script", Config{ConsumerBased: true, Limits: parse(t, "1 requests per hour")}, "モデル", map[string]string{
			"X-RateLimit-Ban-Level": "hourly", "X-RateLimit-Model": "",
		}},
		{"a model that is too long", Config{ConsumerBased: true, Limits: parse(t, "1 requests per hour")}, strings.Repeat("m", 257), map[string]string{
			"X-RateLimit-Model": "",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLimiter(t, tc.config)
			e, takes := refused(l, nil, store.Result{Exceeded: true, ResetAt: noon.Add(time.Hour)})
			h := make(http.Header)
			// what an outer instance has said of a rule that has room
			h.Set(hLimit, "9000")
			h.Set(hRemaining, "8000")
			l.violated(e, takes, &wants{}).violation.ban(h, tc.model, "text", noon)
			for name, want := range tc.want {
				var values []string
				if want != "" {
					values = []string{want}
				}
				if got := h.Values(name); !slices.Equal(got, values) {
					t.Errorf("%s: got %q, want %q", name, got, values)
				}
			}
		})
	}
}

func TestRefusalMessages(t *testing.T) {
	reset := noon.Add(83 * time.Minute)
	const at = "; resets at 2026-06-01T13:23:00Z (in 1h23m0s)"
	for _, tc := range []struct {
		name   string
		config Config
		result store.Result
		want   string
	}{
		{"own", Config{ConsumerBased: true, Limits: parse(t, "1k tokens per day")}, store.Result{Used: 1200, ResetAt: reset}, "limit of tokens per day reached: limit 1000, used 1200" + at},
		{"own, with calls at work", Config{ConsumerBased: true, Limits: parse(t, "1k tokens per day")}, store.Result{Used: 200, Held: 800, ResetAt: reset}, "limit of tokens per day reached: limit 1000, used 200, held by calls at work 800" + at},
		{"own, without headers", Config{ConsumerBased: true, Headers: "off", Limits: parse(t, "1k tokens per day")}, store.Result{Used: 1200, ResetAt: reset}, "limit of tokens per day reached: limit 1000, used 1200" + at},
		{"own, of calls at one time", Config{ConsumerBased: true, Limits: parse(t, "3 concurrent")}, store.Result{Held: 3}, "limit of concurrent calls reached: limit 3, at work 3"},
		{"shared", Config{Limits: parse(t, "1k tokens per day")}, store.Result{Used: 1200, Held: 5, ResetAt: reset}, "a limit that all callers share is reached" + at},
		{"shared, of calls at one time", Config{Limits: parse(t, "3 concurrent")}, store.Result{Held: 3}, "a limit that all callers share is reached"},
		{"shared, and shown", Config{Headers: "on", Limits: parse(t, "1k tokens per day")}, store.Result{Used: 1200, ResetAt: reset}, "limit of tokens per day reached: limit 1000, used 1200" + at},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLimiter(t, tc.config)
			tc.result.Exceeded = true
			e, takes := refused(l, nil, tc.result)
			if got := l.violated(e, takes, &wants{}).violation.message(noon); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestSharedRulesStaySilent(t *testing.T) {
	for _, headers := range []string{"", "off", "on"} {
		l := newTestLimiter(t, Config{Headers: headers, Limits: parse(t, "1k tokens per day")})
		e, takes := refused(l, nil, store.Result{Used: 4321, Exceeded: true, ResetAt: noon.Add(time.Hour)})
		f := l.violated(e, takes, &wants{})
		if shown := len(f.violation.own) > 0; shown != (headers == "on") {
			t.Errorf("headers %q: shown %t", headers, shown)
		}
		if told := strings.Contains(f.Message, "4321"); told != (headers == "on") {
			t.Errorf("headers %q: the message is %q", headers, f.Message)
		}
		repl := caddy.NewReplacer()
		f.setPlaceholders(repl, "i")
		if _, set := repl.Get("http.llm.refusal.used"); set != (headers == "on") {
			t.Errorf("headers %q: the placeholder of what is used is set: %t", headers, set)
		}
	}
}

func TestCallsThatNeverFit(t *testing.T) {
	for _, tc := range []struct {
		name   string
		config Config
		needs  []int64
		wants  wants
		want   string // the message; empty: the call is refused for now
	}{
		{"one that would fit later", Config{ConsumerBased: true, Limits: parse(t, "1k tokens per hour")}, []int64{1000}, wants{}, ""},
		{
			"tokens",
			Config{ConsumerBased: true, Limits: parse(t, "1k tokens per hour")},
			[]int64{5100},
			wants{input: 100, output: 5000, total: 5100, choices: 1},
			"this call may use up to 5100 of a limit of 1000 tokens per hour; a cap of 900 output tokens fits",
		},
		{
			"tokens of several choices",
			Config{ConsumerBased: true, Limits: parse(t, "1k tokens per hour")},
			[]int64{5100},
			wants{input: 100, output: 5000, total: 5100, choices: 5},
			"this call may use up to 5100 of a limit of 1000 tokens per hour; a cap of 180 output tokens fits",
		},
		{
			"output tokens",
			Config{ConsumerBased: true, Limits: parse(t, "1k output_tokens per hour")},
			[]int64{5000},
			wants{input: 100, output: 5000, total: 5100, choices: 1},
			"this call may use up to 5000 of a limit of 1000 output_tokens per hour; a cap of 1000 output tokens fits",
		},
		{
			"input tokens",
			Config{ConsumerBased: true, Limits: parse(t, "1k input_tokens per hour")},
			[]int64{2000},
			wants{input: 2000, output: 16, total: 2016, choices: 1},
			"this call may use up to 2000 of a limit of 1000 input_tokens per hour; a shorter prompt fits",
		},
		{
			"a prompt that fills it alone",
			Config{ConsumerBased: true, Limits: parse(t, "1k tokens per hour")},
			[]int64{2016},
			wants{input: 2000, output: 16, total: 2016, choices: 1},
			"this call may use up to 2016 of a limit of 1000 tokens per hour; a shorter prompt fits",
		},
		{
			"no choices known",
			Config{ConsumerBased: true, Limits: parse(t, "1k tokens per hour")},
			[]int64{2000},
			wants{input: 500, output: 1500, total: 2000},
			"this call may use up to 2000 of a limit of 1000 tokens per hour; a cap of 500 output tokens fits",
		},
		{
			"a shared limit",
			Config{Limits: parse(t, "1k tokens per hour")},
			[]int64{5000},
			wants{input: 100, output: 4900, total: 5000, choices: 1},
			"this call at its largest is more than the whole limit",
		},
		{
			"a shared limit that is shown",
			Config{Headers: "on", Limits: parse(t, "1k tokens per hour")},
			[]int64{5000},
			wants{input: 100, output: 4900, total: 5000, choices: 1},
			"this call may use up to 5000 of a limit of 1000 tokens per hour; a cap of 900 output tokens fits",
		},
		{"a rule that only reports", Config{ConsumerBased: true, Limits: parse(t, "1k tokens per hour shadow", "1 requests per hour")}, []int64{5000, 1}, wants{output: 5000, total: 5000, choices: 1}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestLimiter(t, tc.config)
			results := make([]store.Result, len(l.rules))
			for i := range results {
				results[i].Exceeded = true
			}
			e, takes := refused(l, tc.needs, results...)
			f := l.violated(e, takes, &tc.wants)
			if tc.want == "" {
				if f.Status != 429 || f.violation == nil {
					t.Errorf("got %+v", f)
				}
				return
			}
			if f.Status != 400 || f.Code != "request_too_large" || f.RetryAfter != 0 || f.violation != nil {
				t.Errorf("got %+v", f)
			}
			if f.Message != tc.want {
				t.Errorf("got  %q\nwant %q", f.Message, tc.want)
			}
		})
	}
}

func TestRejectChangesTheStatus(t *testing.T) {
	l := newTestLimiter(t, Config{Reject: &Reject{Status: 403}, Limits: parse(t, "1 requests per hour")})
	e, takes := refused(l, nil, store.Result{Exceeded: true})
	if f := l.violated(e, takes, &wants{}); f.Status != 403 || f.Code != "rate_limit_exceeded" {
		t.Errorf("got %+v", f)
	}
}

func TestRefusalPlaceholders(t *testing.T) {
	l := newTestLimiter(t, Config{ConsumerBased: true, Limits: parse(t, "1k tokens per day")})
	e, takes := refused(l, nil, store.Result{Used: 1200, Exceeded: true, ResetAt: noon, RetryAfter: 90 * time.Second})
	f := l.violated(e, takes, &wants{})
	repl := caddy.NewReplacer()
	f.setPlaceholders(repl, "mine")
	for name, want := range map[string]string{
		"instance": "mine", "status": "429", "code": "rate_limit_exceeded", "message": f.Message, "retry_after": "90",
		"rule": "tokens per day", "unit": "tokens", "window": "day", "remaining": "0", "reset": "2026-06-01T12:00:00Z", "limit": "1000", "used": "1200",
	} {
		if got := repl.ReplaceKnown(fmt.Sprintf("{http.llm.refusal.%s}", name), ""); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	f.setPlaceholders(nil, "mine") // outside of Caddy's server there are none
}
