package usage

import (
	"strings"
	"testing"
)

func TestTrapsOfCohere(t *testing.T) {
	const (
		start = `{"type":"message-start","id":"x","delta":{"message":{"role":"assistant","content":[],"tool_plan":"","tool_calls":[]}}}`
		piece = `{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"Loam."}}}}`
		plan  = `{"type":"tool-plan-delta","delta":{"message":{"tool_plan":"I do"}}}`
		call  = `{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"a"}}}}}`
		end   = `{"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"billed_units":{"input_tokens":12,"output_tokens":7},` +
			`"tokens":{"input_tokens":507,"output_tokens":10},"cached_tokens":448}}}`
		older = `{"is_finished":false,"event_type":"text-generation","text":"Loam."}`
		stop  = `{"is_finished":true,"event_type":"stream-end","finish_reason":"COMPLETE","response":{"text":"Loam.","generation_id":"g",` +
			`"chat_history":[{"role":"USER","message":"hello"}],"meta":{"billed_units":{"input_tokens":12,"output_tokens":7},` +
			`"tokens":{"input_tokens":507,"output_tokens":10}}}}`
	)
	ok := func(u Usage, delivered int64) Report {
		return Report{Usage: u, Found: true, Complete: true, Delivered: delivered}
	}
	billed := ok(Usage{Input: 12, Output: 7}, 5)
	message := func(usage string) string {
		return `{"id":"c","message":{"role":"assistant","content":[{"type":"text","text":"Loam."}]},"finish_reason":"COMPLETE","usage":` + usage + `}`
	}
	tests := []reportTest{
		{"events", typeSSE, events(start, piece, end), false, billed},
		{"a plan and a call", typeSSE, events(start, plan, call, end), false, ok(Usage{Input: 12, Output: 7}, 7)},
		{"older chat, lines", "application/stream+json", older + "\n" + stop + "\n", false, billed},
		{"older chat, events", typeSSE, events(older, stop), false, billed},
		{"older chat, a document", typeJSON, `{"response_id":"r","text":"Loam.","chat_history":[{"role":"USER","message":"hello"}],` +
			`"meta":{"api_version":{"version":"1"},"billed_units":{"input_tokens":12,"output_tokens":7}}}`, false, billed},
		{"what was processed, where nothing is billed", typeJSON, message(`{"tokens":{"input_tokens":12,"output_tokens":7}}`), false, billed},
		{
			"billed units that count nothing", typeJSON, message(`{"billed_units":{"classifications":1},"tokens":{"input_tokens":12,"output_tokens":7}}`),
			false, billed,
		},
		{"no usage", typeJSON, message(`null`), false, Report{Complete: true, Delivered: int64(len(message(`null`)))}},
		{"embeddings of pictures", typeJSON, `{"id":"e","embeddings":{"float":[[0.1]]},"meta":{"billed_units":{"input_tokens":10,` +
			`"image_tokens":258,"images":1}}}`, false, ok(Usage{Input: 268, ImageIn: 258}, 0)},
		{
			"zeros beside embeddings are no report", typeJSON, `{"embeddings":{"float":[[0.1]]},"meta":{"billed_units":{"input_tokens":0}}}`, false,
			Report{Complete: true},
		},
		{
			"rankings", typeJSON, `{"results":[{"index":1,"relevance_score":0.9}],"meta":{"billed_units":{"search_units":2}}}`, false,
			ok(Usage{SearchUnits: 2}, 0),
		},
		{"trap 5: usage in several events is not added up", typeSSE, events(start, piece, end, end), false, billed},
		{"trap 7: counts go down", typeSSE, events(start, piece, strings.Replace(end, ":12,", ":99,", 1), end), false, billed},
		{"trap 8: zeros do not erase", typeSSE, events(start, piece, end,
			`{"type":"message-end","delta":{"usage":{"billed_units":{"input_tokens":0,"output_tokens":0}}}}`), false, billed},
		{"trap 15: CRLF", typeSSE, strings.ReplaceAll(events(start, piece, end), "\n", "\r\n"), false, billed},
		{"trap 20: no line end behind the last event", typeSSE, strings.TrimRight(events(start, piece, end), "\n"), false, billed},
		{
			"trap 23: escaped names", typeJSON, strings.ReplaceAll(message(`{"billed_units":{"input_tokens":12,"output_tokens":7}}`), "billed", `b\u0069lled`),
			false, billed,
		},
		{"trap 24: many embeddings before the count", typeJSON, `{"embeddings":{"float":[[` + strings.Repeat("0.125,", 20_000) +
			`1]]},"meta":{"billed_units":{"input_tokens":12}}}`, false, ok(Usage{Input: 12}, 0)},
		{"trap 25: floats and digits", typeJSON, message(`{"billed_units":{"input_tokens":12.0,"output_tokens":"7"}}`), false, billed},
		{
			"trap 27: the end tells an error", typeSSE, events(start, piece, `{"type":"message-end","delta":{"finish_reason":"ERROR","error":"x"}}`), false,
			Report{Complete: true, Failed: true, Delivered: 5},
		},
		{
			"trap 27: the older end tells an error", typeLines, older + "\n" + `{"event_type":"stream-end","finish_reason":"ERROR_LIMIT"}`, false,
			Report{Complete: true, Failed: true, Delivered: 5},
		},
		{"cut before the end", typeSSE, events(start, piece), true, Report{Delivered: 5}},
		{"ended before the end", typeSSE, events(start, piece), false, Report{Delivered: 5}},
		{"older chat, cut", typeLines, older + "\n", true, Report{Delivered: 5}},
		{"cut behind the end", typeSSE, events(start, piece, end), true, billed},
	}
	checkReports(t, tests)
}
