package usage

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// openaiEvents is a stream of n events as OpenAI sends them if it is asked for usage,
// without the last one.
func openaiEvents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `data: {"id":"chatcmpl-8f2Qx","object":"chat.completion.chunk","created":1790000001,`+
			`"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_44709d6fcb",`+
			`"choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}],`+
			`"usage":null,"obfuscation":"aB3dE5"}`+"\n\n", i)
	}
	return b.Bytes()
}

func anthropicEvents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,"+
			"\"delta\":{\"type\":\"text_delta\",\"text\":\" word%d\"}}\n\n", i)
	}
	return b.Bytes()
}

func responsesEvents(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\","+
			"\"sequence_number\":%d,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,"+
			"\"delta\":\" word\",\"obfuscation\":\"x91\"}\n\n", i)
	}
	return b.Bytes()
}

// chatBody is a chat completion of about n bytes of text with a line feed and a quote
// now and then.
func chatBody(n int) []byte {
	line := `The \"lighthouse\" keeper counts the ships that pass at dusk and writes them down.\n`
	return []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1790000000,"model":"gpt-4o-2024-11-20",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat(line, max(1, n/len(line))) +
		`","refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":1842,` +
		`"completion_tokens":391,"total_tokens":2233,"prompt_tokens_details":{"cached_tokens":1536}}}`)
}

// embeddingBody is an embedding of about n bytes of floats.
func embeddingBody(n int) []byte {
	return []byte(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[` +
		strings.Repeat("-0.0123456,", n/11) + `1]}],"model":"e","usage":{"prompt_tokens":27,"total_tokens":27}}`)
}

var (
	streamHeader = http.Header{"Content-Type": {"text/event-stream"}}
	jsonHeader   = http.Header{"Content-Type": {"application/json"}}
)

func BenchmarkEvent(b *testing.B) {
	for name, stream := range map[string][]byte{
		"openai": openaiEvents(1000), "anthropic": anthropicEvents(1000), "responses": responsesEvents(1000),
	} {
		b.Run(name, func(b *testing.B) {
			size := len(stream) / 1000
			b.SetBytes(int64(size))
			b.ReportAllocs()
			r := NewResponse()
			r.Start(http.StatusOK, streamHeader)
			pieces := bytes.SplitAfter(stream, []byte("\n\n"))
			pieces = pieces[:1000]
			for i := 0; b.Loop(); i++ {
				r.Write(pieces[i%1000])
			}
			r.Release()
		})
	}
}

func BenchmarkBody(b *testing.B) {
	for _, size := range []int{1 << 10, 20 << 10, 1 << 20} {
		for name, body := range map[string][]byte{"chat": chatBody(size), "embedding": embeddingBody(size)} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					r := NewResponse()
					r.Start(http.StatusOK, jsonHeader)
					for rest := body; len(rest) > 0; {
						n := min(len(rest), 32<<10)
						r.Write(rest[:n])
						rest = rest[n:]
					}
					r.Close(true)
					r.Release()
				}
			})
		}
	}
}

// BenchmarkYardstick searches events with gjson: what the others cost in terms of it
// does not depend on the machine.
func BenchmarkYardstick(b *testing.B) {
	pieces := bytes.SplitAfter(openaiEvents(1000), []byte("\n\n"))[:1000]
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		gjson.GetBytes(pieces[i%1000][len("data: "):], "usage")
	}
}

func BenchmarkHiderEvent(b *testing.B) {
	pieces := bytes.SplitAfter(openaiEvents(1000), []byte("\n\n"))[:1000]
	b.ReportAllocs()
	var h Hider
	var out []byte
	for i := 0; b.Loop(); i++ {
		if p := pieces[i%1000]; !h.Passes(p) {
			out = h.Filter(out[:0], p)
		}
	}
}
