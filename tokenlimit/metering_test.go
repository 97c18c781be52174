package tokenlimit_test

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
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

func TestConcurrentCallsAreHeldUntilTheyEnd(t *testing.T) {
	g := start(t, "", `token_limit at-work {
		consumer_based
		limit 2 concurrent
		limit 100 requests per day
		limit 10k tokens per day
	}
	test_upstream`)
	depth := 0
	var statuses []int
	answer = func(w http.ResponseWriter, r *http.Request) error {
		if depth++; depth <= 2 {
			statuses = append(statuses, g.chat("shop").Code)
		}
		if depth == 2 {
			c := g.counters("at-work", "shop")
			if c["concurrent"].Reserved != 2 || c["tokens per day"].Reserved != 2*(8+5) {
				t.Errorf("held: %+v", c)
			}
			statuses = append(statuses, g.chat("other").Code)
		}
		return chat(10, 5)(w, r)
	}
	want(t, g.chat("shop"), 200)
	if len(statuses) != 3 || statuses[0] != 429 || statuses[1] != 200 || statuses[2] != 200 {
		t.Errorf("got the statuses %v", statuses)
	}
	want(t, g.chat("shop"), 200)
	g.used("at-work", "shop", "concurrent", 0)
	g.used("at-work", "shop", "requests per day", 3)
	g.used("at-work", "shop", "tokens per day", 45)
}

func TestModesAdmitByTheirRule(t *testing.T) {
	for i, tc := range []struct {
		mode, body string
		limit      int64
		inside     int // the status of a call while this one is at work
	}{
		{"charge_after", question, 20, 200},
		{"reserve", question, 8 + 5, 429},
		{"reserve", question, 8 + 5 + 1, 200},
		{"strict", question, 300, 200},
		{"strict", question, 150, 429},
	} {
		t.Run(tc.mode+" "+strconv.FormatInt(tc.limit, 10), func(t *testing.T) {
			instance := "mode-" + strconv.Itoa(i)
			g := start(t, "", "token_limit "+instance+" {\nconsumer_based\nlimit "+strconv.FormatInt(tc.limit, 10)+" tokens per day\nmode "+tc.mode+"\n}\ntest_upstream")
			inside := 0
			answer = func(w http.ResponseWriter, r *http.Request) error {
				if inside == 0 {
					inside = -1
					inside = g.do("POST", "/v1/chat/completions", tc.body).Code
				}
				return chat(1, 1)(w, r)
			}
			want(t, g.do("POST", "/v1/chat/completions", tc.body), 200)
			if inside != tc.inside {
				t.Errorf("a call meanwhile got %d, want %d", inside, tc.inside)
			}
		})
	}
}

func TestStrictNeverLetsMoreThroughThanThereIs(t *testing.T) {
	const uncapped = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	g := start(t, "", "token_limit strict {\nconsumer_based\nlimit 1k tokens per day\nmode strict\n}\ntest_upstream")
	var seen struct {
		Max int64 `json:"max_completion_tokens"`
	}
	answer = func(w http.ResponseWriter, r *http.Request) error {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if int64(len(b)) != r.ContentLength {
			t.Errorf("Content-Length %d of %d bytes", r.ContentLength, len(b))
		}
		if err := json.Unmarshal(b, &seen); err != nil {
			return err
		}
		return chat(10, int(seen.Max))(w, r)
	}
	want(t, g.do("POST", "/v1/chat/completions", uncapped), 200)
	if seen.Max < 800 || seen.Max > 1000 {
		t.Errorf("the cap is %d", seen.Max)
	}
	g.used("strict", "default", "tokens per day", 10+seen.Max)
	want(t, g.do("POST", "/v1/chat/completions", uncapped), 429)

	w := g.do("POST", "/v1/chat/completions", `{"model":"m","max_tokens":5000,"messages":[]}`, "X-App", "shop")
	want(t, w, 400)
	if !strings.Contains(w.Body.String(), "request_too_large") || !strings.Contains(w.Body.String(), "output tokens fits") {
		t.Errorf("got %s", w.Body)
	}
	w = g.do("POST", "/v1/anything", `{"contents":[]}`, "X-App", "shop")
	want(t, w, 400)
	if !strings.Contains(w.Body.String(), "cap on their output") {
		t.Errorf("got %s", w.Body)
	}
	g.used("strict", "shop", "tokens per day", 0)
}

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

func TestBodiesThatCannotBeRead(t *testing.T) {
	site := `token_limit bodies {
		limit 10k tokens per day
		limit 100 requests per day
	}
	test_upstream`
	g := start(t, "llm {\nmeter {\nmax_body 200B\n}\n}", site)
	for _, tc := range []struct {
		name, body string
		headers    []string
		status     int
		code       string
	}{
		{"too large", `{"model":"` + strings.Repeat("m", 300) + `"}`, nil, 413, "request_body_too_large"},
		{"no JSON", `{"model"`, nil, 400, "invalid_request"},
		{"a member twice", `{"model":"a","model":"b"}`, nil, 400, "invalid_request"},
		{"a member in another case", `{"model":"a","Stream":true}`, nil, 400, "invalid_request"},
		{"an encoding nobody knows", question, []string{"Content-Encoding", "lzma"}, 415, "unsupported_content_encoding"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := g.do("POST", "/v1/chat/completions", tc.body, tc.headers...)
			want(t, w, tc.status)
			var v struct{ Error struct{ Code string } }
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v.Error.Code != tc.code {
				t.Errorf("got %s (%v)", w.Body, err)
			}
		})
	}
	g.used("bodies", "", "requests per day", 0)
	t.Run("compressed", func(t *testing.T) {
		var b strings.Builder
		z := gzip.NewWriter(&b)
		io.WriteString(z, question)
		z.Close()
		want(t, g.do("POST", "/v1/chat/completions", b.String(), "Content-Encoding", "gzip"), 200)
	})

	t.Run("too large for a shadow, too", func(t *testing.T) {
		g := start(t, "llm {\nmeter {\nmax_body 20B\n}\n}", "token_limit bodies-shadow {\nlimit 10k tokens per day\nshadow\n}\ntest_upstream")
		want(t, g.chat(""), 413)
	})
	t.Run("any, where only requests count", func(t *testing.T) {
		g := start(t, "llm {\nmeter {\nmax_body 20B\n}\n}", "token_limit bodies-requests {\nlimit 10 requests per day\n}\ntest_upstream")
		want(t, g.chat(""), 200)
	})
}

func TestAnUnreadableConnectionIsNoRefusal(t *testing.T) {
	g := start(t, "", "token_limit broken {\nlimit 10k tokens per day\nlimit 10 requests per day\n}\ntest_upstream")
	r := httptest.NewRequest("POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(`{"model":`), failing{}))
	w := httptest.NewRecorder()
	g.server.ServeHTTP(w, r)
	if w.Code < 400 || w.Code == 429 {
		t.Errorf("got status %d", w.Code)
	}
	g.used("broken", "", "requests per day", 0)
}

// failing is a connection that breaks.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }
