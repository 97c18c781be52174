package usage

import (
	"testing"
)

func TestTextOfVendorsIsCounted(t *testing.T) {
	tests := []struct {
		name     string
		ep       Endpoint
		body     string
		text     int64
		messages int
	}{
		{"Gemini", epGemini, `{"contents":[{"role":"user","parts":[{"text":"hello"},{"text":"you"}]},{"role":"model","parts":[{"text":"ab"}]}]}`, 10, 2},
		{"Gemini, one content", epGemini, `{"contents":{"parts":{"text":"hello"}}}`, 5, 1},
		{"Gemini's system instruction", epGemini, `{"systemInstruction":{"parts":[{"text":"abc"}]},"system_instruction":{"parts":[{"text":"de"}]}}`, 5, 0},
		{"Gemini's calls", epGemini, `{"contents":[{"parts":[{"functionCall":{"name":"f","args":{ "a" : 12 }}}]}]}`, 1 + int64(len(`{"a":12,}`)), 1},
		{"Gemini's results", epGemini, `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{ "a" : 12 }}}]}]}`, 1 + int64(len(`{"a":12,}`)), 1},
		{"Gemini's schema", epGemini, `{"generationConfig":{"responseSchema":{"type":"STRING"},"temperature":0.5}}`, int64(len(`{"type":"STRING"}`)) + 1, 0},
		{"Gemini's settings", epGemini, `{"safetySettings":[{"category":"X","threshold":"Y"}],"labels":{"a":"b"},"model":"m"}`, 0, 0},
		{"embedding", Endpoint{API: GeminiEmbed}, `{"content":{"parts":[{"text":"abc"}]},"taskType":"X","outputDimensionality":9}`, 3, 0},
		{"batch of embeddings", Endpoint{API: GeminiEmbed}, `{"requests":[{"content":{"parts":[{"text":"abc"}]}},{"content":{"parts":[{"text":"de"}]}}]}`, 5, 0},
		{"Vertex", epPredict, `{"instances":[{"content":"abc"},{"prompt":"de"}],"parameters":{"sampleCount":1}}`, 5, 0},
		{"an interaction", epInteractions, `{"input":"hello","system_instruction":"abc"}`, 8, 1},
		{"an interaction's turns", epInteractions, `{"input":[{"role":"user","content":[{"type":"text","text":"abc"}]}]}`, 3, 1},
		{"Ollama", epOllamaChat, `{"messages":[{"role":"user","content":"hello","thinking":"hm"}],"keep_alive":"5m","think":"high"}`, 7, 1},
		{"Ollama's calls", epOllamaChat, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}]}`, 1 + int64(len(`{"a":1,}`)), 1},
		{"Ollama's generate", epOllamaGen, `{"prompt":"hello","system":"ab","template":"cd","suffix":"e"}`, 10, 1},
		{"Ollama's schema", epOllamaGen, `{"prompt":"a","format":{"type":"object"}}`, 1 + int64(len(`{"type":"object"}`)) + 1, 1},
		{"Ollama's options", epOllamaGen, `{"prompt":"a","options":{"stop":["abc"]}}`, 1, 1},
		{"Ollama's embeddings", Endpoint{API: OllamaEmbed}, `{"input":["abc","de"]}`, 5, 0},
		{"Cohere", epCohereChat, `{"messages":[{"role":"user","content":[{"type":"text","text":"abc"}]}],"documents":["de",{"id":"1","data":{"text":"fgh"}}]}`, 8, 1},
		{"Cohere's older chat", epCohereChat, `{"message":"abc","chat_history":[{"role":"USER","message":"de"},{"role":"CHATBOT","message":"f"}],"preamble":"gh"}`, 8, 3},
		{"Cohere's embeddings", Endpoint{API: CohereEmbed}, `{"texts":["abc","de"],"input_type":"search_document","embedding_types":["float"]}`, 5, 0},
		{"Cohere's mixed embeddings", Endpoint{API: CohereEmbed}, `{"inputs":[{"content":[{"type":"text","text":"abc"}]}]}`, 3, 0},
		{"rankings", Endpoint{API: CohereRerank}, `{"query":"ab","documents":["cde",{"text":"fg"}]}`, 7, 0},
		{"Mistral", epMistral, `{"prompt":"abc","suffix":"de"}`, 5, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if r := parse(t, tt.ep, tt.body); r.TextBytes != tt.text || r.Messages != tt.messages {
				t.Errorf("got %d bytes in %d messages, want %d in %d", r.TextBytes, r.Messages, tt.text, tt.messages)
			}
		})
	}
}

func TestTokensOfAnEarlierAnswerAreCounted(t *testing.T) {
	if r := parse(t, epOllamaGen, `{"prompt":"a","context":[1,2,3]}`); r.PromptIDs != 3 {
		t.Errorf("got %d tokens, want 3", r.PromptIDs)
	}
}

func TestMediaOfVendorsAreCounted(t *testing.T) {
	type media struct {
		Media, Images int
		Bytes, Text   int64
		External      string
	}
	part := func(p string) string { return `{"contents":[{"parts":[` + p + `]}]}` }
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want media
	}{
		{"a picture", epGemini, part(`{"inlineData":{"mimeType":"image/png","data":"AAAA"}}`), media{1, 1, 4, 0, ""}},
		{"a picture in snake case", epGemini, part(`{"inline_data":{"data":"AAAA","mime_type":"image/png"}}`), media{1, 1, 4, 0, ""}},
		{"a recording", epGemini, part(`{"inlineData":{"mimeType":"audio/wav","data":"AAAA"}}`), media{1, 0, 4, 0, ""}},
		{"a document", epGemini, part(`{"inlineData":{"mimeType":"application/pdf","data":"AAAA"}}`), media{1, 0, 4, 0, "a document"}},
		{"a video", epGemini, part(`{"inlineData":{"mimeType":"video/mp4","data":"AAAA"}}`), media{1, 0, 4, 0, "a video"}},
		{"a file", epGemini, part(`{"fileData":{"mimeType":"image/png","fileUri":"https://x/files/1"}}`), media{1, 1, 0, 0, "a file"}},
		{"a file in snake case", epGemini, part(`{"file_data":{"mime_type":"image/png","file_uri":"gs://b/o"}}`), media{1, 1, 0, 0, "a file"}},
		{"a file in a result", epGemini, part(`{"functionResponse":{"parts":[{"fileData":{"fileUri":"gs://b/o"}}]}}`), media{1, 0, 0, 0, "a file"}},
		{"a picture of an interaction", epInteractions, `{"input":[{"type":"image","data":"AAAA","mime_type":"image/png"}]}`, media{1, 1, 4, 0, ""}},
		{"a picture without a kind", epInteractions, `{"input":[{"content":[{"type":"image","data":"AAAA"}]}]}`, media{1, 1, 4, 0, ""}},
		{"a document of an interaction", epInteractions, `{"input":[{"type":"document","data":"AAAA","mime_type":"application/pdf"}]}`, media{1, 0, 4, 0, "a document"}},
		{"a file of an interaction", epInteractions, `{"input":[{"type":"video","uri":"https://x"}]}`, media{1, 0, 0, 0, "a file"}},
		{"a picture for Vertex", epPredict, `{"instances":[{"image":{"bytesBase64Encoded":"AAAA"}}]}`, media{1, 1, 4, 0, ""}},
		{"a stored picture for Vertex", epPredict, `{"instances":[{"image":{"gcsUri":"gs://b/o"}}]}`, media{1, 1, 0, 0, "a file"}},
		{"pictures for Ollama", epOllamaChat, `{"messages":[{"content":"a","images":["AAAA","BBBB"]}]}`, media{2, 2, 8, 1, ""}},
		{"pictures for Ollama's generate", epOllamaGen, `{"prompt":"a","images":["AAAA"]}`, media{1, 1, 4, 1, ""}},
		{"a picture for Cohere", epCohereChat, `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`, media{1, 1, 26, 0, ""}},
		{"a picture for Cohere's embeddings", Endpoint{API: CohereEmbed}, `{"images":["data:image/png;base64,AAAA"]}`, media{1, 1, 26, 0, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.body)
			got := media{r.Media, r.Images, r.MediaBytes, r.TextBytes, r.ExternalWhat}
			if got != tt.want || r.External != (got.External != "") {
				t.Errorf("got %+v (external %t), want %+v", got, r.External, tt.want)
			}
		})
	}
}

func TestWhatVendorsAddToThePromptIsSeen(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		what string
	}{
		{"cached content", epGemini, `{"cachedContent":"cachedContents/x"}`, "cached content"},
		{"cached content in snake case", epGemini, `{"cached_content":"cachedContents/x"}`, "cached content"},
		{"no cached content", epGemini, `{"cachedContent":""}`, ""},
		{"functions", epGemini, `{"tools":[{"functionDeclarations":[{"name":"f","parameters":{"type":"OBJECT"}}]}]}`, ""},
		{"functions in snake case", epGemini, `{"tools":[{"function_declarations":[{"name":"f"}]}]}`, ""},
		{"the client's computer", epGemini, `{"tools":[{"computerUse":{"environment":"X"}}]}`, ""},
		{"searches", epGemini, `{"tools":[{"googleSearch":{}}]}`, "server tools"},
		{"searches in snake case", epGeminiStream, `{"tools":[{"google_search":{}}]}`, "server tools"},
		{"searches in another case", epGemini, `{"tools":[{"GoogleSearch":{}}]}`, "server tools"},
		{"searches beside functions", epGemini, `{"tools":[{"functionDeclarations":[],"googleSearch":{}}]}`, "server tools"},
		{"searches that are null", epGemini, `{"tools":[{"googleSearch":null}]}`, ""},
		{"code", epGemini, `{"tools":[{"functionDeclarations":[]},{"codeExecution":{}}]}`, "server tools"},
		{"URLs", epGemini, `{"tools":[{"urlContext":{}}]}`, "server tools"},
		{"a tool that nobody knows", epGemini, `{"tools":[{"whatever":{}}]}`, "server tools"},
		{"a tool without a list", epGemini, `{"tools":{"googleSearch":{}}}`, "server tools"},
		{"a function named like a tool", epGemini, `{"tools":[{"functionDeclarations":[{"name":"googleSearch","googleSearch":{}}]}]}`, ""},
		{"an earlier interaction", epInteractions, `{"previous_interaction_id":"v1_a"}`, "an earlier interaction"},
		{"an agent", epInteractions, `{"agent":"deep-research"}`, "an agent"},
		{"an interaction's functions", epInteractions, `{"tools":[{"type":"function","name":"f"}]}`, ""},
		{"an interaction's searches", epInteractions, `{"tools":[{"type":"google_search"}]}`, "server tools"},
		{"Ollama's functions", epOllamaChat, `{"tools":[{"type":"function","function":{"name":"f"}}]}`, ""},
		{"connectors", epCohereChat, `{"message":"a","connectors":[{"id":"web-search"}]}`, "server tools"},
		{"no connectors", epCohereChat, `{"message":"a","connectors":[]}`, ""},
		{"a stored conversation", epCohereChat, `{"message":"a","conversation_id":"c"}`, "conversation"},
		{"Mistral's agent", epMistral, `{"agent_id":"ag_1","messages":[]}`, "an agent"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.body)
			if r.External != (tt.what != "") || r.ExternalWhat != tt.what {
				t.Errorf("got external %t for %q, want %q", r.External, r.ExternalWhat, tt.what)
			}
		})
	}
}

func TestEveryFunctionOfGeminiIsATool(t *testing.T) {
	r := parse(t, epGemini, `{"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"},{"name":"c"}]}]}`)
	if r.Tools < 3 {
		t.Errorf("got %d tools, want 3 at least", r.Tools)
	}
}

func TestModelOfThePathOutranksTheBody(t *testing.T) {
	r := parse(t, epGemini, `{"model":"models/other"}`)
	if r.Model != "g" || r.BodyModel != "models/other" {
		t.Errorf("got %q and %q", r.Model, r.BodyModel)
	}
}
