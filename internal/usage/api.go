package usage

// API is a wire format that is read with full knowledge of its fields.
type API uint8

// The formats. Anything else is UnknownAPI and is metered by shape or estimate.
const (
	UnknownAPI API = iota
	OpenAIChat
	OpenAICompletions
	OpenAIResponses
	OpenAIEmbeddings
	AnthropicMessages
	GeminiGenerate
	GeminiStream
	GeminiEmbed
	GeminiInteractions
	VertexPredict
	OllamaChat
	OllamaGenerate
	OllamaEmbed
	CohereChat
	CohereEmbed
	CohereRerank
	MistralChat
	MistralOCR
	BedrockInvoke
	BedrockInvokeStream
	BedrockConverse
	BedrockConverseStream
	OpenAIImages
	OpenAIAudio
	OpenAIModerations
	TGIGenerate
	TGIStream
	LlamaCPPCompletion
	LMStudioChat
	OpenAIRealtime
	GeminiLive
)

// apiRow is what there is to know of an API besides its fields. The words are for its
// documentation, which a test writes into docs/apis.md.
type apiRow struct {
	name string // for logs and metrics
	// silent is set if calls put out no tokens, so that they cannot run longer than
	// their prompt: embeddings and rankings.
	silent bool
	// streams is how a streamed answer is framed; empty if the API has none.
	streams string
	// usage is where an answer, and the stream of one, say what was used.
	usage string
	// early is set if a stream says before its end how long the prompt was.
	early bool
	// socket ends the path of a WebSocket that speaks the API; empty if there is none.
	socket string
}

var apiRows = [...]apiRow{
	UnknownAPI: {
		name: "unknown", streams: "any of these",
		usage: "wherever one of these formats has it, else in a limiter's `usage_fields`",
	},
	OpenAIChat: {
		name: "openai.chat", streams: "SSE",
		usage: "`usage`, in streams of the last chunk that has one, for which they are asked; `x_groq.usage`; `choices[].usage`; llama.cpp's `timings`",
	},
	OpenAICompletions: {
		name: "openai.completions", streams: "SSE",
		usage: "as `openai.chat`",
	},
	OpenAIResponses: {
		name: "openai.responses", streams: "SSE, WebSocket", socket: "responses",
		usage: "`usage` and `tool_usage` of the response, in streams that of the event that ends it",
	},
	OpenAIEmbeddings: {name: "openai.embeddings", silent: true, usage: "`usage`"},
	AnthropicMessages: {
		name: "anthropic.messages", streams: "SSE", early: true,
		usage: "`usage`, in streams of `message_start` and, field by field, of each `message_delta`",
	},
	GeminiGenerate: {name: "gemini.generateContent", usage: "`usageMetadata`"},
	GeminiStream: {
		name: "gemini.streamGenerateContent", streams: "SSE, a JSON array", early: true,
		usage: "the last `usageMetadata`",
	},
	GeminiEmbed: {name: "gemini.embed", silent: true, usage: "`usageMetadata`"},
	GeminiInteractions: {
		name: "gemini.interactions", streams: "SSE",
		usage: "`usage` of the interaction, in streams that of the event that ends it",
	},
	VertexPredict: {
		name: "vertex.predict", silent: true,
		usage: "`predictions[].embeddings.statistics`, added up; pictures by their number",
	},
	OllamaChat: {
		name: "ollama.chat", streams: "lines of JSON",
		usage: "`prompt_eval_count` and `eval_count` of the line that is `done`",
	},
	OllamaGenerate: {name: "ollama.generate", streams: "lines of JSON", usage: "as `ollama.chat`"},
	OllamaEmbed:    {name: "ollama.embed", silent: true, usage: "`prompt_eval_count`"},
	CohereChat: {
		name: "cohere.chat", streams: "SSE, lines of JSON",
		usage: "`billed_units`, else `tokens`, in `usage` or `meta`, in streams of the event that ends them",
	},
	CohereEmbed:  {name: "cohere.embed", silent: true, usage: "`meta.billed_units`"},
	CohereRerank: {name: "cohere.rerank", silent: true, usage: "`meta.billed_units`, in search units; `usage` of others who rank"},
	MistralChat: {
		name: "mistral.chat", streams: "SSE",
		usage: "`usage`, in streams of the last chunk",
	},
	MistralOCR: {name: "mistral.ocr", silent: true, usage: "`usage_info`, in pages"},
	BedrockInvoke: {
		name:  "bedrock.invoke",
		usage: "the body, in the words of the model's family, else the `X-Amzn-Bedrock-*-Token-Count` header",
	},
	BedrockInvokeStream: {
		name: "bedrock.invokeStream", streams: "AWS event stream",
		usage: "the chunks, in the words of the model's family, else `amazon-bedrock-invocationMetrics` of the last",
	},
	BedrockConverse:       {name: "bedrock.converse", usage: "`usage`"},
	BedrockConverseStream: {name: "bedrock.converseStream", streams: "AWS event stream", usage: "`usage` of the `metadata` event"},
	OpenAIImages: {
		name: "openai.images", streams: "SSE",
		usage: "`usage`, in streams of each `*.completed` event; pictures by their number, which need an estimate where no tokens are told",
	},
	OpenAIAudio: {
		name: "openai.audio", streams: "SSE",
		usage: "`usage`, in streams of the `*.done` event; `duration`. Sound itself says nothing",
	},
	OpenAIModerations: {name: "openai.moderations", silent: true, usage: "nowhere: it is free"},
	TGIGenerate: {
		name: "tgi.generate", streams: "SSE",
		usage: "`details`, else the `X-Prompt-Tokens` and `X-Generated-Tokens` header; SGLang: `meta_info`, in streams the last of each answer",
	},
	TGIStream: {name: "tgi.generate", streams: "SSE", usage: "`details` of the last event"},
	LlamaCPPCompletion: {
		name: "llamacpp.completion", streams: "SSE",
		usage: "`tokens_evaluated` and `tokens_predicted`, in streams of the event with `stop`",
	},
	LMStudioChat: {
		name: "lmstudio.chat", streams: "SSE",
		usage: "`stats`, in streams `result.stats` of `chat.end`",
	},
	OpenAIRealtime: {
		name: "openai.realtime", streams: "WebSocket", socket: "realtime",
		usage: "`response.usage` of each `response.done`; `usage` of each transcript of what the user said",
	},
	GeminiLive: {
		name: "gemini.live", streams: "WebSocket", socket: "BidiGenerateContent",
		usage: "`usageMetadata` of each turn",
	},
}

// row is what there is to know of the API.
func (a API) row() *apiRow {
	if int(a) >= len(apiRows) {
		return &apiRows[UnknownAPI]
	}
	return &apiRows[a]
}

// String is the name that logs and metrics use.
func (a API) String() string { return a.row().name }

// Generates reports whether calls of the API put out tokens, so that they can run
// longer than their prompt: embeddings, rankings and pictures do not.
func (a API) Generates() bool { return !a.row().silent }
