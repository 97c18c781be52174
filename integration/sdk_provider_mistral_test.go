package integration

import "fmt"

// mistral answers as Mistral does. It reports false for a call that it has not.
func (rp *reply) mistral(call string) bool {
	switch call {
	case "POST /v1/chat/completions":
		rp.mistralChat(rp.serves(tokens{Input: 10, CacheRead: 4, Output: 232}), "mistral-small-latest")
	case "POST /v1/fim/completions":
		rp.mistralChat(rp.serves(tokens{Input: 9, Output: 33}), "codestral-latest")
	case "POST /v1/embeddings":
		t := rp.serves(tokens{Input: 15})
		rp.json(fmt.Sprintf(`{"id":"e1","object":"list","model":"mistral-embed","data":[{"object":"embedding","embedding":[0.5,-0.25],"index":0}],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":0}}`, t.Input, t.Input))
	case "POST /v1/conversations":
		rp.conversation(rp.serves(tokens{Input: 401, Output: 57}))
	case "GET /v1/models":
		rp.json(`{"object":"list","data":[{"id":"mistral-small-latest","object":"model","created":1790000000,"owned_by":"mistralai","type":"base","capabilities":{"completion_chat":true}}]}`)
	default:
		return false
	}
	return true
}

// mistralChat counts in the last chunk that has a choice, whether asked to or not.
func (rp *reply) mistralChat(t tokens, model string) {
	usage := fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"num_cached_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, t.Input, t.Input+t.Output, t.Output, t.CacheRead, t.CacheRead)
	head := func(object string) string {
		return `{"id":"m1","object":"` + object + `","created":1790000001,"model":"` + model + `","choices":[{"index":0,`
	}
	if !rp.q.Stream {
		rp.json(head("chat.completion") + `"message":{"role":"assistant","content":` + answerJSON + `,"tool_calls":null},"finish_reason":"stop"}]` + usage + `}`)
		return
	}
	send := rp.stream()
	delta := func(delta, finish, usage string) {
		send("", head("chat.completion.chunk")+`"delta":`+delta+`,"finish_reason":`+finish+`}]`+usage+`}`)
	}
	delta(`{"role":"assistant","content":""}`, "null", "")
	for _, part := range answerParts {
		delta(`{"content":`+quoted(part)+`}`, "null", "")
	}
	delta(`{"content":""}`, `"stop"`, usage)
	send("", "[DONE]")
}

// conversation is what Mistral's agents speak.
func (rp *reply) conversation(t tokens) {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, t.Input, t.Output, t.Input+t.Output)
	if !rp.q.Stream {
		rp.json(`{"object":"conversation.response","conversation_id":"conv_1","outputs":[{"object":"entry","type":"message.output","id":"msg_1","role":"assistant","model":"mistral-medium-latest","content":` + answerJSON + `}],"usage":` + usage + `}`)
		return
	}
	stream := rp.stream()
	send := func(name, members string) {
		stream(name, `{"type":"`+name+`","created_at":"2026-11-29T10:00:00Z",`+members+`}`)
	}
	send("conversation.response.started", `"conversation_id":"conv_1"`)
	for _, part := range answerParts {
		send("message.output.delta", `"output_index":0,"id":"msg_1","content_index":0,"model":"mistral-medium-latest","role":"assistant","content":`+quoted(part))
	}
	send("conversation.response.done", `"usage":`+usage)
}
