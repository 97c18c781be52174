package tokenlimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestCallsAreChargedWhatTheyUsed(t *testing.T) {
	g := start(t, "", `token_limit charged {
		consumer_based
		limit 1k tokens per day
		limit 1k input_tokens per day
		limit 1k output_tokens per day
		limit 1k uncached_tokens per day
		limit 10 requests per day
		limit 2 concurrent
	}
	test_upstream`)
	answer = reply(200, `{"object":"chat.completion","choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":100,"completion_tokens":7,"total_tokens":107,"prompt_tokens_details":{"cached_tokens":60}}}`)
	want(t, g.chat("shop"), 200)
	want(t, g.chat("shop"), 200)
	want(t, g.chat("other"), 200)
	for rule, n := range map[string]int64{
		"tokens per day": 214, "input_tokens per day": 200, "output_tokens per day": 14, "uncached_tokens per day": 94, "requests per day": 2, "concurrent": 0,
	} {
		g.used("charged", "shop", rule, n)
	}
	g.used("charged", "other", "tokens per day", 107)
}

func TestConsumersDoNotShareALimit(t *testing.T) {
	g := start(t, "", `token_limit apart {
		consumer_based
		limit 1 requests per day
	}
	test_upstream`)
	for _, app := range []string{"alice", "bob", ""} {
		want(t, g.chat(app), 200)
		want(t, g.chat(app), 429)
	}
	g.used("apart", "default", "requests per day", 1)
}

func TestAdmissionIsAllOrNothing(t *testing.T) {
	g := start(t, "", `route {
		token_limit aon-outer {
			consumer_based
			limit 100 requests per day
			limit 10k tokens per day
			limit 9 concurrent
		}
		token_limit aon-inner {
			limit 1 requests per day
			limit 10k tokens per day
		}
		test_upstream
	}`)
	want(t, g.chat("shop"), 200)
	for range 3 {
		want(t, g.chat("shop"), 429)
	}
	for _, instance := range []string{"aon-outer", "aon-inner"} {
		consumer := "shop"
		if instance == "aon-inner" {
			consumer = ""
		}
		g.used(instance, consumer, "requests per day", 1)
		g.used(instance, consumer, "tokens per day", 15)
	}
	g.used("aon-outer", "shop", "concurrent", 0)
	if got := g.logged()["refused_by"]; got != "aon-inner" {
		t.Errorf("the log says refused_by %v", got)
	}
}

func TestRefusedCallsCostNothingAndReachNobody(t *testing.T) {
	g := start(t, "", `token_limit costless {
		consumer_based
		limit 2 requests per hour
		limit 15 tokens per day
	}
	test_upstream`)
	calls := 0
	answer = func(w http.ResponseWriter, r *http.Request) error {
		calls++
		return chat(10, 5)(w, r)
	}
	want(t, g.chat("shop"), 200)
	for range 5 {
		want(t, g.chat("shop"), 429)
	}
	if calls != 1 {
		t.Errorf("%d calls reached the upstream", calls)
	}
	g.used("costless", "shop", "requests per hour", 1) // the rule with room was not charged either
	g.used("costless", "shop", "tokens per day", 15)
}

func TestAnInstanceOnTheWayTwiceCountsOnce(t *testing.T) {
	for _, tc := range []struct{ name, instance, site string }{
		{"two members of a pool", "twice-pool", `
		token_limit twice-a {
			share twice-pool
			limit 10 requests per day
			limit 10k tokens per day
		}
		token_limit twice-b {
			share twice-pool
			limit 10 requests per day
			limit 10k tokens per day
		}
		test_upstream`},
		{"a named route invoked twice", "twice-named", `
		route {
			invoke limits
			invoke limits
			test_upstream
		}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, err := load(t, `&(limits) {
				token_limit twice-named {
					limit 10 requests per day
					limit 10k tokens per day
				}
			}
			:0 {
				`+tc.site+`
			}`)
			if err != nil {
				t.Fatal(err)
			}
			want(t, g.chat(""), 200)
			g.used(tc.instance, "", "requests per day", 1)
			g.used(tc.instance, "", "tokens per day", 15)
		})
	}
}

func TestAPoolCountsOverSeveralRoutes(t *testing.T) {
	g := start(t, "", `
	token_limit /a/* {
		share pool-routes
		consumer_based
		limit 3 requests per day
	}
	token_limit /b/* {
		share pool-routes
		consumer_based
		limit 3 requests per day
	}
	test_upstream`)
	for i, path := range []string{"/a/v1/models", "/b/v1/models", "/a/v1/models"} {
		w := g.do("GET", path, "", "X-App", "shop")
		want(t, w, 200)
		if got, left := w.Header().Get("X-Ratelimit-Remaining-Requests"), fmt.Sprint(2-i); got != left {
			t.Errorf("call %d: %s remain, want %s", i, got, left)
		}
	}
	want(t, g.do("GET", "/b/v1/models", "", "X-App", "shop"), 429)
	want(t, g.do("GET", "/b/v1/models", "", "X-App", "other"), 200)
	want(t, g.do("GET", "/c/v1/models", "", "X-App", "shop"), 200)
	g.used("pool-routes", "shop", "requests per day", 3)
}

func TestErrorsHandsRefusalsToTheErrorRoutes(t *testing.T) {
	g := start(t, "", `token_limit to-errors {
		consumer_based
		limit 1 requests per day
		errors
		reject 418 "{http.llm.refusal.instance} at work"
	}
	test_upstream
	handle_errors {
		respond "{http.error.status_code} {http.llm.refusal.instance} {http.llm.refusal.code} {http.llm.refusal.rule} {http.llm.refusal.limit} {http.llm.refusal.used}"
	}`)
	want(t, g.chat("shop"), 200)
	w := g.chat("shop")
	want(t, w, 418)
	if got, want := w.Body.String(), "418 to-errors rate_limit_exceeded requests per day 1 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, name := range []string{"Retry-After", "X-Ratelimit-Ban-Level"} {
		if w.Header().Get(name) == "" {
			t.Errorf("no %s", name)
		}
	}
	g.used("to-errors", "shop", "requests per day", 1)
}

func TestErrorsReturnsAHandlerError(t *testing.T) {
	g := start(t, "", `route {
		test_outside
		token_limit handler-error {
			limit 1 requests per day
			errors
		}
		test_upstream
	}`)
	want(t, g.chat(""), 200)
	want(t, g.chat(""), 429)
	var he caddyhttp.HandlerError
	if !errors.As(outside, &he) || he.StatusCode != 429 || he.Err == nil || !strings.HasPrefix(he.Err.Error(), "rate_limit_exceeded: ") {
		t.Errorf("got %#v", outside)
	}
}

func TestRejectChangesStatusAndMessage(t *testing.T) {
	g := start(t, "", `token_limit rejects {
		consumer_based
		limit 1 requests per day
		reject 403 "ask {header.X-Whom} about {http.llm.refusal.rule}"
	}
	test_upstream`)
	want(t, g.chat("shop"), 200)
	w := g.chat("shop", "X-Whom", "{env.HOME}")
	want(t, w, 403)
	var v struct {
		Error struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	if got, want := v.Error.Message, "ask {env.HOME} about requests per day"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if v.Error.Code != "rate_limit_exceeded" {
		t.Errorf("got the code %q", v.Error.Code)
	}
}

func TestRefusalsSpeakTheDialectOfTheEndpoint(t *testing.T) {
	g := start(t, "", `token_limit dialects {
		consumer_based
		limit 1 requests per month
		limit 1 tokens per day
	}
	test_upstream`)
	want(t, g.chat("shop"), 200)
	for _, tc := range []struct{ path, body, part string }{
		{"/v1/chat/completions", question, `"type":"rate_limit_exceeded"`},
		{"/v1/messages", `{"model":"claude","max_tokens":5,"messages":[]}`, `"type":"rate_limit_error"`},
		{"/v1beta/models/gemini-2.5-pro:generateContent", `{"contents":[]}`, `"status":"RESOURCE_EXHAUSTED"`},
		{"/model/anthropic.claude/converse", `{"messages":[]}`, `{"message":"limit of `},
		{"/api/chat", `{"model":"llama","messages":[]}`, `{"error":"limit of `},
	} {
		w := g.do("POST", tc.path, tc.body, "X-App", "shop")
		want(t, w, 429)
		if !strings.Contains(w.Body.String(), tc.part) {
			t.Errorf("%s: %s", tc.path, w.Body)
		}
		if got := w.Header().Get("X-Ratelimit-Ban-Level"); got != "monthly" {
			t.Errorf("%s: the level is %q", tc.path, got)
		}
	}
}

func TestShadowCountsAndReports(t *testing.T) {
	for _, tc := range []struct{ name, instance, rules, used string }{
		{"an instance", "shadow-instance", "limit 1 requests per day\nlimit 1 tokens per day\nshadow", "tokens per day"},
		{"a rule", "shadow-rule", "limit 100 requests per day\nlimit 1 tokens per day shadow", "tokens per day"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := start(t, "", "token_limit "+tc.instance+" {\nconsumer_based\n"+tc.rules+"\n}\ntest_upstream")
			want(t, g.chat("shop"), 200)
			if got, ok := g.logged()["shadow_refused_by"]; ok {
				t.Errorf("the log says %v before the limit is reached", got)
			}
			w := g.chat("shop")
			want(t, w, 200)
			if got := g.logged()["shadow_refused_by"]; got != tc.instance {
				t.Errorf("the log says shadow_refused_by %v", got)
			}
			if got := w.Header().Get("X-Ratelimit-Ban-Level"); got != "" {
				t.Errorf("the answer bans %s", got)
			}
			g.used(tc.instance, "shop", tc.used, 30)
			g.used(tc.instance, "shop", "requests per day", 2)
		})
	}
}

func TestAShadowInstanceRefusesNothing(t *testing.T) {
	g := start(t, "", `route {
		token_limit shadow-all {
			limit 1k tokens per day
			mode strict
			shadow
		}
		test_upstream
	}`)
	for _, tc := range []struct{ name, path, body string }{
		{"an endpoint that is not metered", "/v1/batches", `{}`},
		{"a background response", "/v1/responses", `{"model":"m","background":true,"input":"x"}`},
		{"a body that is no JSON", "/v1/chat/completions", `{"model":`},
		{"a member given twice", "/v1/chat/completions", `{"model":"a","model":"b","messages":[]}`},
		{"a prompt that is elsewhere", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"r","max_output_tokens":5}`},
		{"a call that is too large", "/v1/chat/completions", `{"model":"a","max_tokens":9000,"messages":[]}`},
		{"a call without a cap", "/v1/anything", `{"contents":[]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seen string
			answer = func(w http.ResponseWriter, r *http.Request) error {
				b, err := io.ReadAll(r.Body)
				seen = string(b)
				if err != nil {
					return err
				}
				return chat(1, 1)(w, r)
			}
			want(t, g.do("POST", tc.path, tc.body), 200)
			if seen != tc.body {
				t.Errorf("the upstream got %s", seen)
			}
			if got := g.logged()["shadow_refused_by"]; got != "shadow-all" {
				t.Errorf("the log says shadow_refused_by %v", got)
			}
		})
	}
	t.Run("but what mints credentials", func(t *testing.T) {
		want(t, g.do("POST", "/v1/realtime/sessions", `{}`), 403)
	})
}

func TestShadowRulesLeaveTheProvidersHeaders(t *testing.T) {
	g := start(t, "", `token_limit shadow-quiet {
		consumer_based
		limit 1 requests per day shadow
	}
	test_upstream`)
	answer = func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("X-Ratelimit-Remaining-Requests", "77")
		return chat(1, 1)(w, r)
	}
	if got := g.chat("shop").Header().Get("X-Ratelimit-Remaining-Requests"); got != "77" {
		t.Errorf("a rule that only reports took the place of the provider's: %q", got)
	}
}
