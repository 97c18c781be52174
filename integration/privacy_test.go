package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestKeysGoNowhere(t *testing.T) {
	var status atomic.Int64 // what the upstream is to end in
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if status.Load() != http.StatusOK {
			panic(http.ErrAbortHandler)
		}
		sixtyTokens(w, r)
	})
	g := start(t, up, `{site} {
		log
		api_key_auth {
			key a `+hashOf(keyA)+` {
				application app-a
			}
			header Authorization Bearer
			header X-Api-Key
			header Api-Key
			header X-Goog-Api-Key
			header X-Custom
			query key
		}
		token_limit {name} {
			consumer_based
			limit 100 tokens per hour
		}
		reverse_proxy {upstream}
		handle_errors {
			respond "{http.request.orig_uri} {http.request.uri} {http.request.header.Authorization} {http.request.header.X-Custom} {http.auth.user.id} {err.message}" 599
		}
	}`)
	const body = `{"model":"m","max_tokens":10,"messages":[]}`
	for _, place := range []string{"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Custom", "query"} {
		for _, key := range []string{keyA, "sk-test-wrong-secret"} {
			path, header := "/v1/chat/completions?a=1&b=%20x", []string{place, key}
			switch place {
			case "Authorization":
				header[1] = "Bearer " + key
			case "query":
				path += "&key=" + key
				header = nil
			}
			for _, end := range []int64{200, 502} {
				status.Store(end)
				before := up.calls()
				a := g.call("POST", path, "", body, header...)
				if holdsKey(a.Body) || holdsKey(fmt.Sprint(a.Header)) {
					t.Errorf("%s: the answer holds the key: %d %v %s", place, a.Status, a.Header, a.Body)
				}
				if key != keyA && a.Status != http.StatusUnauthorized {
					t.Errorf("%s: a wrong key got %d", place, a.Status)
				}
				if up.calls() == before {
					continue
				}
				if s := up.last(); holdsKey(fmt.Sprint(s)) || s.URI != "/v1/chat/completions?a=1&b=%20x" {
					t.Errorf("%s: the upstream saw %+v", place, s)
				}
			}
		}
	}
	eventually(t, "logged", func() bool { return strings.Count(g.logs.text(), "handled request") >= 24 })
	for line := range strings.Lines(g.logs.text()) {
		if holdsKey(line) {
			t.Errorf("logged: %s", line)
		}
	}
	for _, path := range []string{"/llm/usage", "/llm/limits"} {
		var all json.RawMessage
		if status := g.adminGet(path, &all); status != http.StatusOK || holdsKey(string(all)) {
			t.Errorf("%s: %d %s", path, status, all)
		}
	}
}

// holdsKey looks for what the keys of these tests have in common.
func holdsKey(s string) bool {
	return strings.Contains(s, keyA) || strings.Contains(s, "wrong-secret")
}

func TestLogSaysWhatACallUsedAndWho(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {
		log
		`+auth+`
		token_limit {name}-shadow {
			consumer_based
			limit 1 requests per day
			shadow
		}
		token_limit {name} {
			consumer_based
			limit 100 tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	for range 3 {
		g.chat(keyA)
	}
	type entry struct {
		Consumer, API, Model string
		KeyID                string `json:"key_id"`
		ServedModel          string `json:"served_model"`
		Input                int64  `json:"input_tokens"`
		Output               int64  `json:"output_tokens"`
		Total                int64  `json:"total_tokens"`
		Source               string `json:"usage_source"`
		RefusedBy            string `json:"refused_by"`
		Shadow               string `json:"shadow_refused_by"`
	}
	var got []entry
	var users []string
	eventually(t, "logged", func() bool {
		got, users = nil, nil
		for line := range strings.Lines(g.logs.text()) {
			var l struct {
				LLM  *entry `json:"llm"`
				User string `json:"user_id"`
			}
			if json.Unmarshal([]byte(line), &l) == nil && l.LLM != nil {
				got = append(got, *l.LLM)
				users = append(users, l.User)
			}
		}
		return len(got) == 3
	})
	name := g.testName()
	served := entry{"app-a", "openai.chat", "gpt-4o-mini", "a", "gpt-4o-mini-2024-07-18", 20, 40, 60, "reported", "", ""}
	second, third := served, entry{Consumer: "app-a", API: "openai.chat", Model: "gpt-4o-mini", KeyID: "a", Source: "none", RefusedBy: name, Shadow: name + "-shadow"}
	second.Shadow = name + "-shadow"
	for i, want := range []entry{served, second, third} {
		if got[i] != want {
			t.Errorf("call %d logged as\n%+v, want\n%+v", i+1, got[i], want)
		}
		if users[i] != "a" {
			t.Errorf("call %d: user_id %q", i+1, users[i])
		}
	}
}

func TestErrorRouteGetsTheRefusal(t *testing.T) {
	g := start(t, newUpstream(t, nil), `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 1 requests per day
			errors
		}
		reverse_proxy {upstream}
		handle_errors 429 {
			respond "{http.llm.refusal.rule}|{http.llm.refusal.limit}|{http.llm.refusal.used}|{http.llm.refusal.code}|{http.llm.refusal.instance}" 429
		}
	}`)
	g.chat(keyA)
	a := g.chat(keyA)
	if want := "requests per day|1|1|rate_limit_exceeded|" + g.testName(); a.Status != 429 || a.Body != want {
		t.Errorf("%d %s, want %s", a.Status, a.Body, want)
	}
	if a.Header.Get("Retry-After") == "" || a.Header.Get("X-RateLimit-Remaining") != "0" || a.Header.Get("X-RateLimit-Ban-Level") != "daily" {
		t.Errorf("header %v", a.Header)
	}
}

func TestRefusalSpeaksTheLanguageOfTheAPI(t *testing.T) {
	g := start(t, newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "999999")
		w.Header().Set("Anthropic-Ratelimit-Tokens-Remaining", "999999")
		io.WriteString(w, `{"type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"Hi"}],"usage":{"input_tokens":10,"output_tokens":50}}`)
	}), `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 1 requests per rolling 1h
			limit 60 tokens per minute
		}
		reverse_proxy {upstream}
	}`)
	const body = `{"model":"claude-haiku-4-5","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}`
	a := g.call("POST", "/v1/messages", keyA, body)
	if a.Status != 200 || a.Header.Get("X-Ratelimit-Remaining-Requests") != "0" || a.Header.Get("Anthropic-Ratelimit-Tokens-Remaining") != "" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	a = g.call("POST", "/v1/messages", keyA, body)
	var e struct {
		Type  string
		Error struct{ Type, Message string }
	}
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || a.Status != 429 || e.Type != "error" || e.Error.Type != "rate_limit_error" ||
		!strings.Contains(e.Error.Message, "requests per rolling 1h") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for name, want := range map[string]string{
		"X-RateLimit-Ban-Level": "rolling 1h", "X-RateLimit-Model": "claude-haiku-4-5", "X-RateLimit-Model-Type": "text",
		"X-RateLimit-Unit": "requests", "X-RateLimit-Window": "rolling 1h", "X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0",
		"X-Should-Retry": "false", "Content-Type": "application/json",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
