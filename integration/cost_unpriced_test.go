package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// bigAnswer reports a million tokens of a model that no table has.
const bigAnswer = `{"object":"chat.completion","model":"big-model","choices":[{"index":0,"message":{"role":"assistant","content":"Hi."},` +
	`"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":1000000,"total_tokens":1000020}}`

func TestALaxRouteDoesNotOpenItsSiblings(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, bigAnswer)
	})
	const body = `{"model":"big-model","max_tokens":1000000,"messages":[{"role":"user","content":"hi"}]}`
	for _, tc := range []struct{ name, dev string }{
		{"that lets pass what has no price", "unknown_model unpriced"},
		{"that has a price", "price big-model {\ninput 1\noutput 1\n}"},
		{"that has other prices", "price dear-model {\ninput 5\noutput 5\n}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := start(t, up, `{site} {
		log
		`+auth+`
		route {
		cost_limit {name} {
			consumer_based
			limit $100 per hour
		}
		handle /dev/* {
			uri strip_prefix /dev
			llm_cost {
				`+tc.dev+`
			}
			reverse_proxy {upstream}
		}
		handle {
			llm_cost {
				price gpt-4o-mini {
					input 1000
					output 2000
				}
			}
			reverse_proxy {upstream}
		}
		}
	}`)
			if a := g.call("POST", "/v1/chat/completions", keyA, body); a.Status != http.StatusBadRequest || !strings.Contains(a.Body, "model_not_priced") {
				t.Errorf("got %d %s", a.Status, a.Body)
			}
		})
	}
}

func TestOuterPricesDoNotRefuseWhatInnerOnesHave(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {
		log
		`+auth+`
		route {
		llm_cost {
			unknown_model deny
		}
		cost_limit {name} {
			consumer_based
			limit $100 per hour
		}
		llm_cost {
			price house {
				input 1
				output 1
			}
		}
		reverse_proxy {upstream}
		}
	}`)
	ask := func(model string) int {
		return g.call("POST", "/v1/chat/completions", keyA, `{"model":"`+model+`","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`).Status
	}
	if got := ask("house"); got != http.StatusOK {
		t.Errorf("got %d", got)
	}
	if got := ask("nobody-has-it"); got != http.StatusBadRequest {
		t.Errorf("a model without a price: %d", got)
	}
}

func TestStrictBudgetsOfWhatTakesNoCap(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {
		log
		`+auth+`
		cost_limit {name} {
			consumer_based
			mode strict
			limit $100 per hour
		}
		reverse_proxy {upstream}
	}`)
	for _, tc := range []struct {
		path, body string
		status     int
		sent       string
	}{
		{"/v1/images/generations", `{"model":"dall-e-3","prompt":"cat"}`, http.StatusOK, `"prompt":"cat"`},
		{"/v1/audio/speech", `{"model":"tts-1","input":"cat"}`, http.StatusOK, `"input":"cat"`},
		{"/v1/audio/speech", `{"model":"gpt-4o-mini-tts","input":"cat"}`, http.StatusBadRequest, ""},
		{"/v1/chat/completions", `{"model":"deepseek-chat","messages":[]}`, http.StatusOK, `{"max_tokens":4096,"max_completion_tokens":4096,`},
		{"/v1/chat/completions", `{"model":"deepseek-chat","max_completion_tokens":1,"messages":[]}`, http.StatusOK, `{"max_tokens":1,`},
		{"/v1/chat/completions", `{"model":"gpt-4o","max_completion_tokens":1,"messages":[]}`, http.StatusOK, `{"model":"gpt-4o","max_completion_tokens":1,`},
	} {
		a := g.call("POST", tc.path, keyA, tc.body)
		if a.Status != tc.status {
			t.Errorf("%s: got %d %s", tc.body, a.Status, a.Body)
			continue
		}
		if a.Status == http.StatusOK && !strings.Contains(up.last().Body, tc.sent) {
			t.Errorf("%s: sent on as %s", tc.body, up.last().Body)
		}
	}
}
