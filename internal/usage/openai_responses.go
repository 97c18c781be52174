package usage

import (
	"bytes"

	"github.com/tidwall/gjson"
)

// responsesFamily is OpenAI's Responses API and its followers: a response object by
// itself, or in the events of a stream.
var responsesFamily = family{
	name: "openai responses",
	positions: append(append([]position{
		responsesType:   {"type", word},
		responsesDelta:  {"delta", text},
		responsesNested: {"response", typedText},
	}, responsesPositions("")...), responsesPositions("response.")...),
	extract: extractResponses,
}

const (
	responsesType = iota
	responsesDelta
	responsesNested
	// The members of a response object, first at the top of the document, then under
	// "response".
	responsesTop
)

const (
	respObject = iota
	respStatus
	respModel
	respUsage
	respTools
	respError
	respToolModel
	respItemType
	respAction
	respResult
	respText
	respEnd
)

// responsesPositions are the positions in a response object.
func responsesPositions(at string) []position {
	return []position{
		respObject:    {at + "object", word},
		respStatus:    {at + "status", word},
		respModel:     {at + "model", word},
		respUsage:     {at + "usage", fragment},
		respTools:     {at + "tool_usage", fragment},
		respError:     {at + "error", word},
		respToolModel: {at + "tools[].model", word},
		respItemType:  {at + "output[].type", word},
		respAction:    {at + "output[].action.type", word},
		respResult:    {at + "output[].result", mark},
		respText: {
			at + "output[].content[].text " + at + "output[].content[].refusal " +
				at + "output[].content[].transcript " + at + "output[].arguments " +
				at + "output[].input " + at + "output[].summary[].text", text,
		},
	}
}

// imageTally is what the image tool used: another model, at other prices.
type imageTally struct {
	model string
	usage Usage
}

func (i *imageTally) conclude(r *Report) { r.addOther(i.model, i.usage) }

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
		}
		t.unended = true
		t.fault(v, base+respError)
		return true
	default:
		return false
	}
	t.served(v, base+respModel)
	t.fault(v, base+respError)
	switch status := v.word(base + respStatus); string(status) {
	case "":
	case "queued", "in_progress":
		t.unended = true
	case "failed":
		t.failed = true
		fallthrough
	default:
		t.ended, t.complete = true, t.complete || bytes.HasPrefix(event, []byte("response."))
	}
	t.whole = max(t.whole, v.text(base+respText))
	tools := readToolUsage(v, base)
	if u, ok := readUsage(v.raw(base+respUsage), true); ok {
		if tools.searches.known {
			u.WebSearches = tools.searches.n
		}
		t.report(u)
	}
	if tools.image != (Usage{}) {
		t.image = imageTally{tools.imageModel, tools.image}
	}
	return true
}

// toolUsage is what the tools of a response used.
type toolUsage struct {
	searches   optional
	image      Usage
	imageModel string
}

// readToolUsage reads tool_usage, which is no part of usage, and counts the items of
// the output where it is silent.
func readToolUsage(v view, base int) toolUsage {
	var u toolUsage
	members(parseObject(v.raw(base+respTools)), func(name string, v gjson.Result) {
		switch name {
		case "image_gen":
			t, ok := readTokens([]byte(v.Raw))
			if !ok {
				return
			}
			u.image = t.usage(true)
			// What an image tool puts out is images, even if it does not say so.
			if !t.out.image.known {
				u.image.ImageOut = u.image.Output
			}
		case "web_search":
			u.searches.set(v.Get("num_requests"))
		}
	})
	var searches int64
	v.each(base+respItemType, func(element int32, _ byte, raw []byte) {
		switch string(unquote(raw)) {
		case "image_generation_call":
			if v.element(base+respResult, element) == typeString {
				u.image.Images++
			}
		case "web_search_call":
			if string(unquote(v.at(base+respAction, element))) == "search" {
				searches++
			}
		}
	})
	if searches > 0 && !u.searches.known {
		u.searches = optional{searches, true}
	}
	if u.image != (Usage{}) {
		u.imageModel = string(v.word(base + respToolModel))
	}
	return u
}
