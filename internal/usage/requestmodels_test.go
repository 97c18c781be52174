package usage

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestOtherModelsAreCollected(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want []string
	}{
		{"none", epChat, `{"model":"m","messages":[{"content":"model","model":"x"}],"metadata":{"model":"x"}}`, nil},
		{"models", epChat, `{"model":"m","models":["m","a","b","a"]}`, []string{"a", "b"}},
		{"models before the model", epChat, `{"models":["a","m"],"model":"m"}`, []string{"a"}},
		{"nothing but the model again", epChat, `{"models":["m"],"model":"m"}`, nil},
		{"models in capitals", epChat, `{"model":"m","MODELS":["a"]}`, []string{"a"}},
		{"models in escapes", epChat, `{"model":"m","m\u006fdels":["\u0061"]}`, []string{"a"}},
		{"models twice", epChat, `{"model":"m","models":["a"],"models":["b"]}`, []string{"a", "b"}},
		{"models as objects", epChat, `{"model":"m","models":[{"id":"a"},{"name":"b"},{"model":"c","provider":"x"}]}`, []string{"a", "b", "c"}},
		{"one model", epChat, `{"model":"m","fallback_models":"a"}`, []string{"a"}},
		{"fallbacks", epChat, `{"model":"m","fallbacks":["a",{"model":"b","messages":[{"role":"user","content":"hi"}],"stop":["x"]}]}`, []string{"a", "b"}},
		{"a map of fallbacks", epChat, `{"model":"m","context_window_fallbacks":[{"m":["a","b"]}]}`, []string{"a", "b"}},
		{"list of models", epChat, `{"model":"m","model_list":[{"model_name":"a","litellm_params":{"model":"b"}}]}`, []string{"a", "b"}},
		{"default model", epChat, `{"model":"m","default_model":"a","draftModel":"b"}`, []string{"a", "b"}},
		{"deployment", epChat, `{"model":"m","deployment_id":"a"}`, []string{"a"}},
		{"route", epChat, `{"model":"m","route":"a"}`, []string{"a"}},
		{"a route that is a way", epChat, `{"model":"m","route":"fallback"}`, nil},
		{"plugins", epChat, `{"model":"m","plugins":[{"id":"web","engine":"a"},{"id":"auto-router","allowed_models":["b/*"]},{"id":"fusion","model":"c"}]}`, []string{"a", "b/*", "c"}},
		{"options of providers", epChat, `{"model":"m","providerOptions":{"gateway":{"order":["x"],"models":["a"]}}}`, []string{"a"}},
		{"extra body", epChat, `{"model":"m","extra_body":{"models":["a"],"fallbacks":["b"],"top_k":1}}`, []string{"a", "b"}},
		{"a tool", epResponses, `{"model":"m","tools":[{"type":"image_generation","model":"a"},{"model":"b","type":"advisor_20260301"}]}`, []string{"a", "b"}},
		{"settings of a tool", epChat, `{"model":"m","tools":[{"type":"x:advisor","parameters":{"model":"a"}}]}`, []string{"a"}},
		{
			"a function that takes a model", epChat,
			`{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"model":{"type":"string"}}}}}]}`, nil,
		},
		{"routing at Google", epGemini, `{"generationConfig":{"routingConfig":{"manualMode":{"modelName":"a"}}}}`, []string{"a"}},
		{"neither strings nor objects", epChat, `{"model":"m","models":null,"use_model":true,"fallbacks":[1,null,""]}`, nil},
		{"a path's model", Endpoint{API: OpenAIChat, Model: "dep"}, `{"model":"m","models":["dep","m","a"]}`, []string{"a"}},
		{"an unknown API", Endpoint{}, `{"model":"m","models":["a"]}`, []string{"a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse(t, tt.ep, tt.body).OtherModels; !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestOtherModelsOfAForm(t *testing.T) {
	h := http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	body := part("models[]", "a") + part("models[]", "m") + part("fallbacks", `["b"]`) + part("model", "m") + part("prompt", "c") + "--b--\r\n"
	r, err := ParseRequest(Endpoint{API: OpenAIImages}, h, []byte(body))
	if err != nil || !slices.Equal(r.OtherModels, []string{"a", "b"}) {
		t.Errorf("got %+v, %v", r, err)
	}
	if bad := refused(t, Endpoint{API: OpenAIImages}, h, part("extra_body", `{"n":2}`)+"--b--\r\n"); bad.Param != "extra_body" {
		t.Errorf("got %+v", bad)
	}
}

func TestOtherModelsAreBounded(t *testing.T) {
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"m` + strconv.Itoa(i) + `"`)
		}
		return `{"models":["m0"` + b.String() + `]}`
	}
	if got := len(parse(t, epChat, list(reqMaxModels)).OtherModels); got != reqMaxModels {
		t.Errorf("got %d models, want %d", got, reqMaxModels)
	}
	refused(t, epChat, reqHeader, list(reqMaxModels+1))
	deep := strings.Repeat("[", reqMaxDepth-1) + strings.Repeat("]", reqMaxDepth-1)
	parse(t, epChat, `{"models":`+deep+`}`)
}

// TestNamedModelsAreNeverMissed puts a model into any member that names some, in any
// spelling, beside anything else.
func TestNamedModelsAreNeverMissed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		member := rapid.SampledFrom([]string{"models", "fallbacks", "fallback_models", "default_model", "model_list"}).Draw(rt, "member")
		value := rapid.SampledFrom([]string{`"x"`, `["a","x"]`, `[{"model":"x"}]`, `{"a":["x"]}`, `[[{"id":"x"}]]`}).Draw(rt, "value")
		body := `{"messages":[{"content":"hi"}],"` + respell(rt, member) + `":` + value + `,"model":"m"}`
		if got := parse(t, epChat, body).OtherModels; !slices.Contains(got, "x") {
			rt.Fatalf("%s: got %q", body, got)
		}
	})
}

func TestMembersThatSteerMustStandAtTheTop(t *testing.T) {
	for _, name := range []string{
		"model", "n", "stream", "stream_options", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens",
		"n_predict", "background", "max_new_tokens", "generationConfig", "num_predict", "extra_body",
	} {
		folded := strings.ToLower(name)
		for _, body := range []string{`{"extra_body":{"a":1,"` + name + `":1}}`, `{"litellm_params":{"` + strings.ToUpper(name) + `":1}}`} {
			if bad := refused(t, epChat, reqHeader, body); bad.Param != folded {
				t.Errorf("%s: got %+v", body, bad)
			}
		}
	}
	if bad := refused(t, Endpoint{API: BedrockConverse}, reqHeader, `{"additionalModelRequestFields":{"max_tokens":9}}`); bad.Param != "max_tokens" {
		t.Errorf("got %+v", bad)
	}
	parse(t, Endpoint{API: BedrockConverse}, `{"additionalModelRequestFields":{"top_k":9}}`)
	r := parse(t, epChat, `{"extra_body":{"instructions":"abcd","tools":[{"type":"web_search"}],"top_k":1}}`)
	if r.TextBytes < 4 || !r.External || r.Tools != 1 {
		t.Errorf("what stands in it does not count: %+v", r)
	}
}

func TestCapsCountOnlyWhereTheyAreKnown(t *testing.T) {
	const caps = `{"model":"m","max_tokens":1,"max_completion_tokens":1,"max_output_tokens":1,"n_predict":1,"max_tokens_to_sample":1}`
	for _, api := range []API{UnknownAPI, OpenAIImages, OpenAIAudio, OpenAIModerations, OpenAIEmbeddings, MistralOCR, CohereRerank, GeminiGenerate, OllamaChat} {
		r := parse(t, Endpoint{API: api}, caps)
		if r.Cap != 0 || r.CapImplied || r.OutputCap() != 0 {
			t.Errorf("%v: got a cap of %d", api, r.Cap)
		}
	}
	r := parse(t, identify(t, "POST", "/v1/complete", nil), caps)
	if _, ok := r.WriteCap([]byte(caps), 7); ok || r.Cap != 0 {
		t.Errorf("Anthropic's older API: got a cap of %d, written %v", r.Cap, ok)
	}
	if r := parse(t, epChat, caps); r.Cap != 1 {
		t.Errorf("chat: got a cap of %d, want 1", r.Cap)
	}
}

func TestParseRequestAllocatesNothingForModels(t *testing.T) {
	body := []byte(`{"model":"m","messages":[],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"provider":{"sort":"price"}}`)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := ParseRequest(epChat, reqHeader, body); err != nil {
			t.Fatal(err)
		}
	}); n > 4 {
		t.Errorf("got %v allocations, want at most 4", n)
	}
}
