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
)

// String is the name that logs and metrics use.
func (a API) String() string {
	switch a {
	case OpenAIChat:
		return "openai.chat"
	case OpenAICompletions:
		return "openai.completions"
	case OpenAIResponses:
		return "openai.responses"
	case OpenAIEmbeddings:
		return "openai.embeddings"
	case AnthropicMessages:
		return "anthropic.messages"
	case GeminiGenerate:
		return "gemini.generateContent"
	case GeminiStream:
		return "gemini.streamGenerateContent"
	case GeminiEmbed:
		return "gemini.embed"
	case GeminiInteractions:
		return "gemini.interactions"
	case VertexPredict:
		return "vertex.predict"
	case OllamaChat:
		return "ollama.chat"
	case OllamaGenerate:
		return "ollama.generate"
	case OllamaEmbed:
		return "ollama.embed"
	case CohereChat:
		return "cohere.chat"
	case CohereEmbed:
		return "cohere.embed"
	case CohereRerank:
		return "cohere.rerank"
	case MistralChat:
		return "mistral.chat"
	case MistralOCR:
		return "mistral.ocr"
	case BedrockInvoke:
		return "bedrock.invoke"
	case BedrockInvokeStream:
		return "bedrock.invokeStream"
	case BedrockConverse:
		return "bedrock.converse"
	case BedrockConverseStream:
		return "bedrock.converseStream"
	case OpenAIImages:
		return "openai.images"
	case OpenAIAudio:
		return "openai.audio"
	case OpenAIModerations:
		return "openai.moderations"
	case TGIGenerate, TGIStream:
		return "tgi.generate"
	case LlamaCPPCompletion:
		return "llamacpp.completion"
	case LMStudioChat:
		return "lmstudio.chat"
	default:
		return "unknown"
	}
}

// Generates reports whether calls of the API put out tokens, so that they can run
// longer than their prompt: embeddings, rankings and pictures do not.
func (a API) Generates() bool {
	switch a {
	case OpenAIEmbeddings, GeminiEmbed, VertexPredict, OllamaEmbed, CohereEmbed, CohereRerank,
		OpenAIModerations, MistralOCR:
		return false
	default:
		return true
	}
}
