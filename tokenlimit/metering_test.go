package tokenlimit_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestEndpointsThatAreNotMetered(t *testing.T) {
	const background = `{"model":"m","background":true,"input":"x"}`
	for i, tc := range []struct {
		name, allow  string
		method, path string
		body         string
		headers      []string
		status       int
	}{
		{"batches are denied", "", "POST", "/v1/batches", `{}`, nil, 403},
		{"batches are denied by the word", "unmetered deny", "POST", "/v1/batches", `{}`, nil, 403},
		{"batches are allowed by the word", "unmetered allow", "POST", "/v1/batches", `{}`, nil, 200},
		{"background responses are denied", "", "POST", "/v1/responses", background, nil, 403},
		{"background responses are allowed by the word", "unmetered allow", "POST", "/v1/responses", background, nil, 200},
		{"minting is denied", "", "POST", "/v1/realtime/sessions", `{}`, nil, 403},
		{"minting is never allowed", "unmetered allow", "POST", "/v1/realtime/sessions", `{}`, nil, 403},
		{"an upgrade is denied", "", "GET", "/v1/realtime/translations?model=m", "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403},
		{"an upgrade is never allowed", "unmetered allow", "GET", "/v1/realtime/translations?model=m", "", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403},
		{"what is metered is allowed", "", "POST", "/v1/chat/completions", question, nil, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			instance := "endpoints-" + strconv.Itoa(i)
			g := start(t, "", "token_limit "+instance+" {\nlimit 10k tokens per day\nlimit 10 requests per day\n"+tc.allow+"\n}\ntest_upstream")
			w := g.do(tc.method, tc.path, tc.body, tc.headers...)
			want(t, w, tc.status)
			if tc.status == 200 {
				g.used(instance, "", "requests per day", 1)
				return
			}
			var v struct{ Error struct{ Code string } }
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v.Error.Code != "endpoint_not_metered" {
				t.Errorf("got %s (%v)", w.Body, err)
			}
			for _, name := range []string{"Retry-After", "X-Ratelimit-Ban-Level"} {
				if got := w.Header().Get(name); got != "" {
					t.Errorf("%s: %s: waiting does not help", name, got)
				}
			}
			g.used(instance, "", "requests per day", 0)
		})
	}
}

func TestMintingIsDeniedWhereOnlyRequestsCount(t *testing.T) {
	g := start(t, "", "token_limit minting-requests {\nlimit 10 requests per day\nunmetered allow\n}\ntest_upstream")
	want(t, g.do("POST", "/v1/organization/admin_api_keys", `{}`), 403)
	want(t, g.do("POST", "/v1/batches", `{}`), 200) // it counts the request, which is all that is asked for
	g.used("minting-requests", "", "requests per day", 1)
}

func TestUnmeteredCallsCountAsRequestsAlone(t *testing.T) {
	g := start(t, "", "token_limit unmetered {\nlimit 10k tokens per day\nlimit 10 requests per day\nunmetered allow\n}\ntest_upstream")
	answer = reply(200, `{"id":"batch_1","object":"batch"}`)
	want(t, g.do("POST", "/v1/batches", `{}`), 200)
	g.used("unmetered", "", "tokens per day", 0)
	g.used("unmetered", "", "requests per day", 1)
}

func TestFreeEndpointsCostARequest(t *testing.T) {
	g := start(t, "", "token_limit free {\nlimit 20 tokens per day\nlimit 100 requests per day\n}\ntest_upstream")
	want(t, g.chat(""), 200)
	want(t, g.chat(""), 200) // 30 of 20 are used now
	answer = reply(200, `{"object":"list","data":[],"results":[]}`)
	for _, call := range [][2]string{
		{"GET", "/v1/models"},
		{"GET", "/v1/responses/resp_1"},
		{"POST", "/v1/moderations"},
		{"POST", "/v1/messages/count_tokens"},
		{"DELETE", "/v1/files/f"},
		{"HEAD", "/v1/chat/completions"},
	} {
		want(t, g.do(call[0], call[1], `{"model":"m","input":"x"}`), 200)
	}
	want(t, g.chat(""), 429)
	g.used("free", "", "tokens per day", 30)
	g.used("free", "", "requests per day", 8)
}

// Behind a connection of its own a session would cost one request, however long.
func TestConnectionsAreDeniedWhereOnlyRequestsCount(t *testing.T) {
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	g := start(t, "", "token_limit connections {\nlimit 10 requests per day\n}\ntest_upstream")
	want(t, g.do("GET", "/v1/realtime?model=m", "", upgrade...), 403)
	want(t, g.do("GET", "/v1/other", "", upgrade...), 403)
	g.used("connections", "", "requests per day", 0)
	g = start(t, "", "token_limit connections-allowed {\nlimit 10 requests per day\nunmetered allow\n}\ntest_upstream")
	want(t, g.do("GET", "/v1/realtime?model=m", "", upgrade...), 200)
	g.used("connections-allowed", "", "requests per day", 1)
}

// The path is the client's word: behind a rewrite it may lead to a call that spends.
func TestFreeCallThatReportsUsagePays(t *testing.T) {
	g := start(t, "", "token_limit free-pays {\nlimit 20 tokens per day\n}\ntest_upstream")
	for range 3 {
		want(t, g.do("POST", "/v1/files", `{"model":"m","messages":[]}`), 200)
	}
	g.used("free-pays", "", "tokens per day", 45)
	// what is read, not done, repeats the usage of an earlier call
	want(t, g.do("GET", "/v1/responses/resp_1", ""), 200)
	g.used("free-pays", "", "tokens per day", 45)
}

func TestLimitsOfTokensAloneLetFreeCallsPass(t *testing.T) {
	g := start(t, "", "token_limit free-alone {\nlimit 1 tokens per day\n}\ntest_upstream")
	want(t, g.chat(""), 200)
	for range 3 {
		want(t, g.do("GET", "/v1/models", ""), 200)
	}
	g.used("free-alone", "", "tokens per day", 15)
}

func TestChargesDependOnTheOutcome(t *testing.T) {
	for i, tc := range []struct {
		name   string
		answer caddyhttp.HandlerFunc
		status int
		tokens int64
	}{
		{"usage", chat(10, 5), 200, 15},
		{"no usage", reply(200, `{"choices":[{"message":{"content":"hello"}}]}`), 200, 8 + 5}, // an estimate
		{"an error", reply(500, `{"error":{"message":"no"}}`), 500, 0},
		{"an error of the client's", reply(400, `{"error":{"message":"no"}}`), 400, 0},
		{"the provider's own limit", reply(429, `{"error":{"message":"no"}}`), 429, 0},
		{"an error that reports usage", reply(500, `{"error":{"message":"no"},"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}`), 500, 11},
		{"an error of a handler's", func(http.ResponseWriter, *http.Request) error {
			return caddyhttp.Error(502, errors.New("no upstream"))
		}, 502, 0},
		{"no answer", func(http.ResponseWriter, *http.Request) error { return nil }, 200, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			instance := "outcome-" + strconv.Itoa(i)
			g := start(t, "", "token_limit "+instance+" {\nlimit 10k tokens per day\nlimit 10 requests per day\nlimit 1 concurrent\n}\ntest_upstream")
			answer = tc.answer
			want(t, g.chat(""), tc.status)
			g.used(instance, "", "tokens per day", tc.tokens)
			g.used(instance, "", "requests per day", 1)
			g.used(instance, "", "concurrent", 0)
		})
	}
}

func TestAPanicIsChargedAndGoesOn(t *testing.T) {
	g := start(t, "", "token_limit panics {\nlimit 10k tokens per day\nlimit 1 concurrent\n}\ntest_upstream")
	answer = func(w http.ResponseWriter, _ *http.Request) error {
		io.WriteString(w, `{"choices":[{"message":{"content":"hel`)
		panic(http.ErrAbortHandler)
	}
	func() {
		defer func() {
			if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
				t.Errorf("recovered %v", got)
			}
		}()
		g.chat("")
	}()
	g.used("panics", "", "concurrent", 0)
	if c := g.counters("panics", "")["tokens per day"]; c.Used <= 0 || c.Reserved != 0 {
		t.Errorf("got %+v", c)
	}
}
