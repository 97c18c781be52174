package integration

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
)

// provider speaks the APIs of OpenAI and Anthropic, and those of other vendors below a
// path of each, to one key, and keeps book of what it served. Its answers depend on
// nothing but the request.
type provider struct {
	key string

	mu     sync.Mutex
	served map[string]tokens // by what their paths begin with
}

// tokens is what was served: input includes what was read from a cache and written to
// it, output the reasoning.
type tokens struct{ Requests, Input, CacheRead, Output int64 }

// question is what the provider reads of a request.
type question struct {
	Stream        bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	N              int
	Input          any
	EncodingFormat string `json:"encoding_format"`

	GenerationConfig struct{ CandidateCount int }
}

// answerParts is what every model answers, in the pieces in which it is streamed.
var answerParts = []string{"Basalt", " cools", " \"fast\"", ",\nusually."}

// answerJSON is the whole answer as a JSON string.
var answerJSON = quoted(strings.Join(answerParts, ""))

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// take returns what was served since it was called last, by paths that begin with a
// vendor's name, or with v1.
func (p *provider) take(vendor string) tokens {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.served[vendor]
	delete(p.served, vendor)
	return t
}

func (p *provider) add(vendor string, t tokens) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.served == nil {
		p.served = make(map[string]tokens)
	}
	sum := p.served[vendor]
	sum.Requests += t.Requests
	sum.Input += t.Input
	sum.CacheRead += t.CacheRead
	sum.Output += t.Output
	p.served[vendor] = sum
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	vendor, path, _ := strings.Cut(r.URL.Path[1:], "/")
	p.add(vendor, tokens{Requests: 1})
	if r.Header.Get("Authorization") != "Bearer "+p.key && r.Header.Get("X-Api-Key") != p.key && r.Header.Get("X-Goog-Api-Key") != p.key {
		http.Error(w, `{"error":{"message":"the provider does not know this key","code":"invalid_api_key"}}`, http.StatusUnauthorized)
		return
	}
	q := question{N: 1}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	rp := &reply{w, r, q, func(t tokens) tokens {
		p.add(vendor, t)
		return t
	}}
	switch r.Method + " " + r.URL.Path {
	case "POST /v1/chat/completions":
		rp.chat(rp.serves(tokens{Input: 1117, CacheRead: 1024, Output: 13 * int64(q.N)}))
	case "POST /v1/completions":
		rp.completion(rp.serves(tokens{Input: 29, Output: 7}))
	case "POST /v1/responses":
		rp.response(rp.serves(tokens{Input: 2203, CacheRead: 2048, Output: 311}))
	case "POST /v1/embeddings":
		rp.embeddings(rp.serves(tokens{Input: 17}))
	case "POST /v1/messages":
		rp.message(rp.serves(tokens{Input: 1577, CacheRead: 1024, Output: 19}))
	case "POST /v1/messages/count_tokens":
		rp.json(`{"input_tokens":1577}`)
	case "GET /v1/models":
		rp.json(`{"object":"list","data":[` + model("gpt-4o-mini") + `,` + model("gpt-5-mini") + `]}`)
	case "GET /v1/models/gpt-4o-mini":
		rp.json(model("gpt-4o-mini"))
	default:
		rp.vendor(vendor, r.Method+" /"+path)
	}
}

// reply is one answer on its way.
type reply struct {
	w http.ResponseWriter
	r *http.Request
	q question

	// serves books what is about to be served, and returns it: a client has its answer
	// before the server has returned.
	serves func(tokens) tokens
}

// vendor answers a call below the path of a vendor.
func (rp *reply) vendor(name, call string) {
	vendors := map[string]func(call string) bool{
		"google": rp.google, "ollama": rp.ollama, "mistral": rp.mistral, "cohere": rp.cohere, "bedrock": rp.bedrock,
	}
	if serve := vendors[name]; serve == nil || !serve(call) {
		http.NotFound(rp.w, rp.r)
	}
}

func model(id string) string {
	return `{"id":` + quoted(id) + `,"object":"model","created":1720000000,"owned_by":"system"}`
}

// json answers with a document, compressed if the client takes that, as both
// providers do.
func (rp *reply) json(body string) {
	h := rp.w.Header()
	h.Set("Content-Type", "application/json")
	rp.stamp()
	if !strings.Contains(rp.r.Header.Get("Accept-Encoding"), "gzip") {
		io.WriteString(rp.w, body)
		return
	}
	h.Set("Content-Encoding", "gzip")
	zw := gzip.NewWriter(rp.w)
	io.WriteString(zw, body)
	zw.Close()
}

// stamp sets the id by which the SDKs let support find a request.
func (rp *reply) stamp() {
	rp.w.Header().Set("X-Request-Id", "req_"+strings.ReplaceAll(rp.r.URL.Path[1:], "/", "_"))
	rp.w.Header().Set("Request-Id", rp.w.Header().Get("X-Request-Id"))
}

// stream begins a stream of events and returns what sends one; name may be empty.
func (rp *reply) stream() (send func(name, data string)) {
	rp.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	rp.stamp()
	return func(name, data string) {
		if name != "" {
			fmt.Fprintf(rp.w, "event: %s\n", name)
		}
		fmt.Fprintf(rp.w, "data: %s\n\n", data)
		http.NewResponseController(rp.w).Flush()
	}
}

func (rp *reply) chat(t tokens) {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`, t.Input, t.Output, t.Input+t.Output, t.CacheRead)
	if !rp.q.Stream {
		choices := make([]string, rp.q.N)
		for i := range choices {
			choices[i] = fmt.Sprintf(`{"index":%d,"message":{"role":"assistant","content":%s,"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`, i, answerJSON)
		}
		rp.json(fmt.Sprintf(`{"id":"chatcmpl-1","object":"chat.completion","created":1790000001,"model":"gpt-4o-mini-2024-07-18","choices":[%s],"usage":%s,"service_tier":"default"}`, strings.Join(choices, ","), usage))
		return
	}

	send, null := rp.stream(), rp.nullUsage()
	head := `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1790000001,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","choices":[`
	delta := func(i int, delta, finish string) {
		send("", fmt.Sprintf(`%s{"index":%d,"delta":%s,"logprobs":null,"finish_reason":%s}]%s,"obfuscation":"qTz81m"}`, head, i, delta, finish, null))
	}
	for i := range rp.q.N {
		delta(i, `{"role":"assistant","content":"","refusal":null}`, "null")
	}
	for _, part := range answerParts {
		for i := range rp.q.N {
			delta(i, `{"content":`+quoted(part)+`}`, "null")
		}
	}
	for i := range rp.q.N {
		delta(i, `{}`, `"stop"`)
	}
	if rp.q.StreamOptions.IncludeUsage {
		send("", head+`],"usage":`+usage+`,"obfuscation":"b9"}`)
	}
	send("", "[DONE]")
}

// nullUsage is the member that chunks have where one with usage is to come.
func (rp *reply) nullUsage() string {
	if rp.q.StreamOptions.IncludeUsage {
		return `,"usage":null`
	}
	return ""
}

func (rp *reply) completion(t tokens) {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, t.Input, t.Output, t.Input+t.Output)
	head := `{"id":"cmpl-1","object":"text_completion","created":1790000001,"model":"gpt-3.5-turbo-instruct:20230824-v2","choices":[`
	choice := func(text, finish string) string {
		return fmt.Sprintf(`{"text":%s,"index":0,"logprobs":null,"finish_reason":%s}]`, text, finish)
	}
	if !rp.q.Stream {
		rp.json(head + choice(answerJSON, `"stop"`) + `,"usage":` + usage + `}`)
		return
	}
	send, null := rp.stream(), rp.nullUsage()
	for _, part := range answerParts {
		send("", head+choice(quoted(part), "null")+null+`}`)
	}
	send("", head+choice(`""`, `"stop"`)+null+`}`)
	if rp.q.StreamOptions.IncludeUsage {
		send("", head+`],"usage":`+usage+`}`)
	}
	send("", "[DONE]")
}

func (rp *reply) response(t tokens) {
	content := `{"type":"output_text","text":` + answerJSON + `,"annotations":[],"logprobs":[]}`
	item := func(status, content string) string {
		return `{"id":"msg_1","type":"message","status":"` + status + `","role":"assistant","content":[` + content + `]}`
	}
	whole := func(status, output, usage string) string {
		return `{"id":"resp_1","object":"response","created_at":1790000000,"status":"` + status + `","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":64,"model":"gpt-5-mini-2025-08-07","output":[` + output + `],"parallel_tool_calls":true,"previous_response_id":null,"store":true,"temperature":1,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1,"truncation":"disabled","usage":` + usage + `,"metadata":{}}`
	}
	usage := fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":256},"total_tokens":%d}`, t.Input, t.CacheRead, t.Output, t.Input+t.Output)
	completed := whole("completed", item("completed", content), usage)
	if !rp.q.Stream {
		rp.json(completed)
		return
	}

	stream := rp.stream()
	number := 0
	send := func(name, members string) {
		stream(name, fmt.Sprintf(`{"type":%q,"sequence_number":%d,%s}`, name, number, members))
		number++
	}
	place := `"item_id":"msg_1","output_index":0,"content_index":0,`
	started := `"response":` + whole("in_progress", "", "null")
	send("response.created", started)
	send("response.in_progress", started)
	send("response.output_item.added", `"output_index":0,"item":`+item("in_progress", ""))
	send("response.content_part.added", place+`"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`)
	for _, part := range answerParts {
		send("response.output_text.delta", place+`"delta":`+quoted(part)+`,"logprobs":[],"obfuscation":"x91"`)
	}
	send("response.output_text.done", place+`"text":`+answerJSON+`,"logprobs":[]`)
	send("response.content_part.done", place+`"part":`+content)
	send("response.output_item.done", `"output_index":0,"item":`+item("completed", content))
	send("response.completed", `"response":`+completed)
}

// embeddings answers in base64 where it is asked to, which the SDK does by itself.
func (rp *reply) embeddings(t tokens) {
	n := 1
	if list, ok := rp.q.Input.([]any); ok {
		n = len(list)
	}
	data := make([]string, n)
	for i := range data {
		vector := []float32{0.5, -0.25, float32(i)}
		text, _ := json.Marshal(vector)
		if rp.q.EncodingFormat == "base64" {
			var raw []byte
			for _, f := range vector {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
			}
			text = []byte(quoted(base64.StdEncoding.EncodeToString(raw)))
		}
		data[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, text)
	}
	rp.json(fmt.Sprintf(`{"object":"list","data":[%s],"model":"text-embedding-3-small","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(data, ","), t.Input, t.Input))
}
