package tokenlimit_test

import (
	"testing"
)

// Limits of all models hold for a call that leaves the choice to the provider.
func TestTheBlockOfAllModelsTakesCallsWithoutAModel(t *testing.T) {
	for name, lines := range map[string]string{
		"one-counter": "model gpt* {\nlimit 1M tokens per hour\n}\nmodel * {\nlimit 10 tokens per hour\n}",
		"per-model":   "model * {\nlimit 10 tokens per hour\nper_model\n}",
		"deny":        "unlisted deny\nmodel * {\nlimit 10 tokens per hour\n}",
	} {
		t.Run(name, func(t *testing.T) {
			q := quotasOf(t, "", "star", lines)
			answer = servedBy("qwen", 500, 500)
			for i, body := range []string{`{"max_tokens":5,"messages":[]}`, `{"model":null,"max_tokens":5,"messages":[]}`} {
				want(t, q.do("POST", "/v1/chat/completions", body, "X-App", name), []int{200, 429}[i])
			}
			want(t, q.do("GET", "/v1/models", "", "X-App", name), 200)
		})
	}
}

// What a message chooses after the connection is open must not escape the limits of models.
func TestWebSocketsWhoseModelIsChosenLaterAreCountedOrRefused(t *testing.T) {
	const live = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
	open := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "X-App", "alice"}
	for _, tc := range []struct {
		name, lines, path string
		statuses          []int
	}{
		{"refused", "model gpt* {\nlimit 1 requests per hour\n}", "/v1/responses", []int{403, 403}},
		{"refused beside other limits", "limit 9 requests per hour\nmodel gpt* {\nlimit 1 requests per hour\n}", live, []int{403, 403}},
		{"counted by all models", "model gpt* {\nlimit 1 requests per hour\n}\nmodel * {\nlimit 1 requests per hour\n}", live, []int{200, 429}},
		{"counted by its model", "model gpt* {\nlimit 1 requests per hour\n}", "/v1/realtime?model=gpt-realtime", []int{200, 429}},
		{"of no model at all", "limit 1 requests per hour", "/v1/responses", []int{200, 429}},
		{"limits that only report", "model gpt* {\nlimit 1 requests per hour shadow\n}", "/v1/responses", []int{200, 200}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := quotasOf(t, "", "later", "unmetered allow\n"+tc.lines)
			answer = reply(200, "")
			for _, status := range tc.statuses {
				want(t, q.do("GET", tc.path, "", open...), status)
			}
		})
	}
}
