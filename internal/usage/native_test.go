package usage

import "testing"

func TestNativeServersAreRead(t *testing.T) {
	ok := Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Delivered: 5}
	named := func(r Report) Report { r.Model = "m"; return r }
	const token1 = `{"index":1,"token":{"id":1,"text":"Hel","special":false},"generated_text":null,"details":null}`
	tests := []reading{
		{
			"TGI with the prompt's tokens", jsonHeader, `{"generated_text":"Hello","details":{"finish_reason":"length","generated_tokens":2,` +
				`"prefill":[{"id":1},{"id":2},{"id":3}],"tokens":[{"id":4,"text":"Hello"}]}}`,
			Report{Usage: Usage{Input: 3, Output: 2}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"TGI, the best of several", jsonHeader, `{"generated_text":"Hello","details":{"generated_tokens":2,"input_length":10,` +
				`"best_of_sequences":[{"generated_text":"Other","generated_tokens":3},{"generated_tokens":4}]}}`,
			Report{Usage: Usage{Input: 10, Output: 9}, Found: true, Complete: true, Delivered: 5},
		},
		{
			"TGI, an output without a prompt is no report", jsonHeader, `{"generated_text":"Hello","details":{"generated_tokens":2}}`,
			Report{Complete: true, Delivered: 5},
		},
		{"TGI's stream", streamHeader, "data:" + token1 + "\n\n" + `data:{"token":{"text":"lo"},"generated_text":"Hello",` +
			`"details":{"generated_tokens":2,"input_length":10}}` + "\n\n", ok},
		{"TGI's stream without its end", streamHeader, "data:" + token1 + "\n\n", Report{Delivered: 3}},
		{
			"TGI's error", streamHeader, "data:" + token1 + "\n\n" + `data:{"error":"Request failed","error_type":"generation"}` + "\n\n",
			Report{Complete: true, Failed: true, Delivered: 3},
		},

		{"llama.cpp", jsonHeader, `{"content":"Hello","stop":true,"model":"m","tokens_predicted":2,"tokens_evaluated":10,"tokens_cached":41}`, named(ok)},
		{
			"llama.cpp with a cache", jsonHeader, `{"content":"Hello","stop":true,"tokens_predicted":2,"tokens_evaluated":10,"tokens_cached":41,` +
				`"timings":{"cache_n":6,"prompt_n":4,"predicted_n":2}}`,
			Report{Usage: Usage{Input: 10, Output: 2, CacheRead: 6}, Found: true, Complete: true, Delivered: 5},
		},
		{"llama.cpp's stream", streamHeader, events(`{"content":"Hello","stop":false,"tokens_predicted":1,"tokens_evaluated":10}`,
			`{"content":"","stop":true,"tokens_predicted":2,"tokens_evaluated":10}`), ok},
		{
			"llama.cpp's stream without its end", streamHeader, events(`{"content":"Hello","stop":false,"tokens_predicted":1,"tokens_evaluated":10}`),
			Report{Delivered: 5},
		},
		{"llama.cpp, two prompts side by side", streamHeader, events(`{"index":0,"content":"Hel","stop":false}`, `{"index":1,"content":"lo","stop":false}`,
			`{"index":1,"content":"","stop":true,"tokens_predicted":1,"tokens_evaluated":4}`,
			`{"index":0,"content":"","stop":true,"tokens_predicted":1,"tokens_evaluated":6}`), ok},
		{"llama.cpp, an array", jsonHeader, `[{"content":"Hel","stop":true,"tokens_predicted":1,"tokens_evaluated":4},` +
			`{"content":"lo","stop":true,"tokens_predicted":1,"tokens_evaluated":6}]`, ok},
		{
			"llama.cpp's error", streamHeader, events(`{"content":"Hello","stop":false}`, `{"error":{"code":500,"message":"x"}}`),
			Report{Complete: true, Failed: true, Delivered: 5},
		},

		{
			"LM Studio", jsonHeader, `{"model_instance_id":"m","output":[{"type":"reasoning","content":"Hel"},{"type":"message","content":"lo"}],` +
				`"stats":{"input_tokens":10,"total_output_tokens":2,"reasoning_output_tokens":1,"tokens_per_second":43.7},"response_id":"r"}`,
			named(Report{Usage: Usage{Input: 10, Output: 2, Reasoning: 1}, Found: true, Complete: true, Delivered: 5}),
		},
		{"LM Studio's stream without its end", streamHeader, events(`{"type":"chat.start","model_instance_id":"m"}`,
			`{"type":"message.delta","content":"Hello"}`), named(Report{Delivered: 5})},
		{
			"LM Studio's error", streamHeader, "event: error\n" + events(`{"type":"error","error":{"message":"x"}}`),
			Report{Complete: true, Failed: true},
		},
		{"stats that count no tokens", jsonHeader, `{"model":"m","choices":[{"index":0,"message":{"content":"Hello"}}],` +
			`"usage":{"prompt_tokens":10,"completion_tokens":2},"stats":{"tokens_per_second":51}}`, named(ok)},
	}
	checkReadings(t, tests)
}

func TestBatchesAndPagesAreRead(t *testing.T) {
	lines := `{"custom_id":"a","response":{"status_code":200,"body":{"object":"chat.completion","model":"m","choices":[],` +
		`"usage":{"prompt_tokens":6,"completion_tokens":1,"total_tokens":7}}},"error":null}` + "\n" +
		`{"custom_id":"b","response":{"status_code":200,"body":{"object":"response","model":"m",` +
		`"usage":{"input_tokens":4,"output_tokens":1}}},"error":null}` + "\n" +
		`{"custom_id":"c","response":{"status_code":400,"body":{"error":{"message":"x"}}},"error":null}` + "\n"
	checkReadings(t, []reading{
		{
			"results of a batch",
			map[string][]string{"Content-Type": {"application/octet-stream"}},
			lines,
			Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Model: "m"},
		},
		{
			"pages", jsonHeader, `{"pages":[{"index":0,"markdown":"Hello"}],"model":"m","usage_info":{"pages_processed":3}}`,
			Report{Usage: Usage{Pages: 3}, Found: true, Complete: true, Model: "m", Delivered: 5},
		},
	})
}
