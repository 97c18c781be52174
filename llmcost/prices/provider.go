package prices

import "strings"

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
