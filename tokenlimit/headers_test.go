package tokenlimit_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
)

func TestHeadersTellWhatIsLeft(t *testing.T) {
	g := start(t, "", `route {
		token_limit tells-all {
			limit 1k tokens per day
		}
		token_limit tells-own {
			consumer_based
			limit 100 requests per day
			limit 100 tokens per day
		}
		test_upstream
	}`)
	answer = func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Ratelimit-Remaining-Tokens", "149999")
		w.Header().Set("X-Ratelimit-Limit-Input-Images", "7")
		return chat(10, 5)(w, r)
	}
	w := g.chat("shop")
	want(t, w, 200)
	h := w.Header()
	for name, want := range map[string]string{
		"X-Ratelimit-Limit-Requests": "100", "X-Ratelimit-Remaining-Requests": "99",
		"X-Ratelimit-Limit-Tokens": "100", "X-Ratelimit-Remaining-Tokens": strconv.Itoa(100 - 8 - 5),
		"X-Ratelimit-Limit": "100", "Ratelimit-Policy": `"tokens per day";q=100;w=86400`, "X-Ratelimit-Limit-Input-Images": "",
	} {
		if got := h.Get(name); got != want || len(h.Values(name)) > 1 {
			t.Errorf("%s: got %q, want %q", name, h.Values(name), want)
		}
	}
}

func TestHeadersOffAndOn(t *testing.T) {
	for i, tc := range []struct {
		words string
		want  string
	}{
		{"consumer_based", "99"},
		{"consumer_based\nheaders off", ""},
		{"", ""},
		{"headers on", "99"},
	} {
		g := start(t, "", "token_limit headers-"+strconv.Itoa(i)+" {\nlimit 100 requests per day\n"+tc.words+"\n}\ntest_upstream")
		if got := g.chat("shop").Header().Get("X-Ratelimit-Remaining"); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.words, got, tc.want)
		}
	}
}

func TestASharedRefusalTellsNoAmounts(t *testing.T) {
	g := start(t, "", `route {
		token_limit secret-own {
			consumer_based
			limit 777 requests per day
		}
		token_limit secret-all {
			limit 4321 tokens per week
		}
		test_upstream
	}`)
	answer = chat(4000, 1000)
	want(t, g.chat("shop"), 200)
	w := g.chat("shop")
	want(t, w, 429)
	for name, values := range w.Header() {
		if strings.Contains(strings.Join(values, " "), "4321") || strings.Contains(strings.Join(values, " "), "5000") {
			t.Errorf("%s: %q", name, values)
		}
	}
	if b := w.Body.String(); strings.Contains(b, "4321") || strings.Contains(b, "5000") || !strings.Contains(b, "all callers share") {
		t.Errorf("got %s", b)
	}
	h := w.Header()
	if h.Get("X-Ratelimit-Limit") != "" || h.Get("X-Ratelimit-Remaining") != "0" || h.Get("X-Ratelimit-Limit-Requests") != "777" {
		t.Errorf("got %v", h)
	}
	g.used("secret-own", "shop", "requests per day", 1)
}
