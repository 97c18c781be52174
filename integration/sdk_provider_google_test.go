package integration

import "fmt"

// google answers as the Gemini API does. It reports false for a call that it has not.
func (rp *reply) google(call string) bool {
	const model = "POST /v1/models/gemini-2.5-flash:"
	switch call {
	case model + "generateContent":
		rp.gemini(rp.serves(tokens{Input: 3120, CacheRead: 2048, Output: 552}))
	case model + "streamGenerateContent":
		rp.geminiStream(rp.serves(tokens{Input: 3121, CacheRead: 2048, Output: 553}))
	case model + "countTokens":
		rp.json(`{"totalTokens":3120,"promptTokensDetails":[{"modality":"TEXT","tokenCount":3120}]}`)
	case "POST /v1/models/gemini-embedding-001:batchEmbedContents", "POST /v1/models/gemini-embedding-001:embedContent":
		t := rp.serves(tokens{Input: 17})
		rp.json(fmt.Sprintf(`{"embeddings":[{"values":[0.5,-0.25]}],"usageMetadata":{"promptTokenCount":%d,"totalTokenCount":%d}}`, t.Input, t.Input))
	case "GET /v1/models":
		rp.json(`{"models":[{"name":"models/gemini-2.5-flash","displayName":"Gemini 2.5 Flash","inputTokenLimit":1048576}]}`)
	case "POST /v1/interactions":
		rp.interaction(rp.serves(tokens{Input: 220, Output: 1763}))
	default:
		return false
	}
	return true
}

// geminiThoughts is the part of the output that is counted apart from the text.
const geminiThoughts = 412

// geminiUsage counts the text that has come so far.
func geminiUsage(t tokens, text int64) string {
	return fmt.Sprintf(`{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d,"cachedContentTokenCount":%d,"promptTokensDetails":[{"modality":"TEXT","tokenCount":%d}],"cacheTokensDetails":[{"modality":"TEXT","tokenCount":%d}],"thoughtsTokenCount":%d}`,
		t.Input, text, t.Input+text+geminiThoughts, t.CacheRead, t.Input, t.CacheRead, geminiThoughts)
}

func geminiCandidate(index int, text, finish string) string {
	return fmt.Sprintf(`{"content":{"parts":[{"text":%s}],"role":"model"}%s,"index":%d}`, text, finish, index)
}

const geminiTail = `,"modelVersion":"gemini-2.5-flash","responseId":"r1"}`

func (rp *reply) gemini(t tokens) {
	candidates := geminiCandidate(0, answerJSON, `,"finishReason":"STOP"`)
	if rp.q.GenerationConfig.CandidateCount == 2 {
		candidates += "," + geminiCandidate(1, answerJSON, `,"finishReason":"STOP"`)
	}
	rp.json(`{"candidates":[` + candidates + `],"usageMetadata":` + geminiUsage(t, t.Output-geminiThoughts) + geminiTail)
}

// geminiStream counts in each event; the thoughts come first, and the last one is right.
func (rp *reply) geminiStream(t tokens) {
	if rp.r.URL.Query().Get("alt") != "sse" {
		rp.json(`[]`) // no client here asks for an array
		return
	}
	send := rp.stream()
	for i, part := range answerParts {
		finish, text := "", int64(i+1)
		if i == len(answerParts)-1 {
			finish, text = `,"finishReason":"STOP"`, t.Output-geminiThoughts
		}
		send("", `{"candidates":[`+geminiCandidate(0, quoted(part), finish)+`],"usageMetadata":`+geminiUsage(t, text)+geminiTail)
	}
}

// interaction answers as the Interactions API does, where tools are counted apart from
// the input and thoughts apart from the output.
func (rp *reply) interaction(t tokens) {
	const tool, thought = 198, 1173
	usage := fmt.Sprintf(`{"total_tokens":%d,"total_input_tokens":%d,"input_tokens_by_modality":[{"modality":"text","tokens":%d}],"total_cached_tokens":0,"total_output_tokens":%d,"total_tool_use_tokens":%d,"total_thought_tokens":%d}`,
		t.Input+t.Output, t.Input-tool, t.Input-tool, t.Output-thought, tool, thought)
	head := `{"id":"v1_a","object":"interaction","model":"gemini-2.5-flash","created":"2026-11-29T10:00:00Z","updated":"2026-11-29T10:00:01Z","status":`
	if !rp.q.Stream {
		rp.json(head + `"completed","steps":[{"type":"model_output","content":[{"type":"text","text":` + answerJSON + `}]}],"usage":` + usage + `}`)
		return
	}
	send := rp.stream()
	send("interaction.created", `{"event_type":"interaction.created","interaction":`+head+`"in_progress"}}`)
	send("step.start", `{"event_type":"step.start","index":0,"step":{"type":"model_output"}}`)
	for _, part := range answerParts {
		send("step.delta", `{"event_type":"step.delta","index":0,"delta":{"type":"text","text":`+quoted(part)+`}}`)
	}
	send("step.stop", `{"event_type":"step.stop","index":0}`)
	send("interaction.completed", `{"event_type":"interaction.completed","interaction":`+head+`"completed","usage":`+usage+`}}`)
	send("done", "[DONE]")
}
