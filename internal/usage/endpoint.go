package usage

import (
	"net/http"
	"net/url"
	"strings"
)

// Dialect is the vendor whose SDK has to understand an error.
type Dialect uint8

// The dialects. OpenAI's is spoken where nothing tells otherwise.
const (
	OpenAI Dialect = iota
	Anthropic
	Gemini
	Bedrock
	Ollama
)

// String is the dialect's name in lower case.
func (d Dialect) String() string {
	switch d {
	case Anthropic:
		return "anthropic"
	case Gemini:
		return "gemini"
	case Bedrock:
		return "bedrock"
	case Ollama:
		return "ollama"
	default:
		return "openai"
	}
}

// Class is what a call can cost.
type Class uint8

const (
	// Spending calls use tokens, and their answers say how many, or an estimate
	// stands in. It is the class of every endpoint that is not known better.
	Spending Class = iota
	// Free calls cost nothing but a request.
	Free
	// Unmetered calls spend money where no usage will be seen.
	Unmetered
	// Minting calls create credentials of the provider, which work without this gateway.
	Minting
	// Upgrade calls leave HTTP: WebSocket, extended CONNECT.
	Upgrade
	// Realtime calls leave HTTP for a WebSocket whose messages say what is used.
	Realtime
)

// String is the class's name in lower case.
func (c Class) String() string {
	switch c {
	case Free:
		return "free"
	case Unmetered:
		return "unmetered"
	case Minting:
		return "minting"
	case Upgrade:
		return "upgrade"
	case Realtime:
		return "realtime"
	default:
		return "spending"
	}
}

// Endpoint is what method, path and headers tell about a call.
type Endpoint struct {
	API     API
	Dialect Dialect
	Class   Class
	// Model is the one that the path names (or, for an upgrade, the query); empty
	// where the body names it.
	Model string
	// Presigned is set if a signature of AWS stands in the query.
	Presigned bool
}

// endpointRow says what a path is. Segments match whatever their case; a path
// matches by its last segments, so that any prefix may stand before them.
//
//   - one segment
//     {model}         one segment, the model
//     {model}:verb    one segment, the model before its last colon
//     {model+}        one or more segments, the model (an ARN contains slashes)
//     **              at the end: everything beneath, wherever it stands
type endpointRow struct {
	path    string
	api     API
	dialect Dialect
	class   Class
}

// endpointRows is searched from the top, the first match decides. What is known
// to spend stands first, so that no prefix or id makes it look free; POST and
// other writing methods are meant, reading ones are free (see Identify).
var endpointRows = []endpointRow{
	// https://platform.openai.com/docs/api-reference
	{"chat/completions", OpenAIChat, OpenAI, Spending},
	{"fim/completions", MistralChat, OpenAI, Spending},
	{"agents/completions", MistralChat, OpenAI, Spending},
	{"completions", OpenAICompletions, OpenAI, Spending},
	{"responses", OpenAIResponses, OpenAI, Spending},
	{"responses/compact", UnknownAPI, OpenAI, Spending},
	{"responses/input_tokens", UnknownAPI, OpenAI, Free},
	{"responses/*/cancel", UnknownAPI, OpenAI, Free},
	{"api/embeddings", OllamaEmbed, Ollama, Spending},
	{"embeddings", OpenAIEmbeddings, OpenAI, Spending},
	{"images/generations", OpenAIImages, OpenAI, Spending},
	{"images/edits", OpenAIImages, OpenAI, Spending},
	{"images/variations", OpenAIImages, OpenAI, Spending},
	{"audio/transcriptions", OpenAIAudio, OpenAI, Spending},
	{"audio/translations", OpenAIAudio, OpenAI, Spending},
	{"audio/speech", OpenAIAudio, OpenAI, Spending},
	{"moderations", OpenAIModerations, OpenAI, Free},
	{"ocr", MistralOCR, OpenAI, Spending},

	// https://docs.claude.com/en/api; Vertex takes the same body without a model.
	{"messages/count_tokens", UnknownAPI, Anthropic, Free},
	{"messages/batches", UnknownAPI, Anthropic, Unmetered},
	{"messages/batches/*/cancel", UnknownAPI, Anthropic, Free},
	{"threads/*/messages", UnknownAPI, OpenAI, Free},
	{"messages", AnthropicMessages, Anthropic, Spending},
	{"uploads/*/complete", UnknownAPI, OpenAI, Free},
	{"complete", UnknownAPI, Anthropic, Spending},
	{"publishers/anthropic/models/count-tokens:rawpredict", UnknownAPI, Anthropic, Free},
	{"publishers/anthropic/models/{model}:rawpredict", AnthropicMessages, Anthropic, Spending},
	{"publishers/anthropic/models/{model}:streamrawpredict", AnthropicMessages, Anthropic, Spending},

	// https://ai.google.dev/api and Vertex AI
	{"{model}:generatecontent", GeminiGenerate, Gemini, Spending},
	{"{model}:streamgeneratecontent", GeminiStream, Gemini, Spending},
	{"{model}:embedcontent", GeminiEmbed, Gemini, Spending},
	{"{model}:batchembedcontents", GeminiEmbed, Gemini, Spending},
	{"publishers/google/models/{model}:predict", VertexPredict, Gemini, Spending},
	{"{model}:predict", UnknownAPI, Gemini, Spending},
	{"publishers/*/models/{model}:rawpredict", UnknownAPI, OpenAI, Spending},
	{"publishers/*/models/{model}:streamrawpredict", UnknownAPI, OpenAI, Spending},
	{"{model}:counttokens", UnknownAPI, Gemini, Free},
	{"{model}:computetokens", UnknownAPI, Gemini, Free},
	{"{model}:predictlongrunning", UnknownAPI, Gemini, Unmetered},
	{"{model}:batchgeneratecontent", UnknownAPI, Gemini, Unmetered},
	{"{model}:asyncbatchembedcontent", UnknownAPI, Gemini, Unmetered},
	{"interactions", GeminiInteractions, Gemini, Spending},
	{"interactions/*/cancel", UnknownAPI, Gemini, Free},
	{"cachedcontents", UnknownAPI, Gemini, Unmetered},
	{"tunedmodels", UnknownAPI, Gemini, Unmetered},
	{"tuningjobs", UnknownAPI, Gemini, Unmetered},
	{"batchpredictionjobs", UnknownAPI, Gemini, Unmetered},
	{"auth_tokens", UnknownAPI, Gemini, Minting},
	{"authtokens", UnknownAPI, Gemini, Minting},

	// https://docs.aws.amazon.com/bedrock/latest/APIReference
	{"model/{model+}/invoke", BedrockInvoke, Bedrock, Spending},
	{"model/{model+}/invoke-with-response-stream", BedrockInvokeStream, Bedrock, Spending},
	{"model/{model+}/invoke-with-bidirectional-stream", UnknownAPI, Bedrock, Upgrade},
	{"model/{model+}/converse", BedrockConverse, Bedrock, Spending},
	{"model/{model+}/converse-stream", BedrockConverseStream, Bedrock, Spending},
	{"model/{model+}/count-tokens", UnknownAPI, Bedrock, Free},
	{"async-invoke", UnknownAPI, Bedrock, Unmetered},
	{"model-invocation-job", UnknownAPI, Bedrock, Unmetered},
	{"model-customization-jobs", UnknownAPI, Bedrock, Unmetered},

	// https://docs.ollama.com/api; loading and building models is for its owner.
	{"api/chat", OllamaChat, Ollama, Spending},
	{"api/generate", OllamaGenerate, Ollama, Spending},
	{"api/embed", OllamaEmbed, Ollama, Spending},
	{"api/show", UnknownAPI, Ollama, Free},
	{"api/pull", UnknownAPI, Ollama, Unmetered},
	{"api/push", UnknownAPI, Ollama, Unmetered},
	{"api/create", UnknownAPI, Ollama, Unmetered},
	{"api/copy", UnknownAPI, Ollama, Unmetered},

	// Servers of one's own: LM Studio, TGI (SGLang takes the path of TGI), llama.cpp.
	{"api/v1/chat", LMStudioChat, OpenAI, Spending},
	{"generate", TGIGenerate, OpenAI, Spending},
	{"generate_stream", TGIStream, OpenAI, Spending},
	{"completion", LlamaCPPCompletion, OpenAI, Spending},
	{"infill", LlamaCPPCompletion, OpenAI, Spending},

	// https://docs.cohere.com/reference; others offer the same rankings.
	{"v1/chat", CohereChat, OpenAI, Spending},
	{"v2/chat", CohereChat, OpenAI, Spending},
	{"v1/embed", CohereEmbed, OpenAI, Spending},
	{"v2/embed", CohereEmbed, OpenAI, Spending},
	{"rerank", CohereRerank, OpenAI, Spending},

	// Credentials that reach the provider past this gateway.
	{"realtime/client_secrets", UnknownAPI, OpenAI, Minting},
	{"realtime/translations/client_secrets", UnknownAPI, OpenAI, Minting},
	{"realtime/sessions", UnknownAPI, OpenAI, Minting},
	{"realtime/transcription_sessions", UnknownAPI, OpenAI, Minting},
	{"realtimeapi/sessions", UnknownAPI, OpenAI, Minting},
	{"live/client_secrets", UnknownAPI, OpenAI, Minting},
	{"chatkit/sessions", UnknownAPI, OpenAI, Minting},
	{"admin_api_keys", UnknownAPI, OpenAI, Minting},
	{"api_keys", UnknownAPI, OpenAI, Minting},
	{"service_accounts", UnknownAPI, OpenAI, Minting},
	{"organization/**", UnknownAPI, OpenAI, Minting},
	{"organizations/**", UnknownAPI, Anthropic, Minting},
	{"api/v1/keys", UnknownAPI, OpenAI, Minting},
	{"auth/keys", UnknownAPI, OpenAI, Minting},
	{"auth/grant", UnknownAPI, OpenAI, Minting},
	{"oauth/token", UnknownAPI, OpenAI, Minting},

	// Work whose usage arrives elsewhere: in a file, in a later GET, over WebRTC.
	{"batches", UnknownAPI, OpenAI, Unmetered},
	{"batches/*/cancel", UnknownAPI, OpenAI, Free},
	{"batch/jobs", UnknownAPI, OpenAI, Unmetered},
	{"batch/jobs/*/cancel", UnknownAPI, OpenAI, Free},
	{"fine_tuning/jobs/*/cancel", UnknownAPI, OpenAI, Free},
	{"fine_tuning/jobs/*/pause", UnknownAPI, OpenAI, Free},
	{"fine_tuning/**", UnknownAPI, OpenAI, Unmetered},
	{"fine-tunes/**", UnknownAPI, OpenAI, Unmetered},
	{"fine_tunes/**", UnknownAPI, OpenAI, Unmetered},
	{"finetuning/**", UnknownAPI, OpenAI, Unmetered},
	{"embed-jobs", UnknownAPI, OpenAI, Unmetered},
	{"videos/**", UnknownAPI, OpenAI, Unmetered},
	{"video/generations/**", UnknownAPI, OpenAI, Unmetered},
	{"threads/runs", UnknownAPI, OpenAI, Unmetered},
	{"threads/*/runs", UnknownAPI, OpenAI, Unmetered},
	{"threads/*/runs/*/submit_tool_outputs", UnknownAPI, OpenAI, Unmetered},
	{"threads/*/runs/*/cancel", UnknownAPI, OpenAI, Free},
	{"evals/*/runs", UnknownAPI, OpenAI, Unmetered},
	{"graders/run", UnknownAPI, OpenAI, Unmetered},
	{"containers", UnknownAPI, OpenAI, Unmetered},
	{"realtime", UnknownAPI, OpenAI, Unmetered},
	{"realtime/calls/**", UnknownAPI, OpenAI, Unmetered},
	{"realtimertc", UnknownAPI, OpenAI, Unmetered},

	// Storage and counting. No row ends beneath an id of the client's choice where
	// the vendor has no such POST.
	{"tokenize", UnknownAPI, OpenAI, Free},
	{"detokenize", UnknownAPI, OpenAI, Free},
	{"count_tokens", UnknownAPI, OpenAI, Free},
	{"apply-template", UnknownAPI, OpenAI, Free},
	{"files", UnknownAPI, OpenAI, Free},
	{"uploads", UnknownAPI, OpenAI, Free},
	{"uploads/*/parts", UnknownAPI, OpenAI, Free},
	{"uploads/*/cancel", UnknownAPI, OpenAI, Free},
	{"containers/*/files", UnknownAPI, OpenAI, Free},
	{"vector_stores", UnknownAPI, OpenAI, Free},
	{"vector_stores/*", UnknownAPI, OpenAI, Free},
	{"vector_stores/*/search", UnknownAPI, OpenAI, Free},
	{"vector_stores/*/files", UnknownAPI, OpenAI, Free},
	{"vector_stores/*/files/*", UnknownAPI, OpenAI, Free},
	{"vector_stores/*/file_batches", UnknownAPI, OpenAI, Free},
	{"vector_stores/*/file_batches/*/cancel", UnknownAPI, OpenAI, Free},
	{"conversations/*/items", UnknownAPI, OpenAI, Free},
	{"assistants", UnknownAPI, OpenAI, Free},
	{"assistants/*", UnknownAPI, OpenAI, Free},
	{"threads", UnknownAPI, OpenAI, Free},
	{"threads/*", UnknownAPI, OpenAI, Free},
}

// Identify tells what a call is before its body is read. Reading methods are free, but
// for what mints credentials or leaves HTTP. A header that asks for another method does
// not make a call free, and one that has it is what it would be as a POST. Nothing is
// free whose path servers may read in several ways.
func Identify(method string, u *url.URL, h http.Header) Endpoint {
	var buf [16]string
	segs, climbs, odd := endpointSegments(buf[:0], u.Path)

	ep, known := endpointLookup(segs, climbs || odd)
	if odd {
		if worse, ok := endpointWorse(u.Path); ok {
			ep, known = worse, true
		}
	}
	if !known && h.Get("Anthropic-Version") != "" {
		ep.Dialect = Anthropic
	}
	if m := endpointDeployment(segs); m != "" {
		ep.Model = m
	}
	ep.Presigned = presigned(u)
	switch {
	case endpointReads(method, h) && !odd && (method == http.MethodHead || method == http.MethodOptions):
		ep.Class = Free
	case ep.Class == Minting:
	case method == http.MethodConnect || ep.Class == Upgrade || endpointUpgrades(h):
		ep.Class = Upgrade
		ep.setRealtime(method, segs, u, h)
	case endpointReads(method, h) && !odd:
		ep.Class = Free
	}
	return ep
}

// presigned tells whether the query carries a signature of AWS, which holds for the body
// too. AWS knows the name in these letters alone.
func presigned(u *url.URL) bool {
	return u.RawQuery != "" && u.Query().Has("X-Amz-Signature")
}

// endpointReads tells whether a call can only read.
func endpointReads(method string, h http.Header) bool {
	switch method {
	case http.MethodGet, http.MethodDelete, http.MethodHead, http.MethodOptions:
		return !overridesMethod(h)
	}
	return false
}

// endpointWorse finds out whether a path that may end earlier then means what must be
// refused.
func endpointWorse(path string) (Endpoint, bool) {
	path, ok := endpointCut(path)
	if !ok {
		return Endpoint{}, false
	}
	segs, _, _ := endpointSegments(nil, path)
	ep, _ := endpointLookup(segs, true)
	return ep, ep.Class == Minting || ep.Class == Unmetered
}

// endpointLookup finds the row of a path. One that climbs ("..") or is odd may mean
// another resource upstream than it does here, so it is doubtful and not taken for free.
func endpointLookup(segs []string, doubtful bool) (Endpoint, bool) {
	for i := range endpointRows {
		row := &endpointRows[i]
		if row.class == Free && doubtful {
			continue
		}
		if model, ok := endpointPatterns[i].match(segs); ok {
			return Endpoint{API: row.api, Dialect: row.dialect, Class: row.class, Model: model}, true
		}
	}
	return Endpoint{}, false
}

// endpointDeployment is the deployment of an Azure OpenAI path, which has the
// model's part there.
func endpointDeployment(segs []string) string {
	for i := 1; i+1 < len(segs); i++ {
		if strings.EqualFold(segs[i], "deployments") && strings.EqualFold(segs[i-1], "openai") {
			return segs[i+1]
		}
	}
	return ""
}

// endpointUpgrades reports a request to leave HTTP. An offer of h2c alone is not
// one: some clients send it with every call, and it stays HTTP.
func endpointUpgrades(h http.Header) bool {
	for _, line := range h["Upgrade"] {
		for token := range strings.SplitSeq(line, ",") {
			if token = strings.TrimSpace(token); token != "" && !strings.EqualFold(token, "h2c") {
				return true
			}
		}
	}
	return false
}
