package usage

// tgiFamily is the native API of Text Generation Inference.
var tgiFamily = family{
	name: "tgi",
	positions: []position{
		tgiToken:   {"token", mark},
		tgiText:    {"token.text", text},
		tgiWhole:   {"generated_text", text},
		tgiInput:   {"details.input_length", word},
		tgiPrefill: {"details.prefill[]", mark},
		tgiOutput:  {"details.generated_tokens", word},
		tgiOthers:  {"details.best_of_sequences[].generated_tokens", word},
	},
	extract: extractTGI,
}

const (
	tgiToken = iota
	tgiText
	tgiWhole
	tgiInput
	tgiPrefill // the tokens of the prompt, if they were asked for
	tgiOutput
	tgiOthers // of the candidates that were not chosen
)

// tgiTally is what only this family needs.
type tgiTally struct{ input, output optional }

func extractTGI(v view, t *tally) bool {
	streamed := v.kind(tgiToken) == typeObject
	if !streamed && v.text(tgiWhole) == 0 && v.kind(tgiOutput) == typeAbsent {
		return false
	}
	t.streamed += v.text(tgiText)
	t.whole = max(t.whole, v.text(tgiWhole))
	t.unended = t.unended || streamed
	n := &t.tgi
	if n.output = v.number(tgiOutput); !n.output.known {
		t.piece = true
		return true
	}
	n.output.n += v.sum(tgiOthers).n
	n.input = v.number(tgiInput)
	if tokens := int64(v.count(tgiPrefill)); tokens > 0 && !n.input.known {
		n.input = optional{tokens, true}
	}
	t.ended, t.complete = true, true
	return true
}

// conclude puts the counts into the report. A whole answer may leave the count of the
// prompt to the header; an output alone is no report.
func (n *tgiTally) conclude(h *headerTally, r *Report) {
	if !n.output.known {
		return
	}
	if !n.input.known {
		n.input = h.input
	}
	if u := (Usage{Input: n.input.n, Output: n.output.n}); n.input.known && u != (Usage{}) {
		r.Usage, r.Found = u, true
	}
}

// llamaFamily is the native API of llama.cpp's server.
var llamaFamily = family{
	name: "llama.cpp",
	positions: []position{
		llamaModel:   {"model", word},
		llamaStop:    {"stop", word},
		llamaText:    {"content", text},
		llamaInput:   {"tokens_evaluated", word},
		llamaOutput:  {"tokens_predicted", word},
		llamaTimings: {"timings", fragment},
	},
	extract: extractLlama,
}

const (
	llamaModel = iota
	llamaStop
	llamaText
	llamaInput
	llamaOutput
	llamaTimings
)

// extractLlama reads an answer or a piece of one. Several prompts are answered side by
// side, each with counts of its own where it stops.
func extractLlama(v view, t *tally) bool {
	stop := v.kind(llamaStop)
	if stop != typeTrue && stop != typeFalse {
		return false
	}
	t.served(v, llamaModel)
	t.streamed += v.text(llamaText)
	t.unended = true
	if stop == typeFalse {
		t.piece = true
		return true
	}
	t.ended = true
	input, output := v.number(llamaInput), v.number(llamaOutput)
	if !input.known && !output.known {
		return true
	}
	// tokens_cached is a place in the context; only the timings know what was reused.
	u := Usage{Input: input.n, Output: output.n, CacheRead: readTimings(v.raw(llamaTimings)).CacheRead}
	u.bound()
	t.add(u)
	return true
}

// lmStudioFamily is the native API of LM Studio.
var lmStudioFamily = family{
	name: "lm studio",
	positions: []position{
		lmType:       {"type", word},
		lmModel:      {"model_instance_id", word},
		lmStats:      {"stats", fragment},
		lmText:       {"content", text},
		lmWhole:      {"output[].content", text},
		lmEndModel:   {"result.model_instance_id", word},
		lmEndStats:   {"result.stats", fragment},
		lmEndContent: {"result.output[].content", text},
	},
	extract: extractLMStudio,
}

const (
	lmType = iota
	lmModel
	lmStats
	lmText
	lmWhole
	lmEndModel
	lmEndStats
	lmEndContent
)

func extractLMStudio(v view, t *tally) bool {
	switch string(v.word(lmType)) {
	case "chat.start":
		t.unended = true
		t.opens()
		t.served(v, lmModel)
	case "message.delta", "reasoning.delta":
		t.unended, t.piece = true, true
		t.streamed += v.text(lmText)
	case "chat.end":
		t.ended, t.complete = true, true
		t.served(v, lmEndModel)
		t.whole = max(t.whole, v.text(lmEndContent))
		if u, ok := readStats(v.raw(lmEndStats)); ok {
			t.report(u)
		}
	case "":
		u, ok := readStats(v.raw(lmStats))
		if !ok {
			return false
		}
		t.served(v, lmModel)
		t.streamed += v.text(lmWhole)
		t.report(u)
	default:
		return false
	}
	return true
}

// readStats reads LM Studio's stats. It reports false if raw counts no tokens.
func readStats(raw []byte) (Usage, bool) {
	var input, output, reasoning optional
	ok := members(raw, func(name, v []byte) {
		switch string(name) {
		case "input_tokens":
			input.set(v)
		case "total_output_tokens":
			output.set(v)
		case "reasoning_output_tokens":
			reasoning.set(v)
		}
	})
	u := Usage{Input: input.n, Output: output.n, Reasoning: reasoning.n}
	u.bound()
	return u, ok && (input.known || output.known)
}
