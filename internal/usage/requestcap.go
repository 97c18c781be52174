package usage

import (
	"slices"
	"strconv"
	"strings"
)

// newCapHosts are upstreams of the chat API that document max_completion_tokens: OpenAI,
// Azure and Groq in their references and SDKs, xAI and OpenRouter beside a max_tokens that
// they call deprecated, Cerebras in its SDK. Others ignore the member without a word, such
// as DeepSeek, Ollama and most servers of old: to them the cap is sent under both names.
var newCapHosts = [...]string{
	"openai.com", "openai.azure.com", "services.ai.azure.com", "cognitiveservices.azure.com",
	"groq.com", "x.ai", "openrouter.ai", "cerebras.ai",
}

// newCapModels begin the names of OpenAI's models, wherever they are served: many refuse
// max_tokens beside the newer member.
var newCapModels = [...]string{"gpt-3", "gpt-4", "gpt-5", "gpt-6", "chatgpt-", "o1", "o3", "o4"}

// ReadsNewCap tells whether an upstream of the chat API is known to read
// max_completion_tokens, by its host, which is empty if it is not known, or by the model.
func ReadsNewCap(host, model string) bool {
	host = strings.ToLower(host)
	for _, h := range newCapHosts {
		if host == h || strings.HasSuffix(host, "."+h) {
			return true
		}
	}
	model = strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	return slices.ContainsFunc(newCapModels[:], func(prefix string) bool { return strings.HasPrefix(model, prefix) })
}

// OnlyNewCap tells whether the body of a chat call has its cap in max_completion_tokens
// alone, which not every server reads.
func (r *Request) OnlyNewCap() bool { return r.edit.newCap }

// RepeatCap writes the cap that stands in max_completion_tokens alone into max_tokens,
// too, and returns the new body and true; a server reads the one that it knows. It returns
// body itself and false where there is nothing to repeat or the body is signed. Bodies
// are as for [Request.AskUsage].
func (r *Request) RepeatCap(body []byte) ([]byte, bool) {
	e := &r.edit
	if !e.newCap || r.Cap < 1 || r.Signed || len(body) != e.size {
		return body, false
	}
	e.newCap = false
	value := strconv.FormatInt(r.Cap, 10)
	if null := e.nullCap(reqMaxTokens); null.at > 0 {
		return e.replace(body, null, value), true
	}
	return e.insert(body, `"`+reqControlNames[reqMaxTokens]+`":`+value), true
}
