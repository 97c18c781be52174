package integration

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
)

// The models of Bedrock: one by its id, one by the ARN of a profile.
const (
	bedrockClaude = "POST /model/anthropic.claude-3-haiku-20240307-v1:0/"
	bedrockTitan  = "POST /model/amazon.titan-embed-text-v2:0/"
	bedrockNova   = "POST /model/arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0/"
)

// bedrock answers as Bedrock does. It reports false for a call that it has not.
func (rp *reply) bedrock(call string) bool {
	switch call {
	case bedrockClaude + "invoke":
		rp.bedrockMessage(rp.serves(tokens{Input: 1577, CacheRead: 1024, Output: 19}))
	case bedrockClaude + "invoke-with-response-stream":
		rp.bedrockMessageStream(rp.serves(tokens{Input: 1578, CacheRead: 1024, Output: 20}))
	case bedrockTitan + "invoke":
		t := rp.serves(tokens{Input: 5})
		rp.bedrockCounts(t, 0)
		rp.json(fmt.Sprintf(`{"embedding":[0.5,-0.25],"inputTextTokenCount":%d}`, t.Input))
	case bedrockNova + "converse":
		t := rp.serves(tokens{Input: 1824, CacheRead: 500, Output: 5})
		rp.json(`{"metrics":{"latencyMs":812},"output":{"message":{"role":"assistant","content":[{"text":` + answerJSON + `}]}},"stopReason":"end_turn","usage":` + converseUsage(t) + `}`)
	case bedrockNova + "converse-stream":
		rp.converseStream(rp.serves(tokens{Input: 1825, CacheRead: 500, Output: 36}))
	default:
		return false
	}
	return true
}

// bedrockWritten is what is written to the cache, which is counted apart from the rest
// of the input, as is what is read from it.
const bedrockWritten = 322

// bedrockCounts says in headers what a model says in words of its own.
func (rp *reply) bedrockCounts(t tokens, written int64) {
	for name, n := range map[string]int64{
		"Input": t.Input - t.CacheRead - written, "Output": t.Output,
		"Cache-Read-Input": t.CacheRead, "Cache-Write-Input": written,
	} {
		rp.w.Header().Set("X-Amzn-Bedrock-"+name+"-Token-Count", strconv.FormatInt(n, 10))
	}
}

func bedrockClaudeUsage(t tokens, output int64) string {
	return fmt.Sprintf(`{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d}`, t.Input-t.CacheRead-bedrockWritten, bedrockWritten, t.CacheRead, output)
}

func bedrockClaudeMessage(content, stop, usage string) string {
	return `{"id":"msg_bdrk_1","type":"message","role":"assistant","model":"claude-3-haiku-20240307","content":[` + content + `],"stop_reason":` + stop + `,"stop_sequence":null,"usage":` + usage + `}`
}

func (rp *reply) bedrockMessage(t tokens) {
	rp.bedrockCounts(t, bedrockWritten)
	rp.json(bedrockClaudeMessage(`{"type":"text","text":`+answerJSON+`}`, `"end_turn"`, bedrockClaudeUsage(t, t.Output)))
}

// bedrockMessageStream wraps Anthropic's events; the last one repeats the counts.
func (rp *reply) bedrockMessageStream(t tokens) {
	frame := rp.frames()
	send := func(name, members string) {
		event := base64.StdEncoding.EncodeToString([]byte(`{"type":"` + name + `"` + members + `}`))
		frame("chunk", `{"bytes":"`+event+`","p":"abcdefghij"}`)
	}
	send("message_start", `,"message":`+bedrockClaudeMessage("", "null", bedrockClaudeUsage(t, 1)))
	send("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)
	for _, part := range answerParts {
		send("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":`+quoted(part)+`}`)
	}
	send("content_block_stop", `,"index":0`)
	send("message_delta", fmt.Sprintf(`,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":%d}`, t.Output))
	send("message_stop", fmt.Sprintf(`,"amazon-bedrock-invocationMetrics":{"inputTokenCount":%d,"outputTokenCount":%d,"invocationLatency":712,"firstByteLatency":310,"cacheReadInputTokenCount":%d,"cacheWriteInputTokenCount":%d}`, t.Input-t.CacheRead-bedrockWritten, t.Output, t.CacheRead, bedrockWritten))
}

func converseUsage(t tokens) string {
	return fmt.Sprintf(`{"inputTokens":%d,"outputTokens":%d,"totalTokens":%d,"cacheReadInputTokens":%d,"cacheWriteInputTokens":%d,"serverToolUsage":{}}`, t.Input-t.CacheRead-bedrockWritten, t.Output, t.Input+t.Output, t.CacheRead, bedrockWritten)
}

func (rp *reply) converseStream(t tokens) {
	frame := rp.frames()
	frame("messageStart", `{"p":"abcdefg","role":"assistant"}`)
	for _, part := range answerParts {
		frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":`+quoted(part)+`},"p":"abc"}`)
	}
	frame("contentBlockStop", `{"contentBlockIndex":0,"p":"ab"}`)
	frame("messageStop", `{"p":"abcd","stopReason":"end_turn"}`)
	frame("metadata", `{"metrics":{"latencyMs":638},"p":"abcdefghijklmnop","usage":`+converseUsage(t)+`}`)
}

// frames begins a stream of events in the format of AWS and returns what sends one.
func (rp *reply) frames() (send func(event, payload string)) {
	rp.w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	return func(event, payload string) {
		var headers []byte
		for _, h := range [][2]string{{":event-type", event}, {":content-type", "application/json"}, {":message-type", "event"}} {
			headers = append(headers, byte(len(h[0])))
			headers = append(headers, h[0]...)
			headers = append(headers, 7) // a string follows
			headers = binary.BigEndian.AppendUint16(headers, uint16(len(h[1])))
			headers = append(headers, h[1]...)
		}
		// lengths, their checksum, headers, payload, the checksum of all
		frame := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(headers)))
		frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame))
		frame = append(append(frame, headers...), payload...)
		frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(frame))
		rp.w.Write(frame)
		http.NewResponseController(rp.w).Flush()
	}
}
