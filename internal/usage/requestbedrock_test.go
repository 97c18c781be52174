package usage

import (
	"net/http"
	"strings"
	"testing"
)

var (
	epConverse = Endpoint{API: BedrockConverse, Dialect: Bedrock, Model: "amazon.nova-lite-v1:0"}
	epInvoke   = Endpoint{API: BedrockInvoke, Dialect: Bedrock, Model: "m"}
)

func TestBedrockCapsAreRead(t *testing.T) {
	tests := []struct {
		name    string
		ep      Endpoint
		body    string
		cap     int64
		choices int64
	}{
		{"Converse", epConverse, `{"messages":[],"inferenceConfig":{"maxTokens":16,"temperature":0}}`, 16, 1},
		{"Converse without", epConverse, `{"messages":[],"inferenceConfig":{}}`, 0, 1},
		{"Converse knows no other", epConverse, `{"max_tokens":9,"inferenceConfig":null}`, 0, 1},
		{"Anthropic", epInvoke, `{"anthropic_version":"bedrock-2023-05-31","max_tokens":64}`, 64, 1},
		{"Nova", epInvoke, `{"inferenceConfig":{"max_new_tokens":7}}`, 7, 1},
		{"Titan", epInvoke, `{"inputText":"x","textGenerationConfig":{"maxTokenCount":512}}`, 512, 1},
		{"Titan's pictures", epInvoke, `{"taskType":"TEXT_IMAGE","imageGenerationConfig":{"numberOfImages":3}}`, 0, 3},
		{"Llama", epInvoke, `{"prompt":"x","max_gen_len":128}`, 128, 1},
		{"Cohere", epInvoke, `{"prompt":"x","max_tokens":20,"num_generations":4}`, 20, 4},
		{"several", epInvoke, `{"max_gen_len":128,"textGenerationConfig":{"maxTokenCount":512}}`, 512, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, nil, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if r.Cap != tt.cap || r.Choices != tt.choices || r.Stream || r.Model != tt.ep.Model {
				t.Errorf("got cap %d, choices %d, stream %v, model %q", r.Cap, r.Choices, r.Stream, r.Model)
			}
		})
	}
}

func TestBedrockStreamsByPath(t *testing.T) {
	for api, want := range map[API]bool{
		BedrockInvoke: false, BedrockConverse: false, BedrockInvokeStream: true, BedrockConverseStream: true,
	} {
		r, err := ParseRequest(Endpoint{API: api}, nil, []byte(`{"stream":`+map[bool]string{true: "false", false: "true"}[want]+`}`))
		if err != nil {
			t.Fatal(err)
		}
		if r.Stream != want {
			t.Errorf("%s: got stream %v", api, r.Stream)
		}
	}
}

func TestBedrockRefusesWhatParsersDifferOn(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
	}{
		{"config twice", epConverse, `{"inferenceConfig":{"maxTokens":1},"inferenceConfig":{"maxTokens":9}}`},
		{"config in another case", epConverse, `{"inferenceconfig":{"maxTokens":1}}`},
		{"cap twice", epConverse, `{"inferenceConfig":{"maxTokens":1,"maxTokens":9}}`},
		{"cap in another case", epConverse, `{"inferenceConfig":{"maxtokens":9}}`},
		{"cap in two spellings", epInvoke, `{"inferenceConfig":{"maxTokens":1,"max_new_tokens":9}}`},
		{"cap of another type", epInvoke, `{"textGenerationConfig":{"maxTokenCount":"512"}}`},
		{"length twice", epInvoke, `{"max_gen_len":1,"max_gen_len":9}`},
		{"length in another case", epInvoke, `{"Max_Gen_Len":9}`},
		{"answers twice", epInvoke, `{"num_generations":1,"num_generations":9}`},
		{"no object", epInvoke, `[]`},
	}
	for _, tt := range tests {
		if _, err := ParseRequest(tt.ep, nil, []byte(tt.body)); err == nil {
			t.Errorf("%s: accepted %s", tt.name, tt.body)
		}
	}
}

func TestConverseMediaAreCounted(t *testing.T) {
	data := strings.Repeat("QUJD", 100)
	tests := []struct {
		name, block   string
		media, images int
		bytes, text   int64
		external      string
	}{
		{"text", `{"text":"hello"}`, 0, 0, 0, 5, ""},
		{"image", `{"image":{"format":"png","source":{"bytes":"` + data + `"}}}`, 1, 1, 400, 0, ""},
		{"image in a bucket", `{"image":{"format":"png","source":{"s3Location":{"uri":"s3://b/k","bucketOwner":"1"}}}}`, 1, 1, 0, 0, "a file"},
		{"document", `{"document":{"format":"pdf","source":{"bytes":"` + data + `"}}}`, 1, 0, 400, 0, "a document"},
		{"document of text", `{"document":{"format":"txt","source":{"text":"plain"}}}`, 0, 0, 0, 5, ""},
		{"video", `{"video":{"format":"mp4","source":{"bytes":"` + data + `"}}}`, 1, 0, 400, 0, "a video"},
		{"video in a bucket", `{"video":{"format":"mp4","source":{"s3Location":{"uri":"s3://b/k"}}}}`, 1, 0, 0, 0, "a file"},
		{"audio", `{"audio":{"format":"mp3","source":{"bytes":"` + data + `"}}}`, 1, 0, 400, 0, ""},
		{"image behind a document", `{"document":{"source":{"text":"ab"}}},{"image":{"source":{"bytes":"` + data + `"}}}`, 1, 1, 400, 2, ""},
		{"tool use", `{"toolUse":{"toolUseId":"t","name":"nm","input":{"a":1}}}`, 0, 0, 0, 2 + int64(len(`{"a":1}`)), ""},
		{"tool result", `{"toolResult":{"toolUseId":"t","content":[{"json":{"a":1}},{"text":"xy"}]}}`, 0, 0, 0, 2 + int64(len(`{"a":1}`)), ""},
		{"cache point", `{"cachePoint":{"type":"default"}}`, 0, 0, 0, 0, ""},
		{"guarded text", `{"guardContent":{"text":{"text":"abc"}}}`, 0, 0, 0, 3, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(epConverse, nil, []byte(`{"messages":[{"role":"user","content":[`+tt.block+`]}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if r.Messages != 1 || r.Media != tt.media || r.Images != tt.images || r.MediaBytes != tt.bytes ||
				r.ExternalWhat != tt.external {
				t.Errorf("got %+v", r)
			}
			if r.TextBytes < tt.text || r.TextBytes > tt.text+8 {
				t.Errorf("got %d bytes of text, want about %d", r.TextBytes, tt.text)
			}
		})
	}
}

func TestConverseToolsAreCounted(t *testing.T) {
	tests := []struct {
		name, body string
		tools      int
		external   string
	}{
		{"the client's", `{"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{}}}},{"cachePoint":{}}],"toolChoice":{}}}`, 2, ""},
		{"the system's", `{"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}`, 1, "server tools"},
		{"none", `{"toolConfig":null}`, 0, ""},
		{"guardrails are no prompt", `{"guardrailConfig":{"guardrailIdentifier":"g"}}`, 0, ""},
		{"stored prompt", `{"promptVariables":{"x":{"text":"y"}}}`, 0, "a stored prompt"},
	}
	for _, tt := range tests {
		r, err := ParseRequest(epConverse, nil, []byte(tt.body))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if r.Tools != tt.tools || r.ExternalWhat != tt.external {
			t.Errorf("%s: got %d tools, external %q", tt.name, r.Tools, r.ExternalWhat)
		}
	}
}

func TestBedrockCapIsWrittenWhereItCanBe(t *testing.T) {
	signed := http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=x"}}
	tests := []struct {
		name   string
		ep     Endpoint
		header http.Header
		body   string
		want   string // empty for no edit
	}{
		{"Converse", epConverse, nil, `{"messages":[]}`, `{"inferenceConfig":{"maxTokens":50},"messages":[]}`},
		{"Converse with a config", epConverse, nil, `{"inferenceConfig":{"topP":1}}`, `{"inferenceConfig":{"maxTokens":50,"topP":1}}`},
		{"Converse, capped", epConverse, nil, `{"inferenceConfig":{"maxTokens":9}}`, ""},
		{"signed", epConverse, signed, `{"messages":[]}`, ""},
		{"Invoke", epInvoke, nil, `{"prompt":"x"}`, ""},
		{"TGI", Endpoint{API: TGIGenerate}, nil, `{"inputs":"x"}`, `{"parameters":{"max_new_tokens":50},"inputs":"x"}`},
		{"llama.cpp", Endpoint{API: LlamaCPPCompletion}, nil, `{"prompt":"x","n_predict":null}`, `{"prompt":"x","n_predict":50}`},
		{"LM Studio", Endpoint{API: LMStudioChat}, nil, `{"input":"x"}`, `{"max_output_tokens":50,"input":"x"}`},
		{"pictures", Endpoint{API: OpenAIImages}, reqHeader, `{"prompt":"x"}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, tt.header, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			got, edited := r.WriteCap([]byte(tt.body), 50)
			if edited != (tt.want != "") || edited && string(got) != tt.want {
				t.Errorf("got %q, %v", got, edited)
			}
			if again, asked := r.AskUsage(got); asked {
				t.Errorf("got usage asked for in %q", again)
			}
		})
	}
}

func TestNativeCapsAreRead(t *testing.T) {
	tests := []struct {
		name         string
		api          API
		body         string
		cap, choices int64
		stream       bool
	}{
		{"TGI", TGIGenerate, `{"inputs":"x","parameters":{"max_new_tokens":20,"best_of":2}}`, 20, 2, false},
		{"TGI stream", TGIStream, `{"inputs":"x","parameters":{"max_new_tokens":20}}`, 20, 1, true},
		{"SGLang", TGIGenerate, `{"text":"x","sampling_params":{"max_new_tokens":20,"n":3},"stream":true}`, 20, 3, true},
		{"llama.cpp", LlamaCPPCompletion, `{"prompt":"x","n_predict":64,"stream":true}`, 64, 1, true},
		{"llama.cpp without end", LlamaCPPCompletion, `{"prompt":"x","n_predict":-1}`, 0, 1, false},
		{"llama.cpp, two prompts", LlamaCPPCompletion, `{"prompt":["x","y"],"n_predict":64,"n_cmpl":2}`, 64, 4, false},
		{"LM Studio", LMStudioChat, `{"model":"m","input":"x","stream":true,"max_output_tokens":512}`, 512, 1, true},
	}
	for _, tt := range tests {
		r, err := ParseRequest(Endpoint{API: tt.api}, nil, []byte(tt.body))
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if r.Cap != tt.cap || r.Choices != tt.choices || r.Stream != tt.stream {
			t.Errorf("%s: got cap %d, choices %d, stream %v", tt.name, r.Cap, r.Choices, r.Stream)
		}
	}
}

func TestRecordingsAndPicturesComeInForms(t *testing.T) {
	body := formBody(
		"name=\"model\"\r\n\r\nwhisper-1\r\n", "name=\"stream\"\r\n\r\ntrue\r\n", "name=\"n\"\r\n\r\n2\r\n",
		"name=\"file\"; filename=\"a.mp3\"\r\n\r\nabcd\r\n")
	for _, api := range []API{OpenAIAudio, OpenAIImages} {
		r, err := ParseRequest(Endpoint{API: api}, http.Header{"Content-Type": {formType}}, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if r.Model != "whisper-1" || !r.Stream || r.Choices != 2 || r.Media != 1 || r.MediaBytes != 4 {
			t.Errorf("%s: got %+v", api, r)
		}
	}
	r, err := ParseRequest(Endpoint{API: OpenAIAudio}, reqHeader, []byte(`{"model":"tts-1","input":"Mind the gap.","voice":"alloy"}`))
	if err != nil || r.Model != "tts-1" || r.TextBytes != 13 {
		t.Errorf("speech: got %+v, %v", r, err)
	}
}
