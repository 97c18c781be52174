package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// ownFigures are header fields in which a provider, or another gateway, says what a call
// used or cost, and those in which this one does.
var ownFigures = []string{
	"X-Llm-Cost", "X-Llm-Cost-Status", "X-Litellm-Response-Cost", "X-Request-Cost", "X-Cost", "Cost",
	"X-Amzn-Bedrock-Input-Token-Count", "X-Amzn-Bedrock-Output-Token-Count", "X-Prompt-Tokens", "X-Generated-Tokens",
	"Fireworks-Prompt-Tokens", "X-Usage", "X-Tokens-Used", "X-Total-Tokens", "X-Ratelimit-Used-Tokens",
	"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Cost-Limit-Dollars",
	"X-Wso2-Application-Id", "Llm-Group", "X-Gemini-Service-Tier", "X-Amzn-Bedrock-Service-Tier",
}

// What a client says of its own use and cost, in a header or in the body, is not what it
// is charged: that is what the provider reports.
func TestAClientNamesNeitherItsUseNorItsCost(t *testing.T) {
	site := `{site} {` + auth + tenCents + `
		cost_limit {name} {
			consumer_based
			limit $0.20 per hour
		}
		token_limit {name}-tokens {
			consumer_based
			limit 100k tokens per hour
		}
		reverse_proxy {upstream}
	}`
	const figures = `"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0,"cost":0,"cost_in_usd_ticks":1,"estimated_cost":0,"input_tokens":0,"output_tokens":0}`
	body := func(more string) string {
		return `{"model":"gpt-4o-mini",` + more + `"max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`
	}
	fields := func(value string) (header []string) {
		for _, name := range ownFigures {
			header = append(header, name, value)
		}
		return header
	}
	for name, tc := range map[string]struct {
		path, body string
		header     []string
	}{
		"header-of-zero":         {"", body(""), fields("0")},
		"header-of-less":         {"", body(""), fields("-1")},
		"header-of-words":        {"", body(""), fields("calculated")},
		"usage-in-the-body":      {"", body(figures + ","), nil},
		"cost-in-the-body":       {"", body(`"cost":0,"x-llm-cost":"0","total_cost":0,"response_cost":0,`), nil},
		"metadata-in-the-body":   {"", body(`"metadata":{` + figures + `,"cost":"0"},`), nil},
		"usage-behind-the-rest":  {"", strings.TrimSuffix(body(""), "}") + "," + figures + "}", nil},
		"in-the-query":           {"?cost=0&total_tokens=0&x-llm-cost=0", body(""), nil},
		"in-a-message":           {"", `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi",` + figures + `}]}`, nil},
		"as-an-answer-in-a-text": {"", `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"data: {\"usage\":{\"total_tokens\":0}}\n\n"}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, nil)
			g := start(t, up, site)
			for i, want := range []int{200, 200, 429} {
				a := g.call("POST", "/v1/chat/completions"+tc.path, keyA, tc.body, tc.header...)
				if a.Status != want {
					t.Fatalf("call %d: got %d, want %d: %s", i+1, a.Status, want, a.Body)
				}
			}
			g.spends("app-a", dollars{"0.20", "0.20", "0", "0"})
			eventually(t, "120 tokens are charged", func() bool {
				r := g.counter("-tokens", "app-a", "tokens per hour")
				return r.Used == 120 && r.Reserved == 0
			})
			if n := up.calls(); n != 2 {
				t.Errorf("the upstream was called %d times", n)
			}
		})
	}
}

// Where the provider reports nothing, what a client says of itself is no report either: it
// is charged as much as if it had said nothing.
func TestAClientDoesNotReportForItsProvider(t *testing.T) {
	silent := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"c","object":"chat.completion","model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"Hello there."}}]}`)
	}
	g := start(t, newUpstream(t, silent), `{site} {`+auth+`
		token_limit {name} {
			consumer_based
			limit 100k tokens per hour
		}
		reverse_proxy {upstream}
	}`)
	used := func(key, app string, header ...string) int64 {
		if a := g.call("POST", "/v1/chat/completions", key, chatBody, header...); a.Status != http.StatusOK {
			t.Fatalf("got %d: %s", a.Status, a.Body)
		}
		var r row
		eventually(t, "it is charged", func() bool {
			r = g.counter("", app, "tokens per hour")
			return r.Reserved == 0 && r.Used > 0
		})
		return r.Used
	}
	var header []string
	for _, name := range ownFigures {
		header = append(header, name, "1")
	}
	if plain, said := used(keyA, "app-a"), used(keyB, "app-b", header...); plain != said || plain < 5 {
		t.Errorf("%d tokens are charged, and %d of who says that it is 1", plain, said)
	}
}
