package llmretry

import (
	"strings"
	"testing"
)

func TestErrorsUnderStatus200(t *testing.T) {
	for _, tt := range []struct {
		name   string
		peek   peek
		body   string
		want   verdict
		status int
	}{
		{"Anthropic", firstEvent, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", failure, 529},
		{"OpenAI", firstEvent, "data: {\"error\":{\"message\":\"x\",\"type\":\"server_error\",\"code\":null}}\n\n", failure, 500},
		{"Responses", firstEvent, "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}\n\n", failure, 429},
		{"a failed response", firstEvent, "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\"}}}\n\n", failure, 429},
		{"OpenRouter, behind a comment", firstEvent, ": OPENROUTER PROCESSING\n\ndata: {\"error\":{\"code\":502,\"message\":\"x\"},\"choices\":[]}\n\n", failure, 502},
		{"Gemini, with CRLF", firstEvent, "data: {\"error\": {\"code\": 503, \"status\": \"UNAVAILABLE\"}}\r\n\r\n", failure, 503},
		{"several lines", firstEvent, "data: {\"error\":\ndata: {\"code\":504}}\n\n", failure, 504},
		{"words alone", firstEvent, "data: {\"error\":\"it broke\"}\n\n", failure, 500},
		{"a client's fault", firstEvent, "data: {\"error\":{\"type\":\"invalid_request_error\"}}\n\n", failure, 400},
		{"a chunk", firstEvent, "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\"\"}}]}\n\n", content, 0},
		{"a chunk without an error", firstEvent, "data: {\"error\":null,\"choices\":[]}\n\n", content, 0},
		{"a created response", firstEvent, "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\n", content, 0},
		{"the end", firstEvent, "data: [DONE]\n\n", content, 0},
		{"a comment", firstEvent, ": ping\n\n", unclear, 0},
		{"half an event", firstEvent, "data: {\"error\":{\"code\":502}}\n", unclear, 0},

		{"a document", firstMember, ` { "error" : {"code":503}}`, failure, 0},
		{"a typed one", firstMember, `{"type":"error","error":{"type":"overloaded_error"}}`, failure, 0},
		{"a text", firstMember, `{"error":"model is loading"}`, failure, 0},
		{"null", firstMember, `{"error":null,"id":"x"}`, content, 0},
		{"an answer", firstMember, `{"id":"x","error":{}}`, content, 0},
		{"a message", firstMember, `{"type":"message"}`, content, 0},
		{"a name that begins so", firstMember, `{"errors":[]}`, content, 0},
		{"half a name", firstMember, `{"err`, unclear, 0},
		{"half a type", firstMember, `{"type":"er`, unclear, 0},
		{"no value", firstMember, `{"error": `, unclear, 0},
		{"nothing", firstMember, "", unclear, 0},
		{"no document", firstMember, "hello", content, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, status := tt.peek([]byte(tt.body))
			if v != tt.want || status != tt.status {
				t.Errorf("got %d, %d; want %d, %d", v, status, tt.want, tt.status)
			}
		})
	}
}

// FuzzPeek looks for beginnings that tell otherwise once more has come.
func FuzzPeek(f *testing.F) {
	f.Add("event: error\ndata: {}\n\n", 5)
	f.Add(`{"type":"error","error":{}}`, 9)
	f.Fuzz(func(t *testing.T, body string, at int) {
		if at < 0 || at > len(body) {
			return
		}
		for _, p := range []peek{firstEvent, firstMember} {
			before, early := p([]byte(strings.Clone(body[:at])))
			after, late := p([]byte(body))
			// a CR that ends a piece may be half of a CRLF
			if before != unclear && (before != after || early != late) && !strings.HasSuffix(body[:at], "\r") {
				t.Errorf("%q tells %d, and %q %d", body[:at], before, body, after)
			}
		}
	})
}
