package modelname

import "strings"

// What is cut here makes two names one model for limits, and not for prices: tables tell
// some of these names apart.

// Spelled is the one spelling of a name that may be written in several ways which always
// mean the same: Plain, without Ollama's tag for the latest. What stands before or behind
// it besides, such as a provider or a date, narrows it, and stays.
func Spelled(name string) string { return cutLatest(Plain(name)) }

// cutLatest takes the tag off that Ollama means by none.
func cutLatest(name string) string {
	if rest, ok := strings.CutSuffix(name, ":latest"); ok && rest != "" {
		return rest
	}
	return name
}

// cutPreset takes the preset off that OpenRouter lets callers put behind a model's name.
func cutPreset(name string) string {
	if i := strings.Index(name, "@preset/"); i > 0 {
		return name[:i]
	}
	return name
}

// cutWords takes the words off the end of a name, any number of them, that say how the
// model is to be served, and the tag that Ollama means by none.
func cutWords(name string) string {
	for {
		rest, ok := CutVariant(name)
		for _, word := range [...]string{":free", ":latest"} {
			if !ok {
				rest, ok = strings.CutSuffix(name, word)
			}
		}
		if !ok || rest == "" {
			return name
		}
		name = rest
	}
}

// bedrockVendors are the vendors as Bedrock puts them before a model's name.
var bedrockVendors = [...]string{
	"ai21.", "amazon.", "anthropic.", "cohere.", "deepseek.", "google.", "luma.", "meta.", "minimax.", "mistral.",
	"moonshot.", "moonshotai.", "nvidia.", "openai.", "qwen.", "stability.", "twelvelabs.", "writer.", "zai.",
}

// cutVendor takes Bedrock's vendor off the front of a name.
func cutVendor(name string) (bare string, ok bool) {
	for _, vendor := range bedrockVendors {
		if rest, ok := strings.CutPrefix(name, vendor); ok && rest != "" {
			return rest, true
		}
	}
	return name, false
}

// cutVersion takes Bedrock's version off the end of a name: -v1:0, -1:0 or, with the size
// of the context, -v1:0:48k. One without a colon stays, for it is part of the model's own
// name.
func cutVersion(name string) string {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return name
	}
	version, tail, ok := strings.Cut(strings.TrimPrefix(name[i+1:], "v"), ":")
	minor, size, sized := strings.Cut(tail, ":")
	if sized {
		size = strings.TrimSuffix(size, "k")
	}
	if !ok || !isNumber(version) || !isNumber(minor) || sized && !isNumber(size) {
		return name
	}
	return name[:i]
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
