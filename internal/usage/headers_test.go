package usage

import (
	"net/http"
	"reflect"
	"testing"
)

func TestHeadersCountOnceAtMost(t *testing.T) {
	bedrock := map[string]string{
		"X-Amzn-Bedrock-Input-Token-Count": "4", "X-Amzn-Bedrock-Output-Token-Count": "2",
		"X-Amzn-Bedrock-Cache-Read-Input-Token-Count": "5", "X-Amzn-Bedrock-Cache-Write-Input-Token-Count": "1",
	}
	tgi := map[string]string{"x-prompt-tokens": "10", "x-generated-tokens": "2"}
	fireworks := map[string]string{"fireworks-prompt-tokens": "10", "fireworks-cached-prompt-tokens": "6"}
	const hello = `{"choices":[{"index":0,"message":{"content":"Hello"},"finish_reason":"stop"}]`
	tests := []struct {
		name   string
		header map[string]string
		body   string
		want   Report
	}{
		{"Bedrock, a body without counts", bedrock, `{"outputs":[{"text":"Hello","stop_reason":"stop"}]}`, Report{
			Usage: Usage{Input: 10, Output: 2, CacheRead: 5, CacheWrite5m: 1}, Found: true, Complete: true, Delivered: 5,
		}},
		{
			"Bedrock, a body with counts", bedrock, `{"generation":"Hello","prompt_token_count":3,"generation_token_count":1}`,
			Report{Usage: Usage{Input: 3, Output: 1}, Found: true, Complete: true, Delivered: 5},
		},
		{"Bedrock, Anthropic's body", bedrock, `{"type":"message","model":"c","content":[{"type":"text","text":"Hello"}],` +
			`"usage":{"input_tokens":4,"cache_read_input_tokens":5,"cache_creation_input_tokens":1,"output_tokens":2}}`, Report{
			Usage: Usage{Input: 10, Output: 2, CacheRead: 5, CacheWrite5m: 1}, Found: true, Complete: true, Model: "c", Delivered: 5,
		}},
		{
			"Bedrock, an embedding",
			map[string]string{"X-Amzn-Bedrock-Input-Token-Count": "9"},
			`{"embeddings":[[0.5]]}`,
			Report{Usage: Usage{Input: 9}, Found: true, Complete: true},
		},
		{
			"TGI, a body without counts", tgi, `{"generated_text":"Hello"}`,
			Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"TGI, a body with one of the counts", tgi, `{"generated_text":"Hello","details":{"generated_tokens":3}}`,
			Report{Usage: Usage{Input: 10, Output: 3}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"TGI, an array", tgi, `[{"generated_text":"Hello"}]`,
			Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"Fireworks, a body with counts", fireworks, hello + `,"usage":{"prompt_tokens":10,"completion_tokens":2}}`,
			Report{Usage: Usage{Input: 10, Output: 2, CacheRead: 6}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"Fireworks, a body without counts", fireworks, hello + `}`,
			Report{Usage: Usage{Input: 10, Output: 2, CacheRead: 6}, Found: true, Delivered: 5},
		},
		{
			"no number",
			map[string]string{"x-prompt-tokens": "ten", "x-generated-tokens": "-1"},
			`{"generated_text":"Hello"}`,
			Report{Complete: true, Delivered: 5},
		},
		{
			"beyond belief",
			map[string]string{"x-prompt-tokens": "99999999999999999999"},
			`{"generated_text":"Hello"}`,
			Report{Complete: true, Delivered: 5},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := jsonHeader.Clone()
			for name, value := range tt.header {
				h.Set(name, value)
			}
			if got := readAll(h, http.StatusOK, []byte(tt.body), 3); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
