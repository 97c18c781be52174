package usage

import "strings"

// interactionsFamily is Google's Interactions API: an interaction by itself, or in the
// events of a stream.
var interactionsFamily = family{
	name: "gemini interactions",
	positions: append(append([]position{
		interEvent:  {"event_type", word},
		interNested: {"interaction", mark},
		// The first place is shared with other streams that send text in pieces.
		interDelta: {"delta.text", text},
		interMore:  {"delta.content.text delta.arguments delta.partial_arguments", text},
	}, interactionPositions("")...), interactionPositions("interaction.")...),
	extract: extractInteraction,
}

const (
	interEvent = iota
	interNested
	interDelta
	interMore
	// The members of an interaction, first at the top of the document, then under
	// "interaction".
	interTop
)

const (
	interObject = iota
	interStatus
	interModel
	interUsage
	interError
	interSteps
	interText
	interOutput
	interOutputs
	interEnd
)

// interactionPositions are the positions in an interaction.
func interactionPositions(at string) []position {
	return []position{
		interObject:  {at + "object", word},
		interStatus:  {at + "status", word},
		interModel:   {at + "model", word},
		interUsage:   {at + "usage", fragment},
		interError:   {at + "error", word},
		interSteps:   {at + "steps", mark},
		interText:    {at + "steps[].content[].text " + at + "steps[].arguments " + at + "steps[].summary[].text", text},
		interOutput:  {at + "outputs[].text", text},
		interOutputs: {outputText(at), text},
	}
}

// outputText names the places of text in outputs where several APIs have it.
func outputText(at string) string {
	return at + "outputs[].content " + at + "outputs[].content[].text " + at + "outputs[].arguments"
}

func extractInteraction(v view, t *tally) bool {
	base := interTop
	event := string(v.word(interEvent))
	switch {
	case v.kind(interNested) == typeObject:
		base += interEnd
	case string(v.word(base+interObject)) == "interaction":
	case v.kind(base+interSteps) == typeArray:
		if _, _, ok := readInteractionUsage(v.raw(base + interUsage)); !ok {
			return false
		}
	case strings.HasPrefix(event, "interaction."), event == "error":
	case strings.HasPrefix(event, "step."), strings.HasPrefix(event, "content."):
		t.unended = true
		t.streamed += v.text(interDelta) + v.text(interMore)
		if event == "step.start" || event == "content.start" {
			t.opens()
		} else {
			t.piece = true
		}
		return true
	default:
		return false
	}
	t.served(v, base+interModel)
	t.fault(v, base+interError)
	switch status := v.word(base + interStatus); string(status) {
	case "":
		t.unended = t.unended || strings.HasPrefix(event, "interaction.")
	case "queued", "in_progress":
		t.unended = true
		t.opens()
	case "failed":
		t.failed = true
		fallthrough
	default:
		t.ended, t.complete = true, t.complete || strings.HasPrefix(event, "interaction.complete")
	}
	t.whole = max(t.whole, v.text(base+interText)+v.text(base+interOutput)+v.text(base+interOutputs))
	if c, searches, ok := readInteractionUsage(v.raw(base + interUsage)); ok {
		u := c.usage()
		u.WebSearches, u.Grounded = searches, min(searches, 1)
		t.report(u)
	}
	return true
}

// readInteractionUsage reads the usage of an interaction. It reports false if raw is
// none.
func readInteractionUsage(raw []byte) (c geminiCounts, searches int64, ok bool) {
	ok = members(raw, func(name, v []byte) {
		switch string(name) {
		case "total_input_tokens":
			c.prompt.set(v)
		case "total_tool_use_tokens":
			c.toolUse.set(v)
		case "total_output_tokens":
			c.output.set(v)
		case "total_thought_tokens":
			c.thoughts.set(v)
		case "total_cached_tokens":
			c.cached.set(v)
		case "total_tokens":
			c.total.set(v)
		case "input_tokens_by_modality":
			c.in = readModalities(v)
		case "cached_tokens_by_modality":
			c.cache = readModalities(v)
		case "output_tokens_by_modality":
			c.out = readModalities(v)
		case "grounding_tool_count":
			searches = readGrounding(v)
		}
	})
	return c, searches, ok && (c.prompt.known || c.output.known || c.total.known)
}

// readModalities sums up the tokens of each modality.
func readModalities(raw []byte) (m modalities) {
	elements(raw, func(v []byte) {
		n, _ := countOf(memberOf(v, "tokens"))
		m.add(wordOf(memberOf(v, "modality")), n)
	})
	return m
}

// readGrounding sums up the searches of the web.
func readGrounding(raw []byte) (searches int64) {
	elements(raw, func(v []byte) {
		if string(wordOf(memberOf(v, "type"))) == "google_search" {
			n, _ := countOf(memberOf(v, "count"))
			searches += n
		}
	})
	return searches
}
