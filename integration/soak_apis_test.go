//go:build unix

package integration

import (
	"fmt"
	"math/rand/v2"
)

// soakAPI is an API of the provider as the soak calls it.
type soakAPI struct {
	path, model string // the model by its bare name
	body        string // with the verb for the cap of the output, if it has one
	stream      bool
	answer      func(rp *reply, t tokens)
	// written are tokens of the input that are put into a cache, least the output below
	// which the provider's answers make no sense.
	written, least int64
	// cached APIs tell what was read from a cache.
	cached, capped bool
	// cut is what a call that is cut off after some events has used, where that can be
	// known from outside: the prompt as reported so far, or as it is estimated.
	cut func(p *plan, events int64) charge
}

const soakMessages = `"messages":[{"role":"user","content":"hi"}]`

// soakPrompt is what the messages above are estimated at, in tokens.
const soakPrompt = 8

// uncut is what a call costs that reported its input and not its output: what it was
// expected to have, for its cap is below what is expected of any call.
func uncut(p *plan) charge {
	c := p.reported()
	c.output = p.limit
	return c
}

var soakAPIs = []soakAPI{
	{
		path: "/v1/chat/completions", model: "gpt-4o-mini", capped: true, cached: true, answer: (*reply).chat,
		body: `{"model":"gpt-4o-mini","max_completion_tokens":%d,` + soakMessages + `}`,
	},
	{
		path: "/v1/chat/completions", model: "gpt-4o-mini", stream: true, capped: true, cached: true, answer: (*reply).chat,
		body: `{"model":"gpt-4o-mini","stream":true,"max_completion_tokens":%d,` + soakMessages + `}`,
		cut:  func(p *plan, _ int64) charge { return charge{input: soakPrompt, output: p.limit} },
	},
	{
		path: "/v1/completions", model: "gpt-3.5-turbo-instruct", stream: true, capped: true, answer: (*reply).completion,
		body: `{"model":"gpt-3.5-turbo-instruct","stream":true,"stream_options":{"include_usage":true},"max_tokens":%d,"prompt":"Basalt"}`,
	},
	{
		path: "/v1/responses", model: "gpt-5-mini", stream: true, capped: true, cached: true, least: 256, answer: (*reply).response,
		body: `{"model":"gpt-5-mini","stream":true,"max_output_tokens":%d,"input":"How does basalt cool?"}`,
	},
	{
		path: "/v1/embeddings", model: "text-embedding-3-small", answer: (*reply).embeddings,
		body: `{"model":"text-embedding-3-small","input":["basalt","granite"]}`,
	},
	{
		path: "/v1/messages", model: "claude-haiku-4-5", capped: true, cached: true, written: 512, answer: (*reply).message,
		body: `{"model":"claude-haiku-4-5","max_tokens":%d,` + soakMessages + `}`,
	},
	{
		path: "/v1/messages", model: "claude-haiku-4-5", stream: true, capped: true, cached: true, written: 512, answer: (*reply).message,
		body: `{"model":"claude-haiku-4-5","stream":true,"max_tokens":%d,` + soakMessages + `}`,
		cut:  func(p *plan, _ int64) charge { return uncut(p) },
	},
	{
		path: "/google/v1/models/gemini-2.5-flash:streamGenerateContent?alt=sse", model: "gemini-2.5-flash",
		stream: true, capped: true, cached: true, least: geminiThoughts + 1, answer: (*reply).geminiStream,
		body: `{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"generationConfig":{"maxOutputTokens":%d}}`,
		cut: func(p *plan, events int64) charge {
			c := uncut(p) // each event counts what has come so far
			c.output = max(c.output, geminiThoughts+events)
			return c
		},
	},
	{
		path: "/ollama/api/chat", model: "qwen3:4b", stream: true, capped: true,
		answer: func(rp *reply, t tokens) {
			rp.ollamaText(t, func(text string) string { return `"message":{"role":"assistant","content":` + text + `}` })
		},
		body: `{"model":"qwen3:4b","stream":true,"options":{"num_predict":%d},` + soakMessages + `}`,
	},
	{
		path: "/mistral/v1/chat/completions", model: "mistral-small-latest", capped: true, cached: true,
		answer: func(rp *reply, t tokens) { rp.mistralChat(t, "mistral-small-latest") },
		body:   `{"model":"mistral-small-latest","max_tokens":%d,` + soakMessages + `}`,
	},
	{
		path: "/bedrock/model/us.amazon.nova-lite-v1:0/converse-stream", model: "nova-lite",
		stream: true, capped: true, cached: true, written: bedrockWritten, answer: (*reply).converseStream,
		body: `{"messages":[{"role":"user","content":[{"text":"hi"}]}],"inferenceConfig":{"maxTokens":%d}}`,
	},
}

// ending is how a call of the soak ends.
type ending int

const (
	whole         ending = iota
	failed               // the provider answers with an error
	broken               // the provider breaks its answer off
	leftEarly            // the client goes before the answer, which is made in time
	left                 // the client goes amid the answer, which is completed in time
	leftForLonger        // the client goes amid the answer, which does not end by itself
)

// plan is what becomes of a call: it is drawn before the call is made.
type plan struct {
	id       string
	api      *soakAPI
	caller   *soakCaller
	tight    bool // it passes a limiter that may refuse it
	ending   ending
	serves   tokens
	limit    int64 // of the output, in tokens
	pause    int   // the event after which the answer is broken off, or the client goes
	arrived  chan struct{}
	paused   chan struct{}
	gone     chan struct{} // the client has gone
	arrivals int
}

// reported is what the provider says that the call used.
func (p *plan) reported() charge {
	return charge{input: p.serves.Input, cacheRead: p.serves.CacheRead, cacheWrite: p.api.written, output: p.serves.Output}
}

// used is what the call must cost.
func (p *plan) used() charge {
	switch p.ending {
	case failed:
		return charge{}
	case broken, leftForLonger:
		return p.api.cut(p, int64(p.pause))
	default:
		return p.reported()
	}
}

// body is the request.
func (p *plan) body() string {
	if !p.api.capped {
		return p.api.body
	}
	return fmt.Sprintf(p.api.body, p.limit)
}

// newPlan draws a call.
func newPlan(r *rand.Rand, id string, callers []*soakCaller) *plan {
	api := &soakAPIs[r.IntN(len(soakAPIs))]
	p := &plan{
		id: id, api: api, caller: callers[r.IntN(len(callers))], tight: r.IntN(8) == 0,
		// below 1,024, which is the least that a call without a cap is expected to have
		limit: 16 + r.Int64N(1000), pause: 1 + r.IntN(3),
		arrived: make(chan struct{}), paused: make(chan struct{}), gone: make(chan struct{}),
	}
	p.serves.Input = api.written + r.Int64N(5000) + 1
	if api.cached && r.IntN(2) == 0 {
		p.serves.CacheRead = r.Int64N(3000)
		p.serves.Input += p.serves.CacheRead
	}
	if api.capped {
		p.serves.Output = api.least + r.Int64N(2000) + 1
	}
	switch n := r.IntN(100); {
	case n < 8:
		p.ending = failed
	case n < 14:
		p.ending = leftEarly
	case n < 22 && api.stream:
		p.ending = left
	case n < 32 && api.cut != nil:
		p.ending = broken
	case n < 38 && api.cut != nil:
		p.ending = leftForLonger
	}
	return p
}
