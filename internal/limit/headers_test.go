package limit

import (
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// structured is a structured field (RFC 9651) with one string and whole numbers as
// parameters.
var structured = regexp.MustCompile(`^"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"(?:;[a-z*][a-z0-9_.*-]*=-?[0-9]{1,15})+$`)

// ruleOf is a rule that is ready to be checked.
func ruleOf(t testing.TB, line string) *rule {
	t.Helper()
	r, err := parse(t, line)[0].compile(time.UTC, TokenLimit)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// state is a rule of which so much is used and held, and that resets after in.
func state(t testing.TB, line string, used, held int64, in time.Duration) quota {
	t.Helper()
	r := ruleOf(t, line)
	res := &store.Result{Limit: r.limit, Used: used, Held: held}
	if in > 0 {
		res.ResetAt = noon.Add(in)
	}
	return quota{r, res}
}

// exceeded marks a rule as one that refused.
func exceeded(q quota) quota {
	q.result.Exceeded = true
	return q
}

func TestQuotaHeaders(t *testing.T) {
	for _, tc := range []struct {
		name   string
		quotas []quota
		want   map[string]string
	}{
		{"one of requests", []quota{state(t, "100 requests per hour", 40, 0, 30*time.Minute)}, map[string]string{
			"Ratelimit-Policy": `"requests per hour";q=100;w=3600`, "Ratelimit": `"requests per hour";r=60;t=1800`,
			"X-Ratelimit-Limit": "100", "X-Ratelimit-Remaining": "60", "X-Ratelimit-Reset": "1800",
			"X-Ratelimit-Limit-Requests": "100", "X-Ratelimit-Remaining-Requests": "60", "X-Ratelimit-Reset-Requests": "30m0s",
		}},
		{"what calls hold is not left", []quota{state(t, "1k tokens per minute", 300, 500, 1500*time.Millisecond)}, map[string]string{
			"Ratelimit-Policy": `"tokens per minute";q=1000;w=60`, "Ratelimit": `"tokens per minute";r=200;t=2`,
			"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "200", "X-Ratelimit-Reset": "2",
			"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "200", "X-Ratelimit-Reset-Tokens": "2s",
		}},
		{"more used than there was", []quota{state(t, "1k tokens per minute", 1500, 0, time.Minute)}, map[string]string{
			"Ratelimit-Policy": `"tokens per minute";q=1000;w=60`, "Ratelimit": `"tokens per minute";r=0;t=60`,
			"X-Ratelimit-Limit": "1000", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "60",
			"X-Ratelimit-Limit-Tokens": "1000", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "1m0s",
		}},
		{"a month is longer than a timer", []quota{state(t, "1M output_tokens per month", 0, 0, 30*24*time.Hour)}, map[string]string{
			"Ratelimit-Policy": `"output_tokens per month";q=1000000;w=2678400`, "Ratelimit": `"output_tokens per month";r=1000000;t=2147483`,
			"X-Ratelimit-Limit": "1000000", "X-Ratelimit-Remaining": "1000000", "X-Ratelimit-Reset": "2147483",
			"X-Ratelimit-Limit-Tokens": "1000000", "X-Ratelimit-Remaining-Tokens": "1000000", "X-Ratelimit-Reset-Tokens": "720h0m0s",
		}},
		{"a limit of calls at one time", []quota{state(t, "4 concurrent", 0, 3, 0)}, map[string]string{
			"Ratelimit-Policy": `"concurrent";q=4`, "Ratelimit": `"concurrent";r=1;t=1`,
			"X-Ratelimit-Limit": "4", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "1",
		}},
		{"a window over already", []quota{state(t, "5 requests per minute", 1, 0, time.Nanosecond)}, map[string]string{
			"Ratelimit-Policy": `"requests per minute";q=5;w=60`, "Ratelimit": `"requests per minute";r=4;t=1`,
			"X-Ratelimit-Limit": "5", "X-Ratelimit-Remaining": "4", "X-Ratelimit-Reset": "1",
			"X-Ratelimit-Limit-Requests": "5", "X-Ratelimit-Remaining-Requests": "4", "X-Ratelimit-Reset-Requests": "1ms",
		}},
		{"the tightest of several", []quota{
			state(t, "100 requests per hour", 10, 0, time.Hour),
			state(t, "10k tokens per hour", 9_000, 0, time.Hour),
			state(t, "1M tokens per day", 100_000, 0, 12*time.Hour),
			state(t, "5 requests per minute", 2, 0, 20*time.Second),
		}, map[string]string{
			"Ratelimit-Policy": `"tokens per hour";q=10000;w=3600`, "Ratelimit": `"tokens per hour";r=1000;t=3600`,
			"X-Ratelimit-Limit": "10000", "X-Ratelimit-Remaining": "1000", "X-Ratelimit-Reset": "3600",
			"X-Ratelimit-Limit-Requests": "5", "X-Ratelimit-Remaining-Requests": "3", "X-Ratelimit-Reset-Requests": "20s",
			"X-Ratelimit-Limit-Tokens": "10000", "X-Ratelimit-Remaining-Tokens": "1000", "X-Ratelimit-Reset-Tokens": "1h0m0s",
		}},
		{"one that refused, though something is left", []quota{
			state(t, "100 requests per hour", 99, 0, time.Hour),
			exceeded(state(t, "10k tokens per day", 4_000, 0, 6*time.Hour)),
		}, map[string]string{
			"Ratelimit-Policy": `"tokens per day";q=10000;w=86400`, "Ratelimit": `"tokens per day";r=0;t=21600`,
			"X-Ratelimit-Limit": "10000", "X-Ratelimit-Remaining": "0", "X-Ratelimit-Reset": "21600",
			"X-Ratelimit-Limit-Requests": "100", "X-Ratelimit-Remaining-Requests": "1", "X-Ratelimit-Reset-Requests": "1h0m0s",
			"X-Ratelimit-Limit-Tokens": "10000", "X-Ratelimit-Remaining-Tokens": "0", "X-Ratelimit-Reset-Tokens": "6h0m0s",
		}},
		{"equally tight ones", []quota{
			state(t, "100 requests per hour", 50, 0, time.Hour),
			state(t, "10 requests per week", 5, 0, 24*time.Hour),
		}, map[string]string{
			"Ratelimit-Policy": `"requests per week";q=10;w=604800`, "Ratelimit": `"requests per week";r=5;t=86400`,
			"X-Ratelimit-Limit": "10", "X-Ratelimit-Remaining": "5", "X-Ratelimit-Reset": "86400",
			"X-Ratelimit-Limit-Requests": "10", "X-Ratelimit-Remaining-Requests": "5", "X-Ratelimit-Reset-Requests": "24h0m0s",
		}},
		{"amounts beyond what the fields hold", []quota{state(t, "9007199254740991 tokens per 90s", 0, 0, time.Minute)}, map[string]string{
			"Ratelimit-Policy": `"tokens per 90s";q=999999999999999;w=90`, "Ratelimit": `"tokens per 90s";r=999999999999999;t=60`,
			"X-Ratelimit-Limit": "9007199254740991", "X-Ratelimit-Remaining": "9007199254740991", "X-Ratelimit-Reset": "60",
			"X-Ratelimit-Limit-Tokens": "9007199254740991", "X-Ratelimit-Remaining-Tokens": "9007199254740991", "X-Ratelimit-Reset-Tokens": "1m0s",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := make(http.Header)
			writeQuotas(h, tc.quotas, noon)
			for name, want := range tc.want {
				if got := h.Values(name); !slices.Equal(got, []string{want}) {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			for name := range h {
				if _, ok := tc.want[name]; !ok {
					t.Errorf("%s: %s is not expected", name, h[name])
				}
			}
		})
	}
}

func TestQuotaHeadersReplaceTheProviders(t *testing.T) {
	provider := http.Header{
		"X-Ratelimit-Limit-Requests": {"9000"}, "X-Ratelimit-Remaining-Tokens": {"7", "8"}, "X-Ratelimit-Reset-Project-Tokens": {"6m0s"},
		"X-Ratelimit-Renewalperiod-Tokens": {"60"}, "Anthropic-Ratelimit-Requests-Limit": {"50"}, "Ratelimit": {`"api";r=999;t=295`},
		"Ratelimit-Policy": {`"fixed";q=1000`}, "Ratelimit-Limit": {"1000"}, "Ratelimit-Remaining": {"999"},
		"Retry-After": {"7"}, "Content-Type": {"application/json"}, "X-Request-Id": {"r1"}, "X-Ratelimited": {"no"},
	}
	h := maps.Clone(provider)
	writeQuotas(h, []quota{state(t, "100 tokens per hour", 1, 0, time.Hour)}, noon)
	for name, want := range map[string]string{
		"Ratelimit": `"tokens per hour";r=99;t=3600`, "X-Ratelimit-Remaining-Tokens": "99",
		"Retry-After": "7", "Content-Type": "application/json", "X-Request-Id": "r1", "X-Ratelimited": "no",
	} {
		if got := h.Values(name); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{
		"X-Ratelimit-Limit-Requests", "X-Ratelimit-Reset-Project-Tokens", "X-Ratelimit-Renewalperiod-Tokens",
		"Anthropic-Ratelimit-Requests-Limit", "Ratelimit-Limit", "Ratelimit-Remaining",
	} {
		if got := h.Values(name); len(got) > 0 {
			t.Errorf("%s: %q is the provider's", name, got)
		}
	}

	// where all rules are shared the client is told nothing, of the operator's account
	// neither
	h = maps.Clone(provider)
	writeQuotas(h, nil, noon)
	want := http.Header{"Retry-After": {"7"}, "Content-Type": {"application/json"}, "X-Request-Id": {"r1"}, "X-Ratelimited": {"no"}}
	if !maps.EqualFunc(h, want, slices.Equal[[]string]) {
		t.Errorf("without own rules the client gets %v", h)
	}
}

// Handlers add to fields, and Caddy's header directive replaces values where they stand.
func TestQuotaHeadersShareNothingThatIsWrittenTo(t *testing.T) {
	dollars := newCostLimiter(t, Config{}, Rule{Amount: "$5", Window: "day"}).rules[0]
	rules := []*rule{ruleOf(t, "100 requests per hour"), ruleOf(t, "10k tokens per hour"), dollars}
	write := func(own int64) http.Header {
		var qs []quota
		for _, r := range rules {
			qs = append(qs, quota{r, &store.Result{Limit: r.limit + own, Used: 1, ResetAt: noon.Add(time.Hour)}})
		}
		h := make(http.Header)
		writeQuotas(h, qs, noon)
		return h
	}
	for _, tc := range []struct {
		name   string
		own    int64
		change func(h http.Header, name string)
	}{
		{"added to", 0, func(h http.Header, name string) { h.Add(name, "more") }},
		{"replaced where it stands", 0, func(h http.Header, name string) { h[name][0] = "more" }},
		{"of the consumer's own limit", 1_000_000, func(h http.Header, name string) { h[name][0] = "more" }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b, want := write(tc.own), write(tc.own), write(tc.own)
			if len(want) != 13 {
				t.Fatalf("%d fields are written: %v", len(want), want)
			}
			changed := make(http.Header)
			for name := range a {
				tc.change(a, name)
				changed[name] = slices.Clone(a[name])
			}
			for name := range a {
				if !slices.Equal(a[name], changed[name]) {
					t.Errorf("%s: %q was changed through another field", name, a[name])
				}
			}
			for when, h := range map[string]http.Header{"before": b, "after": write(tc.own)} {
				if !maps.EqualFunc(h, want, slices.Equal[[]string]) {
					t.Errorf("an answer written %s has %v, want %v", when, h, want)
				}
			}
		})
	}
}

func TestQuotaHeadersAreWellFormed(t *testing.T) {
	lines := []string{
		"1 requests per minute", "9007199254740991 tokens per month", "3 uncached_tokens per rolling 90s",
		"10 output_tokens per hour burst 7", "5 concurrent", "12k input_tokens per 1h30m", "7 requests per 1.5s",
	}
	rapid.Check(t, func(rt *rapid.T) {
		var qs []quota
		for range rapid.IntRange(1, 5).Draw(rt, "rules") {
			q := state(t, rapid.SampledFrom(lines).Draw(rt, "rule"),
				rapid.Int64().Draw(rt, "used"), rapid.Int64Min(0).Draw(rt, "held"), time.Duration(rapid.Int64().Draw(rt, "reset")))
			q.result.Exceeded = rapid.Bool().Draw(rt, "exceeded")
			if q.result.Used < 0 {
				q.result.Used = max(q.result.Used, -maxAmount) // no store grants more
			}
			qs = append(qs, q)
		}
		h := make(http.Header)
		writeQuotas(h, qs, noon)
		for _, name := range []string{hPolicy, hRateLimit} {
			if v := h.Get(name); !structured.MatchString(v) {
				rt.Errorf("%s: %q is no structured field", name, v)
			}
		}
		reset, left := h.Get(hReset), h.Get(hRemaining)
		if n, err := time.ParseDuration(reset + "s"); err != nil || n < time.Second || n > 2_147_483*time.Second {
			rt.Errorf("reset %q is not between 1 and 2147483", reset)
		}
		if strings.HasPrefix(left, "-") {
			rt.Errorf("%s is left", left)
		}
		for _, name := range []string{hResetRequests, hResetTokens} {
			if v := h.Get(name); v != "" {
				if d, err := time.ParseDuration(v); err != nil || d < 0 {
					rt.Errorf("%s: %q is no duration", name, v)
				}
			}
		}
		if slices.ContainsFunc(qs, func(q quota) bool { return q.result.Exceeded }) && left != "0" {
			rt.Errorf("a rule refused, and %s is left", left)
		}
	})
}

func TestSeconds(t *testing.T) {
	for _, tc := range []struct {
		in   time.Duration
		want int64
	}{
		{-time.Hour, 1},
		{0, 1},
		{1, 1},
		{time.Second, 1},
		{time.Second + 1, 2},
		{59_999 * time.Millisecond, 60},
		{2_147_483 * time.Second, 2_147_483},
		{2_147_483*time.Second + 1, 2_147_483},
		{31 * 24 * time.Hour, 2_147_483},
		{math.MaxInt64, 2_147_483},
		{math.MinInt64, 1},
	} {
		if got := seconds(tc.in); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.in, got, tc.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, tc := range []struct {
		in   time.Duration
		want string
	}{
		{-time.Second, "0s"},
		{0, "0s"},
		{1, "1ms"},
		{850 * time.Millisecond, "850ms"},
		{999_999_999, "1s"},
		{time.Second, "1s"},
		{5400 * time.Millisecond, "6s"},
		{6 * time.Minute, "6m0s"},
		{720 * time.Hour, "720h0m0s"},
		{math.MaxInt64, "2562047h47m16.854775807s"},
	} {
		if got := span(tc.in); got != tc.want {
			t.Errorf("%d ns: got %q, want %q", tc.in, got, tc.want)
		}
	}
}

// A span reads as the duration that it is rounded up to.
func TestSpanIsWrittenLikeADuration(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := time.Duration(rapid.Int64Range(1, math.MaxInt64-int64(time.Second)).Draw(rt, "span"))
		if rapid.Bool().Draw(rt, "short") {
			d %= 3 * time.Hour
		}
		unit := time.Second
		if d < time.Second {
			unit = time.Millisecond
		}
		want := (d + unit - 1).Truncate(unit).String()
		if d <= 0 {
			want = "0s"
		}
		if got := span(d); got != want {
			rt.Fatalf("%d ns: got %q, want %q", d, got, want)
		}
	})
}

func BenchmarkWriteQuotas(b *testing.B) {
	qs := []quota{
		state(b, "100 requests per minute", 10, 0, time.Minute),
		state(b, "10k tokens per hour", 9_000, 100, time.Hour),
		state(b, "1M tokens per day", 100_000, 100, 12*time.Hour),
	}
	h := make(http.Header)
	b.ReportAllocs()
	for b.Loop() {
		writeQuotas(h, qs, noon)
	}
}

// A placeholder in the config may leave a field without a name.
func TestAFieldWithoutANameIsLeftAlone(t *testing.T) {
	h := http.Header{"": {"x"}, "X": {"y"}, "Anthropic-Ratelimit-Tokens-Limit": {"1"}, "Ratelimit": {"1"}, "X-Ratelimit-Any": {"1"}}
	dropProviders(h)
	if len(h) != 2 || h[""] == nil || h["X"] == nil {
		t.Errorf("got %v", h)
	}
}
