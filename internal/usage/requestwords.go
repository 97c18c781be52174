package usage

import "bytes"

// reqWord is what a member name means at the top of a body and within its prompt, whatever
// the API.
type reqWord struct {
	name       [reqLongestUsual]byte // in place, for the sake of cold caches
	n          uint8
	field      reqField
	part       reqPart
	how        reqNaming
	modalities bool
}

// reqLongestUsual is the length of the longest name of reqUsual.
const reqLongestUsual = len("max_completion_tokens")

// reqUsual are the names that nearly all bodies are made of, also such as mean nothing
// here: what is known of them need not be found out again.
var reqUsual = [...]string{
	"model", "messages", "role", "content", "type", "text", "stream", "stream_options", "max_tokens",
	"max_completion_tokens", "max_output_tokens", "temperature", "top_p", "n", "stop", "user", "metadata", "seed",
	"input", "instructions", "prompt", "system", "tools", "function", "name", "description", "parameters", "arguments",
	"properties", "required", "tool_choice", "parallel_tool_calls", "tool_calls", "tool_call_id", "id", "tool_use_id",
	"input_schema", "cache_control", "image_url", "url", "source", "data", "media_type", "detail", "response_format",
	"reasoning", "reasoning_effort", "thinking", "service_tier", "store", "include", "contents", "parts",
	"frequency_penalty", "presence_penalty", "logprobs", "encoding_format", "dimensions", "items", "enum", "strict",
}

// reqWords are the usual names, each where its hash says.
var reqWords = func() (words [256]reqWord) {
	for _, name := range reqUsual {
		words[reqHash([]byte(name))] = reqWordAs(name)
	}
	return words
}()

// reqWordAs is what a name means to those who know all names.
func reqWordAs(name string) reqWord {
	b := []byte(name)
	w := reqWord{field: reqFieldOf(b), part: reqPartOf(b), how: reqNamingOf(b), modalities: reqModalities(b)}
	w.n = uint8(copy(w.name[:], name))
	return w
}

// reqHash tells the usual names apart: no two of them have the same. The factors were
// found by trying.
func reqHash(name []byte) uint8 {
	n := len(name)
	if n == 0 {
		return 0
	}
	return uint8(n)*212 + name[0]*25 + name[n/2]*65 + name[n-1]*219
}

// reqWordOf is what is known of a name that is written as in reqUsual; nil is nothing.
func reqWordOf(raw []byte) *reqWord {
	if w := &reqWords[reqHash(raw)]; bytes.Equal(w.name[:w.n], raw) && len(raw) > 0 {
		return w
	}
	return nil
}
