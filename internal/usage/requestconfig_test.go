package usage

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var (
	epGemini       = Endpoint{API: GeminiGenerate, Dialect: Gemini, Model: "g"}
	epGeminiStream = Endpoint{API: GeminiStream, Dialect: Gemini, Model: "g"}
	epInteractions = Endpoint{API: GeminiInteractions, Dialect: Gemini}
	epPredict      = Endpoint{API: VertexPredict, Dialect: Gemini, Model: "g"}
	epOllamaChat   = Endpoint{API: OllamaChat, Dialect: Ollama}
	epOllamaGen    = Endpoint{API: OllamaGenerate, Dialect: Ollama}
	epCohereChat   = Endpoint{API: CohereChat}
	epMistral      = Endpoint{API: MistralChat}
)

func TestConfigsSteerACall(t *testing.T) {
	tests := []struct {
		name    string
		ep      Endpoint
		body    string
		limit   int64
		choices int64
		stream  bool
	}{
		{"Gemini", epGemini, `{"generationConfig":{"maxOutputTokens":2048,"candidateCount":3}}`, 2048, 3, false},
		{"Gemini in snake case", epGemini, `{"generation_config":{"max_output_tokens":2048,"candidate_count":3}}`, 2048, 3, false},
		{"Gemini with an escaped name", epGemini, `{"generationConf\u0069g":{"max\u004futputTokens":7}}`, 7, 1, false},
		{"Gemini, whole floats", epGemini, `{"generationConfig":{"maxOutputTokens":16.0}}`, 16, 1, false},
		{"Gemini, zero is no cap", epGemini, `{"generationConfig":{"maxOutputTokens":0,"candidateCount":0}}`, 0, 1, false},
		{"Gemini, null", epGemini, `{"generationConfig":null}`, 0, 1, false},
		{"Gemini, nulls within", epGemini, `{"generationConfig":{"maxOutputTokens":null,"candidateCount":null}}`, 0, 1, false},
		{"Gemini, nothing", epGemini, `{"contents":[]}`, 0, 1, false},
		{"Gemini ignores foreign caps", epGemini, `{"max_tokens":5,"options":{"num_predict":7}}`, 0, 1, false},
		{"a foreign cap beside Gemini's", epGemini, `{"max_tokens":500,"generationConfig":{"maxOutputTokens":5}}`, 500, 1, false},
		{"Gemini streams by its path", epGeminiStream, `{}`, 0, 1, true},
		{"whatever the body says", epGeminiStream, `{"stream":false}`, 0, 1, true},
		{"and does not by the other", epGemini, `{"stream":true}`, 0, 1, false},
		{"an interaction", epInteractions, `{"generation_config":{"max_output_tokens":9},"stream":true}`, 9, 1, true},
		{"pictures of Vertex", epPredict, `{"parameters":{"sampleCount":4}}`, 0, 4, false},
		{"Ollama", epOllamaChat, `{"options":{"num_predict":512,"stop":["a"]}}`, 512, 1, true},
		{"Ollama without end", epOllamaChat, `{"options":{"num_predict":-1}}`, 0, 1, true},
		{"Ollama to the end of the context", epOllamaGen, `{"options":{"num_predict":-2}}`, 0, 1, true},
		{"Ollama without a stream", epOllamaGen, `{"stream":false}`, 0, 1, false},
		{"Ollama with a stream that is null", epOllamaGen, `{"stream":null}`, 0, 1, true},
		{"embeddings of Ollama do not stream", Endpoint{API: OllamaEmbed}, `{"input":"a"}`, 0, 1, false},
		{"Cohere", epCohereChat, `{"max_tokens":100,"stream":true}`, 100, 1, true},
		{"Mistral", epMistral, `{"max_tokens":100,"n":2}`, 100, 2, false},
		{"other APIs have no options", epChat, `{"options":{"num_predict":512}}`, 0, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.body)
			if r.Cap != tt.limit || r.Choices != tt.choices || r.Stream != tt.stream {
				t.Errorf("got cap %d, choices %d, stream %t, want %d, %d, %t", r.Cap, r.Choices, r.Stream, tt.limit, tt.choices, tt.stream)
			}
		})
	}
}

func TestConfigsThatParsersReadInTwoWaysAreRefused(t *testing.T) {
	tests := []struct {
		name  string
		ep    Endpoint
		param string
		body  string
	}{
		{"config twice", epGemini, "generationConfig", `{"generationConfig":{},"generationConfig":{}}`},
		{"config twice, one null", epGemini, "generationConfig", `{"generationConfig":null,"generationConfig":{}}`},
		{"config in both spellings", epGemini, "generationConfig", `{"generationConfig":{},"generation_config":{}}`},
		{"config twice, one escaped", epGemini, "generationConfig", `{"generationConfig":{},"generationConf\u0069g":{}}`},
		{"config in lower case", epGemini, "generationConfig", `{"generationconfig":{}}`},
		{"config in capitals", epGemini, "generationConfig", `{"GenerationConfig":{}}`},
		{"config in mixed spelling", epGemini, "generationConfig", `{"Generation_Config":{}}`},
		{"config a list", epGemini, "generationConfig", `{"generationConfig":[]}`},
		{"config a string", epGemini, "generationConfig", `{"generationConfig":"x"}`},
		{"cap twice", epGemini, "maxOutputTokens", `{"generationConfig":{"maxOutputTokens":1,"maxOutputTokens":2}}`},
		{"cap in both spellings", epGemini, "maxOutputTokens", `{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":2}}`},
		{"cap in another case", epGemini, "maxOutputTokens", `{"generationConfig":{"MaxOutputTokens":1}}`},
		{"cap negative", epGemini, "maxOutputTokens", `{"generationConfig":{"maxOutputTokens":-1}}`},
		{"cap in fractions", epGemini, "maxOutputTokens", `{"generationConfig":{"maxOutputTokens":1.5}}`},
		{"cap a string", epGemini, "maxOutputTokens", `{"generationConfig":{"maxOutputTokens":"5"}}`},
		{"cap too large", epGemini, "maxOutputTokens", `{"generationConfig":{"maxOutputTokens":9007199254740993}}`},
		{"choices twice", epGemini, "candidateCount", `{"generationConfig":{"candidateCount":1,"candidate_count":2}}`},
		{"choices in another case", epGemini, "candidateCount", `{"generationConfig":{"candidatecount":2}}`},
		{"interaction's cap twice", epInteractions, "max_output_tokens", `{"generation_config":{"max_output_tokens":1,"maxOutputTokens":2}}`},
		{"options twice", epOllamaChat, "options", `{"options":{},"options":{}}`},
		{"options in another case", epOllamaChat, "options", `{"Options":{"num_predict":5}}`},
		{"options with a long s", epOllamaChat, "options", `{"optionſ":{"num_predict":5}}`},
		{"num_predict twice", epOllamaChat, "num_predict", `{"options":{"num_predict":1,"num_predict":-1}}`},
		{"num_predict in another case", epOllamaChat, "num_predict", `{"options":{"NUM_PREDICT":1}}`},
		{"num_predict a string", epOllamaChat, "num_predict", `{"options":{"num_predict":"1"}}`},
		{"pictures twice", epPredict, "sampleCount", `{"parameters":{"sampleCount":1,"sampleCount":8}}`},
		{"Cohere's cap twice", epCohereChat, "max_tokens", `{"max_tokens":1,"max_tokens":2}`},
		{"Cohere's cap in another case", epCohereChat, "max_tokens", `{"Max_Tokens":1}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if bad := refused(t, tt.ep, reqHeader, tt.body); bad.Param != tt.param || bad.Message == "" {
				t.Errorf("param %q, want %q (%s)", bad.Param, tt.param, bad.Message)
			}
		})
	}
}

func TestWriteCapIntoConfigs(t *testing.T) {
	tests := []struct {
		name     string
		ep       Endpoint
		in, want string // want is empty where nothing may change
	}{
		{"absent", epGemini, `{"contents":[]}`, `{"generationConfig":{"maxOutputTokens":7},"contents":[]}`},
		{"nothing there", epGemini, `{}`, `{"generationConfig":{"maxOutputTokens":7}}`},
		{"null", epGemini, `{"generationConfig": null }`, `{"generationConfig": {"maxOutputTokens":7} }`},
		{"empty", epGemini, `{"generationConfig":{ }}`, `{"generationConfig":{"maxOutputTokens":7 }}`},
		{
			"other members", epGeminiStream, `{"generationConfig":{"temperature":0.5,"topK":12345678901234567890}}`,
			`{"generationConfig":{"maxOutputTokens":7,"temperature":0.5,"topK":12345678901234567890}}`,
		},
		{"in snake case", epGemini, `{"generation_config":{"top_k":1}}`, `{"generation_config":{"maxOutputTokens":7,"top_k":1}}`},
		{"a cap that is null", epGemini, `{"generationConfig":{"a":[1],"maxOutputTokens": null}}`, `{"generationConfig":{"a":[1],"maxOutputTokens": 7}}`},
		{"a cap of zero", epGemini, `{"generation_config":{"max_output_tokens":0,"a":1}}`, `{"generation_config":{"max_output_tokens":7,"a":1}}`},
		{"a cap", epGemini, `{"generationConfig":{"maxOutputTokens":5}}`, ``},
		{"an interaction", epInteractions, `{"model":"m"}`, `{"generation_config":{"max_output_tokens":7},"model":"m"}`},
		{"options absent", epOllamaChat, `{"model":"m"}`, `{"options":{"num_predict":7},"model":"m"}`},
		{"options empty", epOllamaGen, `{"options":{}}`, `{"options":{"num_predict":7}}`},
		{"options null", epOllamaGen, `{"options":null}`, `{"options":{"num_predict":7}}`},
		{"options without end", epOllamaChat, `{"options":{"seed":1,"num_predict":-1}}`, `{"options":{"seed":1,"num_predict":7}}`},
		{"options with a cap", epOllamaChat, `{"options":{"num_predict":5}}`, ``},
		{"Cohere", epCohereChat, `{"model":"m"}`, `{"max_tokens":7,"model":"m"}`},
		{"Mistral", epMistral, `{"max_tokens":null}`, `{"max_tokens":7}`},
		{"Vertex's predict", epPredict, `{"instances":[]}`, ``},
		{"embeddings", Endpoint{API: GeminiEmbed}, `{"content":{}}`, ``},
		{"rankings", Endpoint{API: CohereRerank}, `{"query":"a"}`, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := parse(t, tt.ep, tt.in)
			body := []byte(tt.in)
			got, ok := r.WriteCap(body, 7)
			if string(body) != tt.in {
				t.Error("the body given was changed")
			}
			if ok != (tt.want != "") {
				t.Fatalf("edited: %t, got %s", ok, got)
			}
			if !ok {
				return
			}
			if string(got) != tt.want || r.Cap != 7 {
				t.Errorf("got %s and cap %d, want %s", got, r.Cap, tt.want)
			}
			if again := parse(t, tt.ep, string(got)); again.Cap != 7 {
				t.Errorf("%s reads as a cap of %d", got, again.Cap)
			}
			if _, again := r.WriteCap(got, 9); again {
				t.Error("a second time edits again")
			}
		})
	}
}

func TestSignedConfigsAreNotEdited(t *testing.T) {
	r, err := ParseRequest(epGemini, http.Header{"Authorization": {"AWS4-HMAC-SHA256 x"}}, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := r.WriteCap([]byte(`{}`), 7); ok {
		t.Errorf("got %s", got)
	}
}

func TestInjectedConfigsAreRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ep := rapid.SampledFrom([]Endpoint{epGemini, epGeminiStream, epInteractions, epOllamaChat, epOllamaGen}).Draw(t, "endpoint")
		c := &reqConfigsOf(ep.API)[0]
		outer := []string{`"` + c.names[0] + `":{}`, `"` + respell(t, rapid.SampledFrom(c.names).Draw(t, "name")) + `":{}`}
		inner := []string{`"` + c.caps[0] + `":1`, `"` + respell(t, rapid.SampledFrom(c.caps).Draw(t, "cap")) + `":2`}
		for _, body := range []string{
			"{" + strings.Join(rapid.Permutation(outer).Draw(t, "outer"), ",") + "}",
			`{"` + c.names[0] + `":{` + strings.Join(rapid.Permutation(inner).Draw(t, "inner"), ",") + "}}",
		} {
			if r, err := ParseRequest(ep, reqHeader, []byte(body)); err == nil {
				t.Fatalf("ParseRequest(%s) = %+v", body, r)
			}
		}
	})
}

// vendorAPIs are those whose bodies the fuzz target reads.
var vendorAPIs = []API{
	GeminiGenerate, GeminiStream, GeminiEmbed, GeminiInteractions, VertexPredict, OllamaChat, OllamaGenerate, OllamaEmbed,
	CohereChat, CohereEmbed, CohereRerank, MistralChat,
}

// checkVendorBody parses a body and checks what must hold for any that is accepted,
// and for it with a cap written in.
func checkVendorBody(fatalf func(string, ...any), api API, body []byte, limit int64) {
	ep := Endpoint{API: api, Model: "m"}
	r, err := ParseRequest(ep, reqHeader, body)
	if err != nil {
		return
	}
	if !json.Valid(body) {
		fatalf("accepted %q, which is not JSON", body)
	}
	if raw := int64(len(body)); r.TextBytes > 2*raw+16 || r.TextBytes < 0 || r.MediaBytes > raw || r.Media < r.Images || r.Choices < 1 {
		fatalf("%+v of %d bytes: %q", r, raw, body)
	}
	if r.PromptTokens() > r.PromptWorst() {
		fatalf("expected %d, at most %d: %q", r.PromptTokens(), r.PromptWorst(), body)
	}
	was := *r
	edited, ok := r.WriteCap(body, limit)
	if !ok {
		return
	}
	again, err := ParseRequest(ep, reqHeader, edited)
	if err != nil {
		fatalf("%q was edited to %q, which is refused: %v", body, edited, err)
		return
	}
	if was.Cap != 0 || again.Cap != r.Cap || again.Cap < limit {
		fatalf("%q was edited to %q, in vain", body, edited)
	}
	was.edit, again.edit, was.Cap, again.Cap = reqEdit{}, reqEdit{}, 0, 0
	if !reflect.DeepEqual(*again, was) {
		fatalf("%q was edited to %q: parsed %+v, want %+v", body, edited, *again, was)
	}
}

func FuzzVendorRequest(f *testing.F) {
	for i, s := range append(fuzzSeeds,
		`{"contents":[{"role":"user","parts":[{"text":"a"},{"inlineData":{"mimeType":"image/png","data":"AA"}},{"fileData":{"fileUri":"gs://b"}}]}],`+
			`"tools":[{"functionDeclarations":[{"name":"f"}]},{"googleSearch":{}}],"generationConfig":{"maxOutputTokens":null,"candidateCount":2}}`,
		`{"generation_config":{"max_output_tokens":0,"response_schema":{"type":"OBJECT"}},"tools":{"code_execution":{}}}`,
		`{"messages":[{"role":"user","content":"a","images":["AA"]}],"options":{"num_predict":-2},"stream":null,"context":[1,2]}`,
		`{"message":"a","chat_history":[{"role":"USER","message":"b"}],"documents":[{"data":{"text":"c"}}],"max_tokens":null}`,
		`{"input":[{"type":"image","uri":"https://x","mime_type":"image/png"}],"previous_interaction_id":"v1"}`,
	) {
		f.Add(uint8(i), []byte(s), int64(7))
	}
	f.Fuzz(func(t *testing.T, api uint8, body []byte, limit int64) {
		if limit < 1 || limit > 1<<53 {
			limit = 7
		}
		checkVendorBody(t.Fatalf, vendorAPIs[int(api)%len(vendorAPIs)], body, limit)
	})
}

func TestCapsWrittenIntoAnyBodyChangeNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		api := rapid.SampledFrom(vendorAPIs).Draw(t, "api")
		members := []string{}
		if c := reqConfigsOf(api); c != nil {
			inner, err := json.Marshal(map[string]any{"a": drawJSON(t, 2), "b": drawJSON(t, 2)})
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, `"`+rapid.SampledFrom(c[0].names).Draw(t, "name")+`":`+
				rapid.SampledFrom([]string{"null", "{}", "{ }", string(inner)}).Draw(t, "config"))
		}
		for _, name := range []string{"contents", "messages", "tools", "x"} {
			doc, err := json.Marshal(drawJSON(t, 3))
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, `"`+name+`":`+string(doc))
		}
		body := "{" + strings.Join(rapid.Permutation(members).Draw(t, "order"), " , ") + "}"
		checkVendorBody(t.Fatalf, api, []byte(body), rapid.Int64Range(1, 1<<53).Draw(t, "limit"))
	})
}
