package integration

import "fmt"

// message answers as Anthropic does: what is read from the cache, and what is written
// to it, comes on top of the input.
func (rp *reply) message(t tokens) {
	const written = 512
	usage := func(output int64) string {
		return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":0},"output_tokens":%d,"service_tier":"standard"}`, t.Input-t.CacheRead-written, written, t.CacheRead, written, output)
	}
	whole := func(content, stop, usage string) string {
		return `{"id":"msg_01","type":"message","role":"assistant","model":"claude-haiku-4-5-20251001","content":[` + content + `],"stop_reason":` + stop + `,"stop_sequence":null,"usage":` + usage + `}`
	}
	if !rp.q.Stream {
		rp.json(whole(`{"type":"text","text":`+answerJSON+`}`, `"end_turn"`, usage(t.Output)))
		return
	}

	stream := rp.stream()
	send := func(name, members string) { stream(name, `{"type":"`+name+`"`+members+`}`) }
	send("message_start", `,"message":`+whole("", "null", usage(1)))
	send("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	send("ping", "")
	for _, part := range answerParts {
		send("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":`+quoted(part)+`}`)
	}
	send("content_block_stop", `,"index":0`)
	send("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}`, t.Output))
	send("message_stop", "")
}
