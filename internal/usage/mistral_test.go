package usage

import "testing"

func TestTrapsOfMistralConversations(t *testing.T) {
	const (
		begun = `{"type":"conversation.response.started","conversation_id":"conv_1"}`
		piece = `{"type":"message.output.delta","output_index":0,"id":"msg_1","model":"m","role":"assistant","content":"Flint"}`
		tool  = `{"type":"tool.execution.done","output_index":1,"name":"web_search"}`
		call  = `{"type":"function.call.delta","name":"f","model":"m","arguments":"{\"a\":1}"}`
		done  = `{"type":"conversation.response.done","usage":{"prompt_tokens":188,"completion_tokens":55,"total_tokens":7355,` +
			`"connector_tokens":7112,"connectors":{"web_search":2,"code_interpreter":1}}}`
	)
	want := Report{Usage: Usage{Input: 7300, Output: 55, WebSearches: 2}, Found: true, Complete: true, Model: "m", Delivered: 5}
	tests := []reportTest{
		{"events", typeSSE, events(begun, piece, tool, done), false, want},
		{
			"a document", typeJSON, `{"object":"conversation.response","conversation_id":"c","outputs":[{"type":"tool.execution"},{"type":"message.output",` +
				`"model":"m","content":[{"type":"text","text":"Flint"}]}],"usage":{"prompt_tokens":188,"completion_tokens":55,"total_tokens":7355,` +
				`"connector_tokens":7112,"connectors":{"web_search":2}}}`, false,
			Report{Usage: want.Usage, Found: true, Complete: true, Delivered: 5},
		},
		{
			"connectors counted with the prompt", typeSSE, events(piece, `{"type":"conversation.response.done","usage":{"prompt_tokens":7300,`+
				`"completion_tokens":55,"total_tokens":7355,"connector_tokens":7112}}`), false,
			Report{Usage: Usage{Input: 7300, Output: 55}, Found: true, Complete: true, Model: "m", Delivered: 5},
		},
		{
			"a call of a function", typeSSE, events(begun, call, done), false,
			Report{Usage: want.Usage, Found: true, Complete: true, Model: "m", Delivered: 7},
		},
		{
			"trap 27: an error as an event", typeSSE, events(begun, piece, `{"type":"conversation.response.error","message":"x","code":3}`), false,
			Report{Complete: true, Failed: true, Model: "m", Delivered: 5},
		},
		{"cut", typeSSE, events(begun, piece), true, Report{Model: "m", Delivered: 5}},
	}
	checkReports(t, tests)
}
