package usage

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func identify(t *testing.T, method, target string, h http.Header) Endpoint {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("parsing %q: %v", target, err)
	}
	return Identify(method, u, h)
}

func TestIdentifyKnowsPaths(t *testing.T) {
	tests := []struct {
		name, method, target string
		want                 Endpoint
	}{
		{"chat", "POST", "/v1/chat/completions", Endpoint{OpenAIChat, OpenAI, Spending, "", false}},
		{"chat without a version", "POST", "/chat/completions", Endpoint{OpenAIChat, OpenAI, Spending, "", false}},
		{"chat behind a prefix", "POST", "/team/openai/v1/chat/completions", Endpoint{OpenAIChat, OpenAI, Spending, "", false}},
		{"Gemini's OpenAI form", "POST", "/v1beta/openai/chat/completions", Endpoint{OpenAIChat, OpenAI, Spending, "", false}},
		{"legacy completions", "POST", "/v1/completions", Endpoint{OpenAICompletions, OpenAI, Spending, "", false}},
		{"responses", "POST", "/v1/responses", Endpoint{OpenAIResponses, OpenAI, Spending, "", false}},
		{"responses compact", "POST", "/v1/responses/compact", Endpoint{UnknownAPI, OpenAI, Spending, "", false}},
		{"responses count", "POST", "/v1/responses/input_tokens", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
		{"embeddings", "POST", "/v1/embeddings", Endpoint{OpenAIEmbeddings, OpenAI, Spending, "", false}},
		{"messages", "POST", "/v1/messages?beta=true", Endpoint{AnthropicMessages, Anthropic, Spending, "", false}},
		{"messages count", "POST", "/v1/messages/count_tokens", Endpoint{UnknownAPI, Anthropic, Free, "", false}},
		{"message batches", "POST", "/v1/messages/batches", Endpoint{UnknownAPI, Anthropic, Unmetered, "", false}},
		{"thread messages are OpenAI's", "POST", "/v1/threads/t1/messages", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
		{"an upload completed is not Anthropic's", "POST", "/v1/uploads/u/complete", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
		{
			"Azure deployment", "POST", "/openai/deployments/My-GPT/chat/completions?api-version=2024-10-21",
			Endpoint{OpenAIChat, OpenAI, Spending, "My-GPT", false},
		},
		{"Azure audio", "POST", "/openai/deployments/w/audio/transcriptions", Endpoint{OpenAIAudio, OpenAI, Spending, "w", false}},
		{
			"Gemini", "POST", "/v1beta/models/gemini-2.5-pro:generateContent",
			Endpoint{GeminiGenerate, Gemini, Spending, "gemini-2.5-pro", false},
		},
		{
			"Gemini stream", "POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
			Endpoint{GeminiStream, Gemini, Spending, "gemini-2.5-pro", false},
		},
		{"Gemini count", "POST", "/v1beta/models/g:countTokens", Endpoint{UnknownAPI, Gemini, Free, "g", false}},
		{"Veo", "POST", "/v1beta/models/veo:predictLongRunning", Endpoint{UnknownAPI, Gemini, Unmetered, "veo", false}},
		{
			"Vertex Google", "POST", "/v1/projects/p/locations/l/publishers/google/models/gemini-x:generateContent",
			Endpoint{GeminiGenerate, Gemini, Spending, "gemini-x", false},
		},
		{"Gemini embedding", "POST", "/v1beta/models/e:batchEmbedContents", Endpoint{GeminiEmbed, Gemini, Spending, "e", false}},
		{"Gemini interactions", "POST", "/v1beta/interactions?alt=sse", Endpoint{GeminiInteractions, Gemini, Spending, "", false}},
		{"Gemini interaction fetched", "GET", "/v1beta/interactions/v1_a", Endpoint{Class: Free}},
		{"Gemini interaction cancelled", "POST", "/v1beta/interactions/v1_a/cancel", Endpoint{UnknownAPI, Gemini, Free, "", false}},
		{
			"Vertex embedding", "POST", "/v1/projects/p/locations/l/publishers/google/models/text-embedding-005:predict",
			Endpoint{VertexPredict, Gemini, Spending, "text-embedding-005", false},
		},
		{"own endpoint of Vertex", "POST", "/v1/projects/p/locations/l/endpoints/7:predict", Endpoint{UnknownAPI, Gemini, Spending, "7", false}},
		{
			"Vertex Anthropic", "POST", "/v1/projects/p/locations/l/publishers/anthropic/models/claude@20250101:streamRawPredict",
			Endpoint{AnthropicMessages, Anthropic, Spending, "claude@20250101", false},
		},
		{
			"Bedrock", "POST", "/model/us.anthropic.claude-v1%3A0/invoke",
			Endpoint{BedrockInvoke, Bedrock, Spending, "us.anthropic.claude-v1:0", false},
		},
		{
			"Bedrock ARN", "POST", "/model/arn%3Aaws%3Abedrock%3Aus%3A1%3Aapplication-inference-profile%2Fabc/converse-stream",
			Endpoint{BedrockConverseStream, Bedrock, Spending, "arn:aws:bedrock:us:1:application-inference-profile/abc", false},
		},
		{"Bedrock count", "POST", "/model/m/count-tokens", Endpoint{UnknownAPI, Bedrock, Free, "m", false}},
		{"Ollama chat", "POST", "/api/chat", Endpoint{OllamaChat, Ollama, Spending, "", false}},
		{"Ollama generate", "POST", "/api/generate", Endpoint{OllamaGenerate, Ollama, Spending, "", false}},
		{"Ollama embed", "POST", "/api/embed", Endpoint{OllamaEmbed, Ollama, Spending, "", false}},
		{"Ollama embeddings", "POST", "/api/embeddings", Endpoint{OllamaEmbed, Ollama, Spending, "", false}},
		{"Cohere chat", "POST", "/v2/chat", Endpoint{CohereChat, OpenAI, Spending, "", false}},
		{"Cohere's older chat", "POST", "/compat/v1/chat", Endpoint{CohereChat, OpenAI, Spending, "", false}},
		{"Cohere embed", "POST", "/v2/embed", Endpoint{CohereEmbed, OpenAI, Spending, "", false}},
		{"rerank", "POST", "/v2/rerank", Endpoint{CohereRerank, OpenAI, Spending, "", false}},
		{"Mistral fill in the middle", "POST", "/v1/fim/completions", Endpoint{MistralChat, OpenAI, Spending, "", false}},
		{"Mistral agents", "POST", "/v1/agents/completions", Endpoint{MistralChat, OpenAI, Spending, "", false}},
		{"Bedrock stream", "POST", "/model/m/invoke-with-response-stream", Endpoint{BedrockInvokeStream, Bedrock, Spending, "m", false}},
		{"Bedrock Converse", "POST", "/model/m/converse", Endpoint{BedrockConverse, Bedrock, Spending, "m", false}},
		{"images", "POST", "/v1/images/edits", Endpoint{OpenAIImages, OpenAI, Spending, "", false}},
		{"speech", "POST", "/v1/audio/speech", Endpoint{OpenAIAudio, OpenAI, Spending, "", false}},
		{"OCR", "POST", "/v1/ocr", Endpoint{MistralOCR, OpenAI, Spending, "", false}},
		{"TGI", "POST", "/generate", Endpoint{TGIGenerate, OpenAI, Spending, "", false}},
		{"TGI stream", "POST", "/generate_stream", Endpoint{TGIStream, OpenAI, Spending, "", false}},
		{"llama.cpp", "POST", "/completion", Endpoint{LlamaCPPCompletion, OpenAI, Spending, "", false}},
		{"LM Studio is not Cohere", "POST", "/api/v1/chat", Endpoint{LMStudioChat, OpenAI, Spending, "", false}},
		{"moderation", "POST", "/v1/moderations", Endpoint{OpenAIModerations, OpenAI, Free, "", false}},
		{"tokenize", "POST", "/tokenize", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
		{"files", "POST", "/v1/files", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
		{"vector store search", "POST", "/v1/vector_stores/vs_1/search", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
		{"batches", "POST", "/v1/batches", Endpoint{UnknownAPI, OpenAI, Unmetered, "", false}},
		{"fine-tuning", "POST", "/v1/fine_tuning/jobs", Endpoint{UnknownAPI, OpenAI, Unmetered, "", false}},
		{"videos", "POST", "/v1/videos/v1/remix", Endpoint{UnknownAPI, OpenAI, Unmetered, "", false}},
		{"thread run", "POST", "/v1/threads/t/runs", Endpoint{UnknownAPI, OpenAI, Unmetered, "", false}},
		{"WebRTC call", "POST", "/v1/realtime/calls", Endpoint{UnknownAPI, OpenAI, Unmetered, "", false}},
		{"client secrets", "POST", "/v1/realtime/client_secrets", Endpoint{UnknownAPI, OpenAI, Minting, "", false}},
		{"realtime session", "POST", "/v1/realtime/sessions", Endpoint{UnknownAPI, OpenAI, Minting, "", false}},
		{"admin keys, whatever the method", "GET", "/v1/organization/admin_api_keys", Endpoint{UnknownAPI, OpenAI, Minting, "", false}},
		{
			"project keys", "POST", "/v1/organization/projects/p/service_accounts",
			Endpoint{UnknownAPI, OpenAI, Minting, "", false},
		},
		{"Gemini tokens", "POST", "/v1alpha/auth_tokens", Endpoint{UnknownAPI, Gemini, Minting, "", false}},
		{"unknown", "POST", "/v9/new-thing", Endpoint{}},
		{"list of models", "GET", "/v1/models", Endpoint{Class: Free}},
		{"poll of a response", "GET", "/v1/responses/r1", Endpoint{Class: Free}},
		{"deletion", "DELETE", "/v1/files/f", Endpoint{Class: Free}},
		{"preflight of minting", "OPTIONS", "/v1/realtime/client_secrets", Endpoint{UnknownAPI, OpenAI, Free, "", false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := identify(t, tt.method, tt.target, nil); got != tt.want {
				t.Errorf("Identify(%s %s) = %+v, want %+v", tt.method, tt.target, got, tt.want)
			}
		})
	}
}

func TestIdentifyCannotBeEscaped(t *testing.T) {
	tests := []struct {
		name, method, target string
		api                  API
		class                Class
	}{
		{"doubled slashes", "POST", "//v1//chat//completions//", OpenAIChat, Spending},
		{"trailing slash", "POST", "/v1/batches/", UnknownAPI, Unmetered},
		{"escaped slash", "POST", "/v1%2Fbatches", UnknownAPI, Unmetered},
		{"escaped slash twice", "POST", "/v1/realtime%252Fclient_secrets", UnknownAPI, Minting},
		{"escaped letters", "POST", "/v1/b%61tches", UnknownAPI, Unmetered},
		{"upper case", "POST", "/V1/BATCHES", UnknownAPI, Unmetered},
		{"backslash", "POST", `/v1/realtime%5Cclient_secrets`, UnknownAPI, Minting},
		{"dots", "POST", "/v1/./x/../batches", UnknownAPI, Unmetered},
		{"path parameters", "POST", "/v1/batches;v=1", UnknownAPI, Unmetered},
		{"a free path by climbing", "POST", "/v1/chat/completions/../../files", UnknownAPI, Spending},
		{"a free prefix", "POST", "/v1/files/chat/completions", OpenAIChat, Spending},
		{"a free id", "POST", "/v1/vector_stores/chat/completions", OpenAIChat, Spending},
		{"beneath chat", "POST", "/v1/chat/completions/tokenizer", UnknownAPI, Spending},
		{"lower case method", "get", "/v1/chat/completions", OpenAIChat, Spending},
		{"unknown method", "BREW", "/v1/chat/completions", OpenAIChat, Spending},
		{"PUT", "PUT", "/v1/chat/completions", OpenAIChat, Spending},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{"X-Http-Method-Override": {"GET"}, "X-Http-Method": {"GET"}}
			got := identify(t, tt.method, tt.target, h)
			if got.API != tt.api || got.Class != tt.class {
				t.Errorf("Identify(%s %s) = %v %v, want %v %v", tt.method, tt.target, got.API, got.Class, tt.api, tt.class)
			}
		})
	}
}

func TestIdentifyUpgrades(t *testing.T) {
	tests := []struct {
		name, method, target, upgrade string
		class                         Class
		model                         string
	}{
		{"WebSocket", "GET", "/v1/realtime?model=gpt-realtime", "websocket", Realtime, "gpt-realtime"},
		{"a deployment", "GET", "/openai/realtime?api-version=2025-04-01-preview&deployment=mine", "websocket", Realtime, "mine"},
		{"Azure's newer address", "GET", "/openai/v1/realtime?model=mine", "websocket", Realtime, "mine"},
		{"two models name none", "GET", "/v1/realtime?model=a&model=b", "websocket", Realtime, ""},
		{"a model and another deployment", "GET", "/v1/realtime?model=a&Deployment=b", "websocket", Realtime, ""},
		{"the same one twice", "GET", "/v1/realtime?model=a&deployment=a", "websocket", Realtime, "a"},
		{"an empty one beside", "GET", "/v1/realtime?model=&deployment=a", "websocket", Realtime, ""},
		{"semicolons", "GET", "/v1/realtime?model=a;model=b", "websocket", Realtime, ""},
		{"WebSocket in capitals", "GET", "/v1/Realtime/?model=m", "WebSocket", Realtime, "m"},
		{"Responses name it in messages", "GET", "/v1/responses?model=m", "websocket", Realtime, ""},
		{"Gemini Live", "GET", "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent?key=k", "websocket", Realtime, ""},
		{"Vertex Live", "GET", "/ws/google.cloud.aiplatform.v1.LlmBidiService/BidiGenerateContent", "websocket", Realtime, ""},
		{"translations count by time", "GET", "/v1/realtime/translations?model=m", "websocket", Upgrade, "m"},
		{"two protocols", "GET", "/v1/realtime?model=m", "websocket, h2c", Upgrade, "m"},
		{"a POST for one", "POST", "/v1/realtime?model=m", "websocket", Upgrade, "m"},
		{"extended CONNECT", "CONNECT", "/v1/realtime?model=m", "", Upgrade, "m"},
		{"an upgrade of a POST", "POST", "/v1/chat/completions", "websocket", Upgrade, ""},
		{"another protocol", "GET", "/v1/models", "h2c, tunnel", Upgrade, ""},
		{"h2c is HTTP", "POST", "/v1/chat/completions", "h2c", Spending, ""},
		{"minting stays minting", "GET", "/v1/realtime/client_secrets", "websocket", Minting, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			if tt.upgrade != "" {
				h.Set("Upgrade", tt.upgrade)
			}
			got := identify(t, tt.method, tt.target, h)
			if got.Class != tt.class || got.Model != tt.model {
				t.Errorf("got %v %q, want %v %q", got.Class, got.Model, tt.class, tt.model)
			}
		})
	}
}

func TestIdentifyTellsDialectByPathThenHeader(t *testing.T) {
	h := http.Header{"Anthropic-Version": {"2023-06-01"}}
	tests := []struct {
		name, target string
		h            http.Header
		want         Dialect
	}{
		{"header on a neutral path", "/v1/models", h, Anthropic},
		{"path before header", "/v1/chat/completions", h, OpenAI},
		{"neither", "/v1/models", nil, OpenAI},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := identify(t, "POST", tt.target, tt.h).Dialect; got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestEveryEndpointRowIsReached(t *testing.T) {
	r := strings.NewReplacer("{model+}", "m", "{model}", "m", "*", "x")
	for _, row := range endpointRows {
		path := "/v1/" + r.Replace(strings.TrimSuffix(row.path, "/**"))
		got := identify(t, "POST", path, nil)
		if got.API != row.api || got.Dialect != row.dialect || got.Class != row.class {
			t.Errorf("%s: got %+v, want the row's %v %v %v", path, got, row.api, row.dialect, row.class)
		}
	}
}

func TestIdentifyIgnoresPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.StringMatching(`(/[a-z0-9_.-]{1,8}){0,20}`).Draw(t, "prefix")
		if strings.Contains(prefix+"/", "/../") {
			t.Skip("a prefix does not climb")
		}
		tail := rapid.SampledFrom([]string{
			"/chat/completions", "/responses", "/messages", "/embeddings", "/batches", "/realtime/client_secrets",
		}).Draw(t, "tail")
		want := Identify("POST", &url.URL{Path: tail}, nil)
		got := Identify("POST", &url.URL{Path: prefix + tail}, nil)
		if got.Class != want.Class || got.API != want.API {
			t.Fatalf("%s%s: got %+v, want %+v", prefix, tail, got, want)
		}
	})
}

func TestPlainPathsAreCutAsAllAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.StringMatching(`(/?([a-zA-Z0-9_.:+-]{1,8}|\.\.?))*/?`).Draw(t, "path")
		if !endpointPlain(path) {
			t.Fatalf("%q is not plain", path)
		}
		segs, climbs, odd := endpointSegments(nil, path)
		// parameters count for nothing, but are not plain
		want, wantClimbs, wantOdd := endpointSegments(nil, strings.ReplaceAll(path, "/", ";/")+";")
		if !slices.Equal(segs, want) || climbs != wantClimbs || odd != wantOdd {
			t.Fatalf("%q: got %q %t %t, want %q %t %t", path, segs, climbs, odd, want, wantClimbs, wantOdd)
		}
	})
	for c := range 256 {
		if plain := endpointPlain(string([]byte{byte(c)})); plain && (strings.ContainsRune(" ;%\\?#", rune(c)) || c < ' ' || c > '~') {
			t.Errorf("%q is taken for plain", rune(c))
		}
	}
}

func FuzzIdentify(f *testing.F) {
	f.Add("POST", "/v1/chat/completions")
	f.Add("GET", "/model/a%2f/invoke")
	f.Add("POST", "/../..;/%25%32%66:generateContent")
	f.Fuzz(func(t *testing.T, method, path string) {
		ep := Identify(method, &url.URL{Path: path}, http.Header{})
		if ep.Class == Free && method != "GET" && method != "DELETE" && method != "HEAD" && method != "OPTIONS" &&
			strings.HasSuffix(path, "/chat/completions") {
			t.Errorf("%s %q is free", method, path)
		}
	})
}

func BenchmarkIdentify(b *testing.B) {
	for _, path := range []string{"/v1/chat/completions", "/v1/unknown/path"} {
		b.Run(path, func(b *testing.B) {
			u, h := &url.URL{Path: path}, http.Header{}
			b.ReportAllocs()
			for b.Loop() {
				Identify("POST", u, h)
			}
		})
	}
}
