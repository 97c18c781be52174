package usage

import (
	"net/http"
	"testing"
)

func TestCallsThatMayDrawAreSeen(t *testing.T) {
	chat := Endpoint{API: OpenAIChat}
	responses := Endpoint{API: OpenAIResponses}
	gemini := Endpoint{API: GeminiGenerate, Model: "gemini-2.5-pro"}
	for _, tt := range []struct {
		name string
		ep   Endpoint
		body string
		want bool
	}{
		{"text alone", responses, `{"model":"gpt-4.1","input":"draw"}`, false},
		{"a tool", responses, `{"model":"gpt-4.1","input":"draw","tools":[{"type":"image_generation"}]}`, true},
		{"a tool with escapes", responses, `{"model":"gpt-4.1","input":"draw","tools":[{"type":"\u0069mage_generation"}]}`, true},
		{"a tool of a router", chat, `{"model":"m","tools":[{"type":"openrouter:image_generation"}]}`, true},
		{"a function of that name", chat, `{"model":"m","tools":[{"type":"function","function":{"name":"image_generation"}}]}`, false},
		{"a modality", chat, `{"model":"m","modalities":["text","image"]}`, true},
		{"other modalities", chat, `{"model":"m","modalities":["text","audio"]}`, false},
		{"a modality for a gateway", chat, `{"model":"m","extra_body":{"modalities":["image"]}}`, true},
		{"a modality of Google", gemini, `{"generationConfig":{"responseModalities":["TEXT","IMAGE"]}}`, true},
		{"in snake case", gemini, `{"generation_config":{"response_modalities":["Image"]}}`, true},
		{"as a number", gemini, `{"generationConfig":{"responseModalities":[2]}}`, true},
		{"text as a modality", gemini, `{"generationConfig":{"responseModalities":["TEXT"]}}`, false},
		{"none", gemini, `{"generationConfig":{"responseModalities":null}}`, false},
		{"of an interaction", Endpoint{API: GeminiInteractions}, `{"model":"m","input":"x","response_modalities":["image"]}`, true},
		{"a model", Endpoint{API: GeminiGenerate, Model: "gemini-2.5-flash-image"}, `{}`, true},
		{"a fallback", chat, `{"model":"m","fallbacks":["openai/GPT-Image-1"]}`, true},
		{"a model that embeds", Endpoint{API: OpenAIEmbeddings}, `{"model":"image-embed","input":"x"}`, false},
		{"a known number", Endpoint{API: OpenAIImages}, `{"model":"gpt-image-1","prompt":"x"}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, http.Header{"Content-Type": {"application/json"}}, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if r.Draws != tt.want {
				t.Errorf("got %t, want %t", r.Draws, tt.want)
			}
		})
	}
}
