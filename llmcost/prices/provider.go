package prices

import (
	"net"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// family is the provider that bills for what LiteLLM calls several providers.
func family(provider string) string {
	if strings.HasPrefix(provider, "vertex_ai-") || strings.HasPrefix(provider, "vertex_ai_") {
		return "vertex_ai"
	}
	switch provider {
	case "vertex", "google_vertex", "google-vertex", "vertexai":
		return "vertex_ai"
	case "google", "google_ai_studio", "google-ai-studio", "googleai":
		return "gemini"
	case "bedrock_converse", "aws", "amazon", "aws_bedrock", "amazon-bedrock":
		return "bedrock"
	case "text-completion-openai":
		return "openai"
	case "azure_text", "azure_openai", "azure-openai":
		return "azure"
	case "azure-ai", "azure_foundry":
		return "azure_ai"
	case "cohere_chat":
		return "cohere"
	case "fireworks", "fireworks_ai-embedding-models":
		return "fireworks_ai"
	case "together", "togetherai":
		return "together_ai"
	case "x-ai", "x.ai", "grok":
		return "xai"
	case "mistralai", "codestral", "text-completion-codestral":
		return "mistral"
	case "jina":
		return "jina_ai"
	case "alibaba", "qwen", "qwencloud":
		return "dashscope"
	case "moonshotai":
		return "moonshot"
	case "z-ai", "zhipu", "zhipuai":
		return "zai"
	default:
		return provider
	}
}

// siblings are families whose rows price a call of the first too, after its own: one
// vendor sells both at the same prices.
func siblings(provider string) string {
	switch provider {
	case "gemini":
		return "vertex_ai"
	case "vertex_ai":
		return "gemini"
	case "azure":
		return "azure_ai"
	case "azure_ai":
		return "azure"
	default:
		return ""
	}
}

// hosts are whose names end in what, so that a provider is known by the upstream that
// is called. Of several the first counts.
var hosts = [...]struct{ suffix, provider string }{
	{"api.openai.com", "openai"},
	{".openai.azure.com", "azure"},
	{".openai.azure.us", "azure"},
	{".cognitiveservices.azure.com", "azure"},
	{".services.ai.azure.com", "azure_ai"},
	{".models.ai.azure.com", "azure_ai"},
	{"api.anthropic.com", "anthropic"},
	{"generativelanguage.googleapis.com", "gemini"},
	{"aiplatform.googleapis.com", "vertex_ai"},
	{".rep.googleapis.com", "vertex_ai"},
	{".amazonaws.com", "bedrock"},
	{".api.aws", "bedrock"},
	{"openrouter.ai", "openrouter"},
	{"api.x.ai", "xai"},
	{"api.perplexity.ai", "perplexity"},
	{"api.deepinfra.com", "deepinfra"},
	{"api.deepseek.com", "deepseek"},
	{".mistral.ai", "mistral"},
	{"api.cohere.com", "cohere"},
	{"api.cohere.ai", "cohere"},
	{"api.groq.com", "groq"},
	{"api.together.xyz", "together_ai"},
	{"api.together.ai", "together_ai"},
	{"api.fireworks.ai", "fireworks_ai"},
	{".aliyuncs.com", "dashscope"},
	{"api.voyageai.com", "voyage"},
	{"api.jina.ai", "jina_ai"},
	{"api.cerebras.ai", "cerebras"},
	{"api.moonshot.ai", "moonshot"},
	{"api.moonshot.cn", "moonshot"},
	{"api.minimax.io", "minimax"},
	{"api.z.ai", "zai"},
	{"open.bigmodel.cn", "zai"},
	{"api.novita.ai", "novita"},
	{"api.sambanova.ai", "sambanova"},
	{"api.hyperbolic.xyz", "hyperbolic"},
	{".nebius.com", "nebius"},
	{".nebius.ai", "nebius"},
	{"ai-gateway.vercel.sh", "vercel_ai_gateway"},
	{"integrate.api.nvidia.com", "nvidia_nim"},
	{"api.ai21.com", "ai21"},
	{".volces.com", "volcengine"},
	{"router.huggingface.co", "huggingface"},
	{"models.github.ai", "github"},
	{".cloud.databricks.com", "databricks"},
	{".azuredatabricks.net", "databricks"},
	{".snowflakecomputing.com", "snowflake"},
}

// ProviderOf tells LiteLLM's name of the provider by the upstream's host, with or
// without a port, else by an API that only one vendor speaks. Empty is unknown: many
// speak OpenAI's.
func ProviderOf(api usage.API, host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, h := range hosts {
		rest, ok := strings.CutSuffix(host, h.suffix)
		if ok && (rest == "" || h.suffix[0] == '.' || rest[len(rest)-1] == '.' || rest[len(rest)-1] == '-') {
			return h.provider
		}
	}
	switch api {
	case usage.AnthropicMessages:
		return "anthropic"
	case usage.GeminiGenerate, usage.GeminiStream, usage.GeminiEmbed, usage.GeminiInteractions, usage.GeminiLive:
		return "gemini"
	case usage.VertexPredict:
		return "vertex_ai"
	case usage.BedrockInvoke, usage.BedrockInvokeStream, usage.BedrockConverse, usage.BedrockConverseStream:
		return "bedrock"
	case usage.CohereChat, usage.CohereEmbed:
		return "cohere"
	case usage.MistralOCR:
		return "mistral"
	case usage.OllamaChat, usage.OllamaGenerate, usage.OllamaEmbed:
		return "ollama"
	default:
		return ""
	}
}
