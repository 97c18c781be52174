package integration

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// The keys of the sites in these tests.
const (
	keyA       = "sk-test-application-a"
	keyB       = "sk-test-application-b"
	keyUnbound = "sk-test-no-application"
)

// hashOf is how a config names a key.
func hashOf(key string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key))) }

// auth is api_key_auth with the keys above.
var auth = `
	api_key_auth {
		key a ` + hashOf(keyA) + ` {
			application app-a
		}
		key b ` + hashOf(keyB) + ` {
			application app-b
		}
		key c ` + hashOf(keyUnbound) + `
		optional
	}
`

func TestTokenLimitOfOneApplicationLeavesTheOthersAlone(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 100 tokens per hour
		}
		reverse_proxy {upstream}
	}`)

	for i, want := range []int{200, 200, 429} {
		if a := g.chat(keyA); a.Status != want {
			t.Fatalf("call %d of application A: %d, want %d: %s", i+1, a.Status, want, a.Body)
		}
	}
	if n := up.calls(); n != 2 {
		t.Errorf("the upstream was called %d times, want 2", n)
	}
	if a := g.chat(keyB); a.Status != http.StatusOK {
		t.Errorf("application B: %d", a.Status)
	}

	// a key without application and a call without key are one consumer
	for i, key := range []string{keyUnbound, "", keyUnbound, ""} {
		want := map[bool]int{true: 200, false: 429}[i < 2]
		if a := g.chat(key); a.Status != want {
			t.Errorf("call %d as default: %d, want %d", i+1, a.Status, want)
		}
	}
	if r := g.used("", "default", "tokens per hour"); r.Used != 120 {
		t.Errorf("default has used %d, want 120", r.Used)
	}
}

// The check that the guide for operators describes.
func TestFreeTierOfFiveRequests(t *testing.T) {
	g := start(t, newUpstream(t, nil), `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 5 requests per hour
		}
		reverse_proxy {upstream}
	}`)
	var got []string
	for range 10 {
		a := g.chat(keyA)
		got = append(got, http.StatusText(a.Status))
		for _, h := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
			if a.Header.Get(h) == "" {
				t.Errorf("answer %d has no %s", len(got), h)
			}
		}
		if a.Status == http.StatusTooManyRequests && a.Header.Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("refused with %q remaining", a.Header.Get("X-RateLimit-Remaining"))
		}
	}
	want := strings.Repeat("OK ", 5) + strings.Repeat("Too Many Requests ", 5)
	if s := strings.Join(got, " ") + " "; s != want {
		t.Errorf("got %s", s)
	}
}
