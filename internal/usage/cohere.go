package usage

import "strings"

// cohereFamily is Cohere's chat in both of its versions, its embeddings and rankings.
var cohereFamily = family{
	name: "cohere",
	positions: []position{
		cohType:    {"type", word},
		cohEvent:   {"event_type", word},
		cohMessage: {"message", mark},

		cohUsage:    {"usage", fragment},
		cohMeta:     {"meta", mark},
		cohBilled:   {"meta.billed_units", fragment},
		cohTokens:   {"meta.tokens", fragment},
		cohEnd:      {"delta.usage", fragment},
		cohV1Billed: {"response.meta.billed_units", fragment},
		cohV1Tokens: {"response.meta.tokens", fragment},

		cohFinish:     {"delta.finish_reason", word},
		cohV1Finish:   {"finish_reason", word},
		cohEndError:   {"delta.error", word},
		cohResults:    {"results[]", mark},
		cohEmbeddings: {"embeddings", mark},

		cohPiece: {
			"delta.message.content.text delta.message.content.thinking delta.message.tool_plan " +
				"delta.message.tool_calls.function.name delta.message.tool_calls.function.arguments", text,
		},
		cohText:    {"message.content[].text message.content[].thinking message.tool_plan", text},
		cohCalls:   {messageCalls, text},
		cohV1Text:  {"text", text},
		cohV1Whole: {"response.text", text},
		cohV1Calls: {"tool_calls[].name tool_calls[].parameters", text},
	},
	extract: extractCohere,
}

const (
	cohType = iota
	cohEvent
	cohMessage
	cohUsage
	cohMeta
	cohBilled
	cohTokens
	cohEnd
	cohV1Billed
	cohV1Tokens
	cohFinish
	cohV1Finish
	cohEndError
	cohResults
	cohEmbeddings
	cohPiece
	cohText
	cohCalls
	cohV1Text
	cohV1Whole
	cohV1Calls
)

func extractCohere(v view, t *tally) bool {
	if event := v.word(cohEvent); event != nil {
		return extractCohereV1(string(event), v, t)
	}
	switch event := string(v.word(cohType)); event {
	case "":
	case "message-start", "content-start", "content-delta", "content-end", "tool-plan-delta",
		"tool-call-start", "tool-call-delta", "tool-call-end", "citation-start", "citation-end":
		t.unended = true
		t.streamed += v.text(cohPiece)
		if event == "message-start" || event == "content-start" {
			t.opens()
		} else {
			t.piece = true
		}
		return true
	case "message-end":
		t.unended, t.ended, t.complete = true, true, true
		t.fault(v, cohEndError)
		t.failed = t.failed || cohereFailed(v.word(cohFinish))
		if u, ok := readCohereUsage(v.raw(cohEnd)); ok {
			t.report(u)
		}
		return true
	default:
		return false
	}
	if v.kind(cohMessage) == typeObject {
		u, ok := readCohereUsage(v.raw(cohUsage))
		if !ok {
			return false
		}
		t.streamed += v.text(cohText) + v.text(cohCalls)
		t.report(u)
		return true
	}
	if v.kind(cohMeta) != typeObject {
		return false
	}
	u, ok := readCohereUnits(v.raw(cohBilled), v.raw(cohTokens))
	if !ok {
		return false
	}
	t.streamed += v.text(cohV1Text) + v.text(cohV1Calls)
	if v.kind(cohEmbeddings) != typeAbsent || v.kind(cohResults) != typeAbsent {
		t.output = true
	}
	t.report(u)
	return true
}

// extractCohereV1 reads an event of the older chat.
func extractCohereV1(event string, v view, t *tally) bool {
	switch event {
	case "stream-start":
		t.opens()
	case "search-queries-generation", "search-results", "citation-generation",
		"tool-calls-chunk", "debug":
	case "text-generation", "tool-calls-generation":
		t.streamed += v.text(cohV1Text) + v.text(cohV1Calls)
		t.piece = true
	case "stream-end":
		t.ended, t.complete = true, true
		t.failed = t.failed || cohereFailed(v.word(cohV1Finish))
		t.whole = max(t.whole, v.text(cohV1Whole))
		if u, ok := readCohereUnits(v.raw(cohV1Billed), v.raw(cohV1Tokens)); ok {
			t.report(u)
		}
	default:
		return false
	}
	t.unended = true
	return true
}

// cohereFailed tells the ends of answers that broke off.
func cohereFailed(reason []byte) bool { return strings.HasPrefix(string(reason), "ERROR") }

// readCohereUsage reads a usage object of chat. It reports false if raw is none.
func readCohereUsage(raw []byte) (u Usage, ok bool) {
	raw = validObject(raw)
	return readCohereUnits(memberOf(raw, "billed_units"), memberOf(raw, "tokens"))
}

// readCohereUnits reads what is billed, and where that is not told what was processed,
// which includes a template of hundreds of tokens that nobody pays for. It reports
// false if neither is an object that counts.
func readCohereUnits(billed, processed []byte) (u Usage, ok bool) {
	for _, raw := range [...][]byte{billed, processed} {
		var input, output, images, units optional
		ok = members(raw, func(name, v []byte) {
			switch string(name) {
			case "input_tokens":
				input.set(v)
			case "output_tokens":
				output.set(v)
			case "image_tokens":
				images.set(v)
			case "search_units":
				units.set(v)
			}
		})
		if !ok || !input.known && !output.known && !images.known && !units.known {
			continue
		}
		// Tokens of images have a price of their own and are not in the others.
		u = Usage{Input: input.n + images.n, Output: output.n, ImageIn: images.n, SearchUnits: units.n}
		return u, true
	}
	return u, false
}
