package usage

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/tidwall/gjson"
)

func TestSetModelChangesNothingButTheModel(t *testing.T) {
	for _, tt := range []struct {
		name, body, want string
	}{
		{"first", `{"model":"a","n":1}`, `{"model":"b\"c","n":1}`},
		{"last, with white space", "{ \"n\" : 1 ,\n \"model\" :\t\"a\" }", "{ \"n\" : 1 ,\n \"model\" :\t\"b\\\"c\" }"},
		{"one further in stays", `{"tools":[{"model":"x"}],"model":"a","meta":{"model":"y"}}`, `{"tools":[{"model":"x"}],"model":"b\"c","meta":{"model":"y"}}`},
		{"text that looks like one", `{"prompt":"\"model\":\"x\"","model":"a"}`, `{"prompt":"\"model\":\"x\"","model":"b\"c"}`},
		{"none", `{"n":1}`, ""},
		{"null", `{"model":null}`, ""},
		{"no object", `["model"]`, ""},
		{"a form", "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--x--", ""},
		{"empty", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := withModel(tt.body, `b"c`)
			if ok != (tt.want != "") {
				t.Fatalf("ok = %t", ok)
			}
			if want := tt.want; ok && string(got) != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// withModel is a body with another model in it.
func withModel(body, model string) ([]byte, bool) {
	before, name, after, ok := SetModel([]byte(body), model)
	return slices.Concat(before, name, after), ok
}

func TestSetModelOfAPath(t *testing.T) {
	for _, tt := range []struct {
		name, path, model, want string
	}{
		{"Gemini", "/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash:generateContent"},
		{"Azure", "/openai/deployments/prod/chat/completions", "spare", "/openai/deployments/spare/chat/completions"},
		{"Bedrock", "/model/anthropic.claude-v2%3A1/converse", "arn:aws:bedrock/x", "/model/arn:aws:bedrock%2Fx/converse"},
		{"a prefix of the same name", "/models/models/gemini:generateContent", "b", "/models/models/b:generateContent"},
		{"none", "/v1/chat/completions", "b", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := url.Parse(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			ep := Identify(http.MethodPost, u, http.Header{})
			if ok := ep.SetModel(u, tt.model); ok != (tt.want != "") {
				t.Fatalf("ok = %t for the model %q", ok, ep.Model)
			}
			if tt.want == "" {
				return
			}
			if got := u.EscapedPath(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if again := Identify(http.MethodPost, u, http.Header{}); again.API != ep.API {
				t.Errorf("it is another API then: %s", again.API)
			}
		})
	}
}

// FuzzSetModel looks for bodies that say something else afterwards.
func FuzzSetModel(f *testing.F) {
	f.Add(`{"model":"a","stream":true}`, "b")
	f.Add(`{"model":"a"}`, "b\xc0\x14")
	f.Add(`{"x":{"model":1},"model":"\u0061"}`, `"`)
	f.Fuzz(func(t *testing.T, body, model string) {
		ep := Endpoint{API: OpenAIChat, Class: Spending}
		before, err := ParseRequest(ep, http.Header{}, []byte(body))
		if err != nil {
			return
		}
		out, ok := withModel(body, model)
		if !ok {
			return
		}
		after, err := ParseRequest(ep, http.Header{}, out)
		if err != nil {
			t.Fatalf("%q became %q: %v", body, out, err)
		}
		if got := gjson.GetBytes(out, "model").String(); gjson.Valid(body) && after.Model != got {
			t.Errorf("%q became %q, of which the model is %q", body, out, after.Model)
		}
		if before.Stream != after.Stream || before.Cap != after.Cap || before.TextBytes != after.TextBytes {
			t.Errorf("%q became %q, which asks for something else", body, out)
		}
	})
}
