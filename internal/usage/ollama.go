package usage

// ollamaFamily is Ollama's own API: lines of JSON, one for each piece of text, of
// which the last one counts; or a single document.
var ollamaFamily = family{
	name: "ollama",
	positions: []position{
		ollModel:      {"model", word},
		ollDone:       {"done", mark},
		ollReason:     {"done_reason", word},
		ollPrompt:     {"prompt_eval_count", word},
		ollEval:       {"eval_count", word},
		ollError:      {"error", word},
		ollEmbeddings: {"embeddings", mark},
		ollResponse:   {"response", typedText},
		ollContent:    {"message.content", text},
		ollText:       {"message.thinking thinking", text},
		ollCalls:      {messageCalls, text},
	},
	extract: extractOllama,
}

const (
	ollModel = iota
	ollDone
	ollReason
	ollPrompt
	ollEval
	ollError
	ollEmbeddings
	ollResponse
	ollContent
	ollText
	ollCalls
)

// messageCalls names the places of text in the tool calls of a message, where several
// APIs have it.
const messageCalls = "message.tool_calls[].function.name message.tool_calls[].function.arguments"

func extractOllama(v view, t *tally) bool {
	done := v.kind(ollDone)
	prompt, eval := v.number(ollPrompt), v.number(ollEval)
	if done != typeTrue && done != typeFalse && !prompt.known {
		return false
	}
	t.served(v, ollModel)
	t.fault(v, ollError)
	t.streamed += v.text(ollResponse) + v.text(ollContent) + v.text(ollText) + v.text(ollCalls)
	if v.kind(ollEmbeddings) != typeAbsent {
		t.output = true
	}
	switch done {
	case typeFalse:
		t.unended, t.piece = true, true
		return true
	case typeTrue:
		t.ended, t.complete = true, true
	}
	switch {
	case prompt.known || eval.known:
		t.report(Usage{Input: prompt.n, Output: eval.n})
		// Older builds leave out a prompt that was all in the cache; see Report.LacksInput.
	case ollamaMoves(v.word(ollReason)):
		t.report(Usage{})
	}
	return true
}

// ollamaMoves tells the ends of calls that load a model or unload it, and use nothing.
func ollamaMoves(reason []byte) bool {
	return string(reason) == "load" || string(reason) == "unload"
}
