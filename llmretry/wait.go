package llmretry

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

const (
	// firstBackoff is the longest wait before the second attempt where the provider names
	// none. It doubles from one attempt to the next.
	firstBackoff = 500 * time.Millisecond
	// spread is what is added at most to a wait that the provider names, as its part: it
	// names the same to everybody.
	spread = 10
)

// backoff is a wait before attempt n, from 2 on: any up to a bound that doubles, so that
// calls which failed together do not come back together.
func backoff(n int, most time.Duration) time.Duration {
	bound := min(firstBackoff<<(n-2), most)
	return rand.N(bound + 1)
}

// asked is how long the provider asks to wait, from header and body of an answer; ok is
// false if it does not say.
func asked(h http.Header, body []byte, now time.Time) (wait time.Duration, ok bool) {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil && ms >= 0 {
		return clamp(ms / 1000), true
	}
	if s := strings.TrimSpace(h.Get("Retry-After")); s != "" {
		if sec, err := strconv.ParseFloat(s, 64); err == nil && sec >= 0 {
			return clamp(sec), true
		}
		if at, err := http.ParseTime(s); err == nil {
			return max(at.Sub(now), 0), true
		}
	}
	for _, kind := range exhausted {
		if strings.TrimSpace(h.Get(kind.remaining)) != "0" {
			continue
		}
		if d, known := until(h.Get(kind.reset), now); known {
			wait, ok = max(wait, d), true
		}
	}
	if ok {
		return wait, true
	}
	// google.rpc.RetryInfo
	if s := gjson.GetBytes(body, `error.details.#(@type=="type.googleapis.com/google.rpc.RetryInfo").retryDelay`); s.Type == gjson.String {
		if d, err := time.ParseDuration(s.Str); err == nil && d >= 0 {
			return d, true
		}
	}
	return 0, false
}

// exhausted are the fields of providers' own limits.
var exhausted = []struct{ remaining, reset string }{
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
}

// until is the time to a reset: a duration as OpenAI writes it, a date as Anthropic does,
// seconds, or Unix time in seconds or milliseconds.
func until(s string, now time.Time) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		switch {
		case n < 0:
			return 0, false
		case n > 1e12:
			return max(time.UnixMilli(int64(min(n, 1e15))).Sub(now), 0), true
		case n > 1e9:
			return max(time.Unix(int64(n), 0).Sub(now), 0), true
		}
		return clamp(n), true
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, true
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

// longest is a wait that nobody sits out.
const longest = 365 * 24 * time.Hour

// clamp turns seconds of anybody's into a duration.
func clamp(sec float64) time.Duration {
	if !(sec < longest.Seconds()) { // not a number, too
		return longest
	}
	return time.Duration(sec * float64(time.Second))
}

// hopeless tells whether an answer says that waiting does not help.
func hopeless(h http.Header, body []byte) bool {
	return strings.EqualFold(strings.TrimSpace(h.Get("X-Should-Retry")), "false") ||
		gjson.GetBytes(body, "error.code").Str == "insufficient_quota"
}

// deadline is when the client gives up; zero if it does not say. OpenAI's and Anthropic's
// SDKs send their timeout in seconds.
func deadline(r *http.Request, now time.Time) time.Time {
	at, _ := r.Context().Deadline()
	sec, err := strconv.ParseFloat(r.Header.Get("X-Stainless-Timeout"), 64)
	if err != nil || !(sec > 0) || sec > longest.Seconds() {
		return at
	}
	if told := now.Add(clamp(sec)); at.IsZero() || told.Before(at) {
		return told
	}
	return at
}
