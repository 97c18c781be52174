package usage

import "strings"

// mistralFamily is Mistral's conversations: a document, or the events of a stream.
// All else that Mistral offers speaks like OpenAI.
var mistralFamily = family{
	name: "mistral conversations",
	positions: []position{
		misObject:  {"object", word},
		misType:    {"type", word},
		misModel:   {"model", word},
		misUsage:   {"usage", fragment},
		misContent: {"content", text},
		misCall:    {"arguments", text},
		misOutputs: {outputText(""), text},
	},
	extract: extractMistral,
}

const (
	misObject = iota
	misType
	misModel
	misUsage
	misContent
	misCall
	misOutputs
)

func extractMistral(v view, t *tally) bool {
	event := string(v.word(misType))
	switch {
	case string(v.word(misObject)) == "conversation.response":
	case strings.HasPrefix(event, "conversation.response."), strings.HasPrefix(event, "message.output."),
		strings.HasPrefix(event, "function.call."), strings.HasPrefix(event, "tool.execution."),
		strings.HasPrefix(event, "agent.handoff."):
		t.unended = true
	default:
		return false
	}
	switch event {
	case "conversation.response.started":
		t.opens()
	case "conversation.response.error":
		t.failed, t.ended = true, true
	case "conversation.response.done":
		t.ended, t.complete = true, true
	}
	t.served(v, misModel)
	t.streamed += v.text(misContent) + v.text(misCall) + v.text(misOutputs)
	if u, ok := t.readUsage(v.raw(misUsage), true); ok {
		t.report(u)
	}
	return true
}
