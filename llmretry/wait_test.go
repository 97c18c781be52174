package llmretry

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWaitsThatProvidersAskFor(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name   string
		header []string
		body   string
		want   time.Duration
		ok     bool
	}{
		{name: "nothing"},
		{name: "seconds", header: []string{"Retry-After", "7"}, want: 7 * time.Second, ok: true},
		{name: "a fraction", header: []string{"Retry-After", "0.5"}, want: 500 * time.Millisecond, ok: true},
		{name: "none", header: []string{"Retry-After", "0"}, ok: true},
		{name: "a date", header: []string{"Retry-After", "Sun, 01 Mar 2026 12:00:09 GMT"}, want: 9 * time.Second, ok: true},
		{name: "a date that has passed", header: []string{"Retry-After", "Sun, 01 Mar 2026 11:00:00 GMT"}, ok: true},
		{name: "milliseconds first", header: []string{"Retry-After", "7", "Retry-After-Ms", "6500"}, want: 6500 * time.Millisecond, ok: true},
		{name: "nonsense", header: []string{"Retry-After", "soon", "Retry-After-Ms", "-1"}},
		{name: "more than there is", header: []string{"Retry-After", "1e300"}, want: longest, ok: true},
		{name: "not a number", header: []string{"Retry-After", "NaN"}},
		{name: "OpenAI's reset of what is used up", header: []string{"X-Ratelimit-Remaining-Requests", "9", "X-Ratelimit-Reset-Requests", "1h", "X-Ratelimit-Remaining-Tokens", "0", "X-Ratelimit-Reset-Tokens", "6m0s"}, want: 6 * time.Minute, ok: true},
		{name: "Anthropic's", header: []string{"Anthropic-Ratelimit-Input-Tokens-Remaining", "0", "Anthropic-Ratelimit-Input-Tokens-Reset", "2026-03-01T12:00:20Z"}, want: 20 * time.Second, ok: true},
		{name: "OpenRouter's", header: []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "1772366430000"}, want: 30 * time.Second, ok: true},
		{name: "Google's", body: `{"error":{"code":429,"details":[{"@type":"x"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"17.5s"}]}}`, want: 17500 * time.Millisecond, ok: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := make(http.Header)
			for i := 0; i+1 < len(tt.header); i += 2 {
				h.Set(tt.header[i], tt.header[i+1])
			}
			if got, ok := asked(h, []byte(tt.body), now); got != tt.want || ok != tt.ok {
				t.Errorf("got %s, %t; want %s, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzAsked(f *testing.F) {
	f.Add("1", "2", "6m0s", `{"error":{"details":[{"retryDelay":"1s"}]}}`)
	f.Add("Sun, 01 Mar 2026 12:00:09 GMT", "", "1772366430", "{")
	f.Fuzz(func(t *testing.T, after, ms, reset, body string) {
		h := http.Header{"Retry-After": {after}, "Retry-After-Ms": {ms}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {reset}}
		if d, ok := asked(h, []byte(body), time.Now()); d < 0 || d > 0 && !ok {
			t.Errorf("%s, %t", d, ok)
		}
	})
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, most := rapid.IntRange(2, mostAttempts).Draw(t, "n"), time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "most"))
		if d := backoff(n, most); d < 0 || d > most || d > firstBackoff<<(n-2) {
			t.Errorf("waits %s", d)
		}
	})
}

func TestDeadlineOfTheClient(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		value string
		want  time.Duration
	}{{"", 0}, {"600", 600 * time.Second}, {"2.5", 2500 * time.Millisecond}, {"0", 0}, {"-1", 0}, {"NaN", 0}, {"x", 0}} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("X-Stainless-Timeout", tt.value)
		got := deadline(r, now)
		if tt.want == 0 != got.IsZero() || tt.want > 0 && !got.Equal(now.Add(tt.want)) {
			t.Errorf("%q: %s", tt.value, got)
		}
	}
}

// TestBudgetBoundsRetries holds the number of retries to the share of the calls and the
// floor, in whatever order calls and retries come.
func TestBudgetBoundsRetries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Now()
		now := begin
		var b budget
		b.init(budgetFloor, budgetMost, now)
		calls, retries := 0, 0
		for range rapid.IntRange(1, 500).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				now = now.Add(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
			case 1, 2:
				b.call()
				calls++
			default:
				if b.take(now, 0) {
					retries++
				}
			}
			most := budgetFirst + budgetShare*float64(calls) + budgetFloor*now.Sub(begin).Seconds()
			if float64(retries) > most+1e-6 {
				t.Fatalf("%d retries after %d calls and %s", retries, calls, now.Sub(begin))
			}
		}
	})
}
