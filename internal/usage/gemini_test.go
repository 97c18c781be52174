package usage

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// reportTest is a response and what it has to be read as.
type reportTest struct {
	name, kind, body string
	cut              bool // the connection broke behind the body
	want             Report
}

// checkReports reads each response in pieces of several sizes.
func checkReports(t *testing.T, tests []reportTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"Content-Type": {tt.kind}}
			for _, size := range []int{1, 2, 7, 64, len(tt.body)} {
				got := readPieces(h, http.StatusOK, []byte(tt.body), !tt.cut, func(int) int { return size })
				if !reflect.DeepEqual(got, tt.want) {
					t.Errorf("in pieces of %d\ngot  %+v\nwant %+v", size, got, tt.want)
				}
			}
		})
	}
}

// geminiChunk makes a chunk with one candidate; finish and usage may be empty.
func geminiChunk(text, finish, usage string) string {
	chunk := `{"candidates":[{"content":{"parts":[{"text":"` + text + `"}],"role":"model"},"index":0`
	if finish != "" {
		chunk += `,"finishReason":"` + finish + `"`
	}
	chunk += "}]"
	if usage != "" {
		chunk += `,"usageMetadata":` + usage
	}
	return chunk + `,"modelVersion":"gemini-2.5-flash"}`
}

const (
	typeSSE   = "text/event-stream"
	typeJSON  = "application/json"
	typeLines = "application/x-ndjson"
)

func TestTrapsOfGemini(t *testing.T) {
	const m = "gemini-2.5-flash"
	first := geminiChunk("Salt", "", `{"promptTokenCount":169,"thoughtsTokenCount":419,"totalTokenCount":588}`)
	second := geminiChunk(" marsh", "", `{"promptTokenCount":169,"candidatesTokenCount":4,"totalTokenCount":173}`)
	last := geminiChunk(" grass", "STOP", `{"promptTokenCount":79,"candidatesTokenCount":12,"thoughtsTokenCount":28,"totalTokenCount":119}`)
	ok := func(u Usage, delivered int64) Report {
		return Report{Usage: u, Found: true, Complete: true, Model: m, Delivered: delivered}
	}
	final := ok(Usage{Input: 79, Output: 40, Reasoning: 28}, 16)
	whole := func(usage string) string { return geminiChunk("Salt", "STOP", usage) }
	tests := []reportTest{
		{"trap 5: usage on every chunk, the last one counts", typeSSE, events(first, second, last), false, final},
		{"trap 7: counts go down", typeSSE, events(last, first, last), false, ok(Usage{Input: 79, Output: 40, Reasoning: 28}, 16)},
		{
			"trap 8: zeros do not erase", typeSSE, events(first, last, `{"usageMetadata":{"promptTokenCount":0,"totalTokenCount":0}}`), false,
			ok(Usage{Input: 79, Output: 40, Reasoning: 28}, 10),
		},
		{
			"trap 9: zeros beside text are no report", typeJSON, whole(`{"promptTokenCount":0}`), false,
			Report{Complete: true, Model: m, Delivered: 4},
		},
		{"trap 15: CRLF", typeSSE, strings.ReplaceAll(events(first, second, last), "\n", "\r\n"), false, final},
		{"trap 15: CR", typeSSE, strings.ReplaceAll(events(first, second, last), "\n", "\r"), false, final},
		{"trap 20: no line end behind the last event", typeSSE, strings.TrimRight(events(first, second, last), "\n"), false, final},
		{
			"trap 24: a huge picture before the usage", typeJSON,
			`{"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":"image/png","data":"` + strings.Repeat("QUJD", 20_000) +
				`"}}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":1290,"totalTokenCount":1302,` +
				`"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":1290}]},"modelVersion":"gemini-2.5-flash"}`, false,
			ok(Usage{Input: 12, Output: 1290, ImageOut: 1290, Images: 1}, 0),
		},
		{"trap 25: odd counts", typeJSON, whole(`{"promptTokenCount":"10","candidatesTokenCount":2.0,"totalTokenCount":1.2e1,` +
			`"thoughtsTokenCount":-3,"cachedContentTokenCount":1e300}`), false, ok(Usage{Input: 10, Output: 2}, 4)},
		{
			"trap 26: a second usage leaves nothing of the first", typeJSON,
			`{"usageMetadata":{"promptTokenCount":99,"thoughtsTokenCount":50},` + whole(`{"promptTokenCount":10,"candidatesTokenCount":2}`)[1:],
			false, ok(Usage{Input: 10, Output: 2}, 4),
		},
		{
			"trap 27: an error as an element of the array", typeJSON,
			"[" + first + "\n,\r\n" + `{"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}]`, false,
			Report{Usage: Usage{Input: 169, Output: 419, Reasoning: 419}, Found: true, Complete: true, Failed: true, Model: m, Delivered: 4},
		},
		{
			"trap 27: an error as an event", typeSSE, events(first, `{"error":{"code":503}}`), false,
			Report{Usage: Usage{Input: 169, Output: 419, Reasoning: 419}, Found: true, Complete: true, Failed: true, Model: m, Delivered: 4},
		},
		{
			"trap 43: details that do not add up", typeJSON, whole(`{"promptTokenCount":10,"candidatesTokenCount":2,"totalTokenCount":12,` +
				`"promptTokensDetails":[{"modality":"IMAGE","tokenCount":99},{"modality":"VIDEO","tokenCount":5}]}`), false,
			ok(Usage{Input: 10, Output: 2, ImageIn: 10}, 4),
		},
		{
			"tools put into the prompt", typeJSON, whole(`{"promptTokenCount":10,"toolUsePromptTokenCount":30,"candidatesTokenCount":2,` +
				`"totalTokenCount":42,"toolUsePromptTokensDetails":[{"modality":"IMAGE","tokenCount":7}]}`), false,
			ok(Usage{Input: 40, Output: 2, ImageIn: 7}, 4),
		},
		{
			"details of audio, several of one kind", typeJSON, whole(`{"promptTokenCount":10,"candidatesTokenCount":9,"promptTokensDetails":[` +
				`{"tokenCount":2,"modality":"AUDIO"},{"modality":"AUDIO","tokenCount":3}],"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":9}]}`),
			false, ok(Usage{Input: 10, Output: 9, AudioIn: 5, AudioOut: 9}, 4),
		},
		{
			"the prompt is not counted", typeJSON, whole(`{"candidatesTokenCount":2,"thoughtsTokenCount":3,"totalTokenCount":25}`), false,
			ok(Usage{Input: 20, Output: 5, Reasoning: 3}, 4),
		},
		{
			"the candidates are not counted", typeJSON, whole(`{"promptTokenCount":20,"totalTokenCount":25}`), false,
			ok(Usage{Input: 20, Output: 5}, 4),
		},
		{
			"Live's word for candidates", typeJSON, `{"usageMetadata":{"promptTokenCount":20,"responseTokenCount":5,"totalTokenCount":25,` +
				`"responseTokensDetails":[{"modality":"AUDIO","tokenCount":5}]}}`, false,
			Report{Usage: Usage{Input: 20, Output: 5, AudioOut: 5}, Found: true, Complete: true},
		},
		{"no usage at all", typeSSE, events(geminiChunk("Salt", "STOP", "")), false, Report{Complete: true, Model: m, Delivered: 4}},
		{
			"cut early: the most counted, and text delivered", typeSSE, events(first, second), true,
			Report{Usage: Usage{Input: 169, Output: 419, Reasoning: 419}, Found: true, Model: m, Delivered: 10},
		},
		{
			"cut before output is counted", typeSSE, events(geminiChunk("Salt marsh", "", `{"promptTokenCount":9,"totalTokenCount":9}`)), true,
			Report{Usage: Usage{Input: 9, Output: 3}, Found: true, Model: m, Delivered: 10},
		},
		{
			"ended without a finish", typeSSE, events(first, second), false,
			Report{Usage: Usage{Input: 169, Output: 419, Reasoning: 419}, Found: true, Model: m, Delivered: 10},
		},
		{"cut behind the last chunk", typeSSE, events(first, last), true, ok(Usage{Input: 79, Output: 40, Reasoning: 28}, 10)},
		{
			"one of several candidates ends", typeSSE,
			events(strings.Replace(first, `"index":0`, `"index":1`, 1), last), true,
			Report{Usage: Usage{Input: 79, Output: 419, Reasoning: 419}, Found: true, Model: m, Delivered: 10},
		},
		{"a call, code and its result are text", typeJSON, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"a":1}}},` +
			`{"executableCode":{"code":"x=1","language":"PYTHON"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"ab"}}]},` +
			`"finishReason":"STOP"}],"modelVersion":"gemini-2.5-flash"}`, false, Report{Complete: true, Model: m, Delivered: 1 + 7 + 3 + 2}},
		{
			"usage elsewhere", typeJSON, `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{"usageMetadata":` +
				`{"promptTokenCount":9}}}}]},"finishReason":"STOP"}],"modelVersion":"gemini-2.5-flash"}`, false,
			Report{Complete: true, Model: m, Delivered: 41},
		},
		{
			"embedding with a count", typeJSON, `{"embedding":{"values":[0.1]},"usageMetadata":{"promptTokenCount":6,"totalTokenCount":6}}`, false,
			Report{Usage: Usage{Input: 6}, Found: true, Complete: true},
		},
		{"embedding without", typeJSON, `{"embeddings":[{"values":[0.1]}]}`, false, Report{Complete: true, Delivered: 33}},
		{"Vertex's floats", typeJSON, `{"predictions":[{"embeddings":{"statistics":{"token_count":6.0}}},{"embeddings":{"statistics":` +
			`{"token_count":9}}}]}`, false, Report{Usage: Usage{Input: 15}, Found: true, Complete: true}},
		{"Vertex's pictures", typeJSON, `{"predictions":[{"bytesBase64Encoded":"QUJD","mimeType":"image/png"},{"bytesBase64Encoded":"QUJD"},` +
			`{"raiFilteredReason":"x"}]}`, false, Report{Usage: Usage{Images: 2}, Found: true, TokensUnknown: true, Complete: true}},
		{"predictions of anything else", typeJSON, `{"predictions":[{"score":1}]}`, false, Report{Complete: true, Delivered: 29}},
	}
	checkReports(t, tests)
}

func TestSearchesOfGemini(t *testing.T) {
	grounded := func(model, queries string) string {
		return `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP","groundingMetadata":{"webSearchQueries":[` + queries +
			`]}}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1},"modelVersion":"` + model + `"}`
	}
	tests := []struct {
		name, body string
		want       int64
	}{
		{"by query", grounded("gemini-3-pro-preview", `"tide","moon"`), 2},
		{"the same again", grounded("gemini-3-pro-preview", `"tide","tide"`), 1},
		{"empty ones", grounded("gemini-3-pro-preview", `"tide",""," "`), 1},
		{"by prompt", grounded("gemini-2.5-flash", `"tide","moon"`), 2},
		{"none", grounded("gemini-2.5-flash", ``), 0},
		{"in several chunks", events(grounded("gemini-3-flash", `"tide"`), grounded("gemini-3-flash", `"tide","moon"`)), 2},
		{"a model without a name", grounded("", `"tide","moon"`), 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := readAll(jsonHeader, http.StatusOK, []byte(tt.body), 3).Usage
			if got.WebSearches != tt.want || got.Grounded != min(tt.want, 1) {
				t.Errorf("got %d searches for %d prompts, want %d", got.WebSearches, got.Grounded, tt.want)
			}
		})
	}
}

func TestPromptThatWasNotCountedIsTold(t *testing.T) {
	for body, want := range map[string]bool{
		geminiChunk("a", "STOP", `{"candidatesTokenCount":5}`):                          true,
		geminiChunk("a", "STOP", `{"promptTokenCount":1,"candidatesTokenCount":5}`):     false,
		`{"model":"m","done":true,"done_reason":"stop","eval_count":5}`:                 true,
		`{"model":"m","done":true,"done_reason":"stop"}`:                                false,
		`{"model":"m","embeddings":[[1]],"prompt_eval_count":4}`:                        false,
		`{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":3}}`:              true,
		`{"id":"r","results":[{"index":1}],"meta":{"billed_units":{"search_units":1}}}`: false,
	} {
		if got := readAll(jsonHeader, http.StatusOK, []byte(body), 0); got.LacksInput() != want {
			t.Errorf("%s: got %+v", body, got)
		}
	}
}
