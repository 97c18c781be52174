package usage

import (
	"strings"
	"testing"
)

func TestTrapsOfInteractions(t *testing.T) {
	const (
		created = `{"event_type":"interaction.created","interaction":{"id":"v1_a","status":"in_progress","object":"interaction","model":"m"}}`
		piece   = `{"event_type":"step.delta","index":0,"delta":{"type":"text","text":"Rain"}}`
		thought = `{"event_type":"step.delta","index":0,"delta":{"type":"thought_summary","content":{"type":"text","text":"hm"}}}`
		usage   = `"usage":{"total_tokens":1983,"total_input_tokens":22,"input_tokens_by_modality":[{"modality":"text","tokens":12},` +
			`{"modality":"image","tokens":10}],"total_cached_tokens":8,"total_output_tokens":590,"output_tokens_by_modality":` +
			`[{"modality":"audio","tokens":90}],"total_tool_use_tokens":198,"total_thought_tokens":1173,` +
			`"grounding_tool_count":[{"type":"google_search","count":2},{"type":"google_maps","count":5},{"type":"google_search","count":1}]}`
		completed = `{"event_type":"interaction.completed","interaction":{"id":"v1_a","status":"completed","object":"interaction","model":"m",` + usage + `}}`
	)
	u := Usage{Input: 220, Output: 1763, CacheRead: 8, Reasoning: 1173, ImageIn: 10, AudioOut: 90, WebSearches: 3, Grounded: 1}
	want := Report{Usage: u, Found: true, Complete: true, Model: "m", Delivered: 6}
	document := func(members string) string {
		return `{"id":"v1_a","object":"interaction","model":"m","status":"completed"` + members + `}`
	}
	tests := []reportTest{
		{"events", typeSSE, events(created, piece, thought, completed), false, want},
		{"a document with steps", typeJSON, document(`,"steps":[{"type":"model_output","content":[{"type":"text","text":"Rain"}]},` +
			`{"type":"function_call","arguments":{}}],` + usage), false, want},
		{
			"a document with outputs", typeJSON, document(`,"outputs":[{"type":"text","text":"Rain"}],` + usage), false,
			Report{Usage: u, Found: true, Complete: true, Model: "m", Delivered: 4},
		},
		{
			"the whole repeats the pieces", typeSSE, events(created, piece, strings.Replace(completed, `"usage"`, `"outputs":[{"text":"Rain"}],"usage"`, 1)),
			false,
			Report{Usage: u, Found: true, Complete: true, Model: "m", Delivered: 4},
		},
		{
			"a document that does not say what it is", typeJSON, `{"model":"m","steps":[],` + usage + "}", false,
			Report{Usage: u, Found: true, Complete: true, Model: "m"},
		},
		{
			"steps of another API", typeJSON, `{"model":"m","steps":[],"usage":{"prompt_tokens":10,"completion_tokens":2}}`, false,
			Report{Usage: Usage{Input: 10, Output: 2}, Found: true, Complete: true, Model: "m"},
		},
		{"in the background", typeJSON, `{"id":"v1_a","object":"interaction","model":"m","status":"in_progress"}`, false, Report{Model: "m", Delivered: 71}},
		{
			"the input is not counted", typeJSON, document(`,"usage":{"total_output_tokens":5,"total_tokens":25}`), false,
			Report{Usage: Usage{Input: 20, Output: 5}, Found: true, Complete: true, Model: "m"},
		},
		{
			"trap 25: floats", typeJSON, document(`,"usage":{"total_input_tokens":20.0,"total_output_tokens":"5"}`), false,
			Report{Usage: Usage{Input: 20, Output: 5}, Found: true, Complete: true, Model: "m"},
		},
		{
			"trap 27: an error as an event", typeSSE, events(created, piece, `{"event_type":"error","error":{"code":"internal","message":"x"}}`), false,
			Report{Complete: true, Failed: true, Model: "m", Delivered: 4},
		},
		{
			"trap 27: it failed", typeSSE, events(created, `{"event_type":"interaction.completed","interaction":{"status":"failed"}}`), false,
			Report{Complete: true, Failed: true, Model: "m"},
		},
		{"cut", typeSSE, events(created, piece), true, Report{Model: "m", Delivered: 4}},
		{"cut behind the end", typeSSE, events(created, piece, thought, completed), true, want},
	}
	checkReports(t, tests)
}
