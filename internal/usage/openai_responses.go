package usage

import (
	"bytes"
)

// responsesFamily is OpenAI's Responses API and its followers: a response object by
// itself, or in the events of a stream.
var responsesFamily = family{
	name: "openai responses",
	positions: append(append([]position{
		responsesType:   {"type", word},
		responsesDelta:  {"delta", text},
		responsesNested: {"response", typedText},

		responsesItem:      {"item.type", word},
		responsesAction:    {"item.action.type", word},
		responsesContainer: {"item.container_id", word},
		responsesResult:    {"item.result", mark},
	}, responsesPositions("")...), responsesPositions("response.")...),
	extract: extractResponses,
}

const (
	responsesType = iota
	responsesDelta
	responsesNested
	responsesItem // what has ended in a stream
	responsesAction
	responsesContainer
	responsesResult
	// The members of a response object, first at the top of the document, then under
	// "response".
	responsesTop
)

const (
	respObject = iota
	respStatus
	respModel
	respTier
	respUsage
	respTools
	respError
	respToolModel
	respItemType
	respAction
	respResult
	respContainer
	respText
	respEnd
)

// responsesPositions are the positions in a response object.
func responsesPositions(at string) []position {
	return []position{
		respObject:    {at + "object", word},
		respStatus:    {at + "status", word},
		respModel:     {at + "model", word},
		respTier:      {at + "service_tier", word},
		respUsage:     {at + "usage", fragment},
		respTools:     {at + "tool_usage", fragment},
		respError:     {at + "error", word},
		respToolModel: {at + "tools[].model", word},
		respItemType:  {at + "output[].type", word},
		respAction:    {at + "output[].action.type", word},
		respResult:    {at + "output[].result", mark},
		respContainer: {at + "output[].container_id", word},
		respText: {
			at + "output[].content[].text " + at + "output[].content[].refusal " +
				at + "output[].content[].transcript " + at + "output[].arguments " +
				at + "output[].input " + at + "output[].summary[].text", text,
		},
	}
}

func extractResponses(v view, t *tally) bool {
	event := v.word(responsesType)
	base := responsesTop
	switch {
	case v.kind(responsesNested) == typeObject:
		base += respEnd
	case bytes.HasPrefix(v.raw(base+respObject), []byte(`"response`)):
	case bytes.HasPrefix(event, []byte("response.")):
		switch {
		case bytes.HasSuffix(event, []byte("audio.delta")): // base64: bytes, not text
			t.output = true
		case bytes.HasSuffix(event, []byte(".delta")):
			t.streamed += v.text(responsesDelta)
			t.piece = true
		case string(event) == "response.output_item.done":
			t.takeItem(v)
		case bytes.HasSuffix(event, []byte(".added")):
			t.opens()
		}
		t.unended = true
		t.fault(v, base+respError)
		return true
	default:
		return false
	}
	t.served(v, base+respModel)
	say(&t.terms.ServiceTier, v.word(base+respTier))
	t.fault(v, base+respError)
	switch status := v.word(base + respStatus); string(status) {
	case "":
	case "queued", "in_progress":
		t.unended = true
		t.opens()
	case "failed":
		t.failed = true
		fallthrough
	default:
		t.ended, t.complete = true, t.complete || bytes.HasPrefix(event, []byte("response."))
	}
	t.whole = max(t.whole, v.text(base+respText))
	t.takeToolUsage(v, base)
	if u, ok := t.readUsage(v.raw(base+respUsage), true); ok {
		t.report(u)
	}
	return true
}
