package usage

import (
	"net/http"
	"reflect"
	"testing"
)

// reading is a body, as JSON or as an event stream, and what it is to be read as.
type reading struct {
	name string
	kind http.Header
	body string
	want Report
}

// checkReadings reads each body whole and in pieces.
func checkReadings(t *testing.T, tests []reading) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{0, 1, 7} {
				if got := readAll(tt.kind, http.StatusOK, []byte(tt.body), size); !reflect.DeepEqual(got, tt.want) {
					t.Errorf("pieces of %d: got %+v, want %+v", size, got, tt.want)
				}
			}
		})
	}
}

// stream joins the messages of an event stream.
func stream(messages ...[]byte) string { return string(frames(messages...)) }

func TestBedrockIsRead(t *testing.T) {
	const metrics = `"amazon-bedrock-invocationMetrics":{"inputTokenCount":10,"outputTokenCount":2,"invocationLatency":7}`
	ok := converseWhole
	failed := ok
	failed.Failed = true
	tests := []reading{
		{"Converse", jsonHeader, `{"output":{"message":{"role":"assistant","content":[{"text":"Hello"}]}},"stopReason":"end_turn",` +
			`"usage":{"inputTokens":10,"outputTokens":2,"totalTokens":12}}`, ok},
		{"cache written for an hour", jsonHeader, `{"usage":{"inputTokens":2,"outputTokens":5,"cacheReadInputTokens":500,` +
			`"cacheReadInputTokenCount":500,"cacheWriteInputTokens":1322,"cacheWriteInputTokenCount":1322,"cacheDetails":[` +
			`{"ttl":"1h","inputTokens":1000},{"ttl":"5m","inputTokens":322}]}}`, Report{Found: true, Complete: true, Usage: Usage{
			Input: 1824, Output: 5, CacheRead: 500, CacheWrite5m: 322, CacheWrite1h: 1000,
		}}},
		{
			"the twins alone", jsonHeader, `{"usage":{"inputTokens":2,"outputTokens":5,"cacheReadInputTokenCount":7,"cacheWriteInputTokenCount":4}}`,
			Report{Found: true, Complete: true, Usage: Usage{Input: 13, Output: 5, CacheRead: 7, CacheWrite5m: 4}},
		},
		{"the usage of a guardrail is not the call's", jsonHeader, `{"output":{"message":{"content":[{"text":"Hello"}]}},` +
			`"trace":{"guardrail":{"usage":{"inputTokens":99},"invocationMetrics":{"usage":{"inputTokens":77}}}},` +
			`"usage":{"inputTokens":10,"outputTokens":2}}`, ok},
		{
			"usage in a text is a text", jsonHeader, `{"output":{"message":{"content":[{"text":"{\"usage\":{\"inputTokens\":5}}"}]}}}`,
			Report{Complete: true, Delivered: 27},
		},
		{"counts in other forms", jsonHeader, `{"output":{"message":{"content":[{"text":"Hello"}]}},` +
			`"usage":{"inputTok\u0065ns":"10","outputTokens":2.0,"totalTokens":-1}}`, ok},
		{"zeros beside output are no report", jsonHeader, `{"output":{"message":{"content":[{"text":"Hello"}]}},` +
			`"usage":{"inputTokens":0,"outputTokens":0}}`, Report{Complete: true, Delivered: 5}},
		{"ConverseStream", frameHeader, stream(event("messageStart", `{"role":"assistant"}`), conversePiece, converseStop, converseUsage), ok},
		{"a tool in pieces", frameHeader, stream(event("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\"a\"}"}}}`),
			converseStop, converseUsage), ok},
		{"reasoning in pieces", frameHeader, stream(event("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"Hello"}}}`),
			converseStop, converseUsage), ok},
		{"no stop and no usage", frameHeader, stream(conversePiece), Report{Delivered: 5}},
		{"exception behind the usage", frameHeader, stream(conversePiece, converseStop, converseUsage,
			message(frameHeaders(":message-type", "exception"), `{}`)), failed},

		{
			"Anthropic with metrics", frameHeader, stream(
				chunk(`{"type":"message_start","message":{"model":"c","usage":{"input_tokens":10,"output_tokens":1}}}`),
				chunk(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`),
				chunk(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}`),
				chunk(`{"type":"message_stop",`+metrics+`}`)),
			Report{Usage: ok.Usage, Found: true, Complete: true, Model: "c", Delivered: 5},
		},
		{
			"Nova", frameHeader, stream(chunk(`{"messageStart":{"role":"assistant"}}`),
				chunk(`{"contentBlockDelta":{"delta":{"text":"Hello"},"contentBlockIndex":0}}`),
				chunk(`{"messageStop":{"stopReason":"end_turn"}}`),
				chunk(`{"metadata":{"usage":{"inputTokens":4,"outputTokens":2,"cacheReadInputTokenCount":6},"trace":{}},`+metrics+`}`)),
			Report{Usage: Usage{Input: 10, Output: 2, CacheRead: 6}, Found: true, Complete: true, Delivered: 5},
		},
		{"Titan, several results", jsonHeader, `{"inputTextTokenCount":10.0,"results":[{"tokenCount":1,"outputText":"Hel"},` +
			`{"tokenCount":1.0,"outputText":"lo"}]}`, ok},
		{"Titan's stream", frameHeader, stream(
			chunk(`{"outputText":"Hel","index":0,"totalOutputTextTokenCount":null,"completionReason":null,"inputTextTokenCount":10}`),
			chunk(`{"outputText":"lo","index":0,"totalOutputTextTokenCount":2,"completionReason":"FINISH","inputTextTokenCount":null}`)), ok},
		{
			"Titan's embedding", jsonHeader, `{"embedding":[0.5,-1],"inputTextTokenCount":9}`,
			Report{Usage: Usage{Input: 9}, Found: true, Complete: true},
		},
		{"Llama", jsonHeader, `{"generation":"Hello","prompt_token_count":10,"generation_token_count":2,"stop_reason":"stop"}`, ok},
		{"Llama's stream", frameHeader, stream(
			chunk(`{"generation":"Hello","prompt_token_count":10,"generation_token_count":1,"stop_reason":null}`),
			chunk(`{"generation":"","prompt_token_count":null,"generation_token_count":2,"stop_reason":"stop",`+metrics+`}`)), ok},
		{"Mistral's stream", frameHeader, stream(chunk(`{"outputs":[{"text":"Hello","stop_reason":null}]}`),
			chunk(`{"outputs":[{"text":"","stop_reason":"stop"}],`+metrics+`}`)), ok},
		{"Cohere's stream", frameHeader, stream(chunk(`{"event_type":"text-generation","text":"Hello","is_finished":false}`),
			chunk(`{"event_type":"stream-end","is_finished":true,"response":{"text":"Hello"},`+metrics+`}`)), ok},
		{"choices with metrics", frameHeader, stream(chunk(`{"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}`),
			chunk(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],`+metrics+`}`)), ok},
		{"choices with usage and metrics", frameHeader, stream(chunk(`{"choices":[{"index":0,"delta":{"content":"Hello"}}]}`),
			chunk(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":2},`+metrics+`}`)), ok},
		{"metrics with a cache", frameHeader, stream(chunk(`{"outputs":[{"text":"Hello"}],"amazon-bedrock-invocationMetrics":` +
			`{"inputTokenCount":4,"outputTokenCount":2,"cacheReadInputTokenCount":5,"cacheWriteInputTokenCount":1}}`)), Report{
			Usage: Usage{Input: 10, Output: 2, CacheRead: 5, CacheWrite5m: 1}, Found: true, Complete: true, Delivered: 5,
		}},
		{
			"pictures", jsonHeader, `{"images":["iVBORw0KGgo=","iVBORw0KGgo="],"error":null}`,
			Report{Usage: Usage{Images: 2}, Found: true, TokensUnknown: true, Complete: true},
		},
	}
	checkReadings(t, tests)
}

func TestConverseErrorFails(t *testing.T) {
	got := readAll(jsonHeader, http.StatusTooManyRequests, []byte(`{"message":"Too many tokens, please wait."}`), 0)
	if got.Found || !got.Failed {
		t.Errorf("got %+v", got)
	}
}
