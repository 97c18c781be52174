package usage

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

var (
	epChat        = Endpoint{API: OpenAIChat}
	epCompletions = Endpoint{API: OpenAICompletions}
	epResponses   = Endpoint{API: OpenAIResponses}
	epEmbeddings  = Endpoint{API: OpenAIEmbeddings}
	epMessages    = Endpoint{API: AnthropicMessages, Dialect: Anthropic}
	reqHeader     = http.Header{"Content-Type": {"application/json"}}
)

func parse(t *testing.T, ep Endpoint, body string) *Request {
	t.Helper()
	r, err := ParseRequest(ep, reqHeader, []byte(body))
	if err != nil {
		t.Fatalf("ParseRequest(%s) = %v", body, err)
	}
	return r
}

// refused returns the refusal of a body that must get one.
func refused(t *testing.T, ep Endpoint, h http.Header, body string) *BadRequest {
	t.Helper()
	r, err := ParseRequest(ep, h, []byte(body))
	var bad *BadRequest
	if !errors.As(err, &bad) {
		t.Fatalf("ParseRequest(%.100q) = %+v, %v, want a BadRequest", body, r, err)
	}
	return bad
}

func TestParseRequestReadsWhatSteersACall(t *testing.T) {
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want Request
	}{
		{"model and stream", epChat, `{"model":"gpt-5","stream":true}`, Request{Model: "gpt-5", Stream: true, Choices: 1}},
		{"model after the text", epChat, `{"messages":[],"model":"m"}`, Request{Model: "m", Choices: 1}},
		{"escaped model", epChat, `{"model":"a\/b\u00e9"}`, Request{Model: "a/bé", Choices: 1}},
		{"escaped member name", epChat, `{"mod\u0065l":"m"}`, Request{Model: "m", Choices: 1}},
		{
			"null is absent", epChat, `{"model":null,"stream":null,"n":null,"max_tokens":null,"stream_options":null,"background":null}`,
			Request{Choices: 1},
		},
		{"white space", epChat, " \r\n\t{ \"model\" : \"m\" , \"n\" : 2 } \n", Request{Model: "m", Choices: 2}},
		{"usage asked", epChat, `{"stream":true,"stream_options":{"include_usage":true}}`, Request{Stream: true, UsageAsked: true, Choices: 1}},
		{"usage not wanted", epChat, `{"stream":true,"stream_options":{"include_usage":false}}`, Request{Stream: true, Choices: 1}},
		{"background", epResponses, `{"background":true}`, Request{Background: true, Choices: 1}},
		{"larger cap of two", epChat, `{"max_tokens":1,"max_completion_tokens":10000}`, Request{Cap: 10000, Choices: 1}},
		{"whole floats", epChat, `{"max_tokens":16.0,"n":2e0}`, Request{Cap: 16, Choices: 2}},
		{"largest number", epChat, `{"max_tokens":9007199254740992}`, Request{Cap: 1 << 53, Choices: 1}},
		{"a foreign cap is none", epChat, `{"max_output_tokens":5}`, Request{Choices: 1}},
		{"a foreign cap beside a known one", epChat, `{"max_output_tokens":500,"max_tokens":5}`, Request{Cap: 500, Choices: 1}},
		{"responses cap", epResponses, `{"max_output_tokens":7}`, Request{Cap: 7, Choices: 1}},
		{"responses ignore max_tokens", epResponses, `{"max_tokens":7}`, Request{Choices: 1}},
		{"messages cap", epMessages, `{"max_tokens":7}`, Request{Cap: 7, Choices: 1}},
		{"legacy default", epCompletions, `{"prompt":"a"}`, Request{Cap: 16, CapImplied: true, Choices: 1, TextBytes: 1}},
		{"legacy cap", epCompletions, `{"max_tokens":3}`, Request{Cap: 3, Choices: 1}},
		{"llama.cpp's cap outranks", epChat, `{"max_tokens":3,"n_predict":90}`, Request{Cap: 90, Choices: 1}},
		{"llama.cpp without end", epChat, `{"max_tokens":3,"n_predict":-1}`, Request{Choices: 1}},
		{"best_of", epCompletions, `{"n":2,"best_of":5,"max_tokens":1}`, Request{Cap: 1, Choices: 5}},
		{"zero choices are one", epChat, `{"n":0}`, Request{Choices: 1}},
		{
			"prompts multiply", epCompletions, `{"prompt":["a","b","c"],"n":2,"max_tokens":1}`,
			Request{Cap: 1, Choices: 6, TextBytes: 3},
		},
		{
			"one prompt of ids", epCompletions, `{"prompt":[1,2,3],"max_tokens":1}`,
			Request{Cap: 1, Choices: 1, PromptIDs: 3},
		},
		{
			"prompts of ids", epCompletions, `{"prompt":[[1,2],[3]],"max_tokens":1}`,
			Request{Cap: 1, Choices: 2, PromptIDs: 3},
		},
		{"prompt in another case", epCompletions, `{"Prompt":["a","b"],"max_tokens":1}`, Request{Cap: 1, Choices: 2, TextBytes: 2}},
		{"messages are no prompts", Endpoint{}, `{"messages":["a","b"]}`, Request{Choices: 1, Messages: 2, TextBytes: 2}},
		{"model of the path", Endpoint{API: OpenAIChat, Model: "dep"}, `{"model":"m"}`, Request{Model: "dep", BodyModel: "m", Choices: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := *parse(t, tt.ep, tt.body)
			got.Endpoint, got.edit, got.markup = Endpoint{}, reqEdit{}, 0
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestParseRequestRefuses(t *testing.T) {
	tests := []struct {
		name, param, body string
	}{
		{"nothing", "", ``},
		{"white space", "", `  `},
		{"an array", "", `[{"model":"a"}]`},
		{"a string", "", `"model"`},
		{"a byte order mark", "", "\ufeff{}"},
		{"text", "", `model=a`},
		{"another value behind", "", `{"model":"a"} {"model":"b"}`},
		{"a brace behind", "", `{"model":"a"}}`},
		{"a NUL behind", "", "{\"model\":\"a\"}\x00"},
		{"an end that is missing", "", `{"model":"a"`},
		{"an open string", "", `{"model":"a`},
		{"a comma before the end", "", `{"model":"a",}`},
		{"a comma first", "", `{,"model":"a"}`},
		{"a comma before an array's end", "", `{"messages":[1,]}`},
		{"no comma", "", `{"model":"a" "n":1}`},
		{"a comment", "", `{/* */"model":"a"}`},
		{"single quotes", "", `{'model':'a'}`},
		{"a bare name", "", `{model:"a"}`},
		{"NaN", "", `{"temperature":NaN}`},
		{"a leading zero", "", `{"temperature":01}`},
		{"a plus", "", `{"temperature":+1}`},
		{"a point without digits", "", `{"temperature":1.}`},
		{"an exponent without digits", "", `{"temperature":1e}`},
		{"a minus without digits", "", `{"temperature":-}`},
		{"True", "", `{"stream_it":True}`},
		{"a newline in a string", "", "{\"model\":\"a\nb\"}"},
		{"a bad escape", "", `{"model":"\x41"}`},
		{"a short escape", "", `{"model":"\u12"}`},
		{"model twice", "model", `{"model":"a","model":"b"}`},
		{"model twice, alike", "model", `{"model":"a","model":"a"}`},
		{"model twice, one null", "model", `{"model":null,"model":"b"}`},
		{"model twice, one escaped", "model", `{"model":"a","mod\u0065l":"b"}`},
		{"model in capitals", "model", `{"MODEL":"a"}`},
		{"model in two cases", "model", `{"model":"a","Model":"b"}`},
		{"model in an escaped capital", "model", `{"\u004dodel":"a"}`},
		{"stream with a long s", "stream", `{"ſtream":true}`},
		{"stream with an escaped long s", "stream", `{"\u017ftream":true}`},
		{"max_tokens with a Kelvin sign", "max_tokens", "{\"max_to\u212aens\":1}"},
		{"background with an escaped Kelvin sign", "background", `{"bac\u212aground":true}`},
		{"stream twice", "stream", `{"stream":true,"stream":false}`},
		{"options twice", "stream_options", `{"stream_options":{},"stream_options":{}}`},
		{"n twice", "n", `{"n":1,"n":2}`},
		{"N", "n", `{"N":1}`},
		{"best_of twice", "best_of", `{"best_of":1,"best_of":2}`},
		{"max_tokens twice", "max_tokens", `{"max_tokens":1,"max_tokens":2}`},
		{"max_completion_tokens twice", "max_completion_tokens", `{"max_completion_tokens":1,"max_completion_tokens":2}`},
		{"max_output_tokens twice", "max_output_tokens", `{"max_output_tokens":1,"max_output_tokens":2}`},
		{"background twice", "background", `{"background":true,"background":false}`},
		{"include_usage twice", "include_usage", `{"stream_options":{"include_usage":true,"include_usage":false}}`},
		{"include_usage in capitals", "include_usage", `{"stream_options":{"Include_Usage":true}}`},
		{"model a number", "model", `{"model":1}`},
		{"model an object", "model", `{"model":{"model":"a"}}`},
		{"model not UTF-8", "model", "{\"model\":\"a\xff\"}"},
		{"model with half a surrogate", "model", `{"model":"a\ud800"}`},
		{"stream a string", "stream", `{"stream":"true"}`},
		{"stream a number", "stream", `{"stream":1}`},
		{"options a list", "stream_options", `{"stream_options":[]}`},
		{"include_usage a string", "include_usage", `{"stream_options":{"include_usage":"yes"}}`},
		{"cap a string", "max_tokens", `{"max_tokens":"5"}`},
		{"cap a boolean", "max_tokens", `{"max_tokens":true}`},
		{"cap negative", "max_tokens", `{"max_tokens":-1}`},
		{"cap a negative zero", "max_tokens", `{"max_tokens":-0}`},
		{"cap in fractions", "max_tokens", `{"max_tokens":1.5}`},
		{"cap in small fractions", "max_tokens", `{"max_tokens":1.0000000000000000000000001}`},
		{"cap too large", "max_tokens", `{"max_tokens":9007199254740993}`},
		{"cap far too large", "max_tokens", `{"max_tokens":1e999999999999999999}`},
		{"cap too large in exponents", "max_tokens", `{"max_tokens":1e300}`},
		{"n in fractions", "n", `{"n":25e-1}`},
		{"background a string", "background", `{"background":"true"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := refused(t, epChat, reqHeader, tt.body)
			if bad.Param != tt.param {
				t.Errorf("param %q, want %q (%s)", bad.Param, tt.param, bad.Message)
			}
			if bad.Message == "" {
				t.Error("no message")
			}
		})
	}
}

func TestRefusalsRepeatNothingOfTheBody(t *testing.T) {
	for _, body := range []string{
		`{"sekret":`, `{"model":"sekret","model":""}`, `sekret`, `{"model":{"sekret":1}}`, `{"n":"sekret"}`, `{}sekret`,
	} {
		if bad := refused(t, epChat, reqHeader, body); strings.Contains(bad.Message+bad.Param, "sekret") {
			t.Errorf("%s: %q repeats the body", body, bad.Message)
		}
	}
}

func TestParseRequestBoundsNesting(t *testing.T) {
	nest := func(n int) string {
		return `{"messages":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	parse(t, epChat, nest(reqMaxDepth))
	refused(t, epChat, reqHeader, nest(reqMaxDepth+1))
	for _, open := range []string{`{"a":`, `[`} {
		for _, in := range []string{"messages", "metadata", "tools", "x"} {
			refused(t, epChat, reqHeader, `{"`+in+`":`+strings.Repeat(open, 100_000))
		}
	}
}

func TestParseRequestByContentType(t *testing.T) {
	const twice = `{"model":"a","model":"b"}`
	unknown := Endpoint{}
	free := Endpoint{Class: Free}
	tests := []struct {
		name  string
		ep    Endpoint
		types []string
		body  string
		bad   bool
		model string
		text  int64
	}{
		{"known API, any type", epChat, []string{"text/plain"}, `{"model":"a"}`, false, "a", 0},
		{"known API is JSON", epChat, []string{"text/plain"}, `hello`, true, "", 0},
		{"known API in a form", epChat, []string{"multipart/form-data; boundary=b"}, "--b\r\n", true, "", 0},
		{"unknown API, JSON", unknown, []string{"application/json; charset=utf-8"}, `{"model":"a"}`, false, "a", 0},
		{"unknown API, JSON of a vendor", unknown, []string{"application/vnd.x+json"}, `[1]`, true, "", 0},
		{"unknown API, bad JSON", unknown, []string{"application/json"}, `hello`, true, "", 0},
		{"unknown API, bytes", unknown, []string{"audio/wav"}, `RIFF`, false, "", 4},
		{"unknown API, JSON by its look", unknown, nil, ` {"model":"a"}`, false, "a", 0},
		{"unknown API, ambiguous by its look", unknown, nil, twice, true, "", 0},
		{"unknown API, only like JSON", unknown, []string{"text/plain"}, `{ hello`, false, "", 7},
		{"unknown API, no body", unknown, []string{"application/json"}, ``, false, "", 0},
		{"two types", unknown, []string{"application/json", "text/plain"}, `{}`, true, "", 0},
		{"free, not JSON", free, []string{"application/json"}, `hello`, false, "", 5},
		{"free, an array", free, []string{"application/json"}, `[1]`, false, "", 3},
		{"free, still ambiguous", free, []string{"application/json"}, twice, true, "", 0},
		{"free poll of a known API", Endpoint{API: OpenAIResponses, Class: Free}, nil, ``, false, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, http.Header{"Content-Type": tt.types}, []byte(tt.body))
			if (err != nil) != tt.bad {
				t.Fatalf("error %v, want one: %t", err, tt.bad)
			}
			if err == nil && (r.Model != tt.model || r.TextBytes != tt.text) {
				t.Errorf("got model %q, text %d; want %q, %d", r.Model, r.TextBytes, tt.model, tt.text)
			}
		})
	}
}

func TestSignedRequestsAreSeen(t *testing.T) {
	h := http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=x"}}
	r, err := ParseRequest(epChat, h, []byte(`{"stream":true}`))
	if err != nil || !r.Signed {
		t.Fatalf("got %+v, %v, want a signed request", r, err)
	}
	body := []byte(`{"stream":true}`)
	if _, ok := r.AskUsage(body); ok {
		t.Error("AskUsage edited a signed body")
	}
	if _, ok := r.WriteCap(body, 5); ok {
		t.Error("WriteCap edited a signed body")
	}
}

func TestAFailedRequestSaysNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		ep   Endpoint
		body string
		ok   bool
	}{
		{"twice the model", epChat, `{"model":"m","messages":[{"content":"text"}],"model":"n"}`, false},
		{"no JSON", epChat, `{"model":"m","messages":[{"content":"text"}]`, false},
		{"no JSON where nothing is spent", Endpoint{API: OpenAIModerations, Class: Free}, `{"model":"m","input":"text"`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r, want Request
			if tc.ok {
				want.begin(tc.ep, reqHeader)
				want.TextBytes = int64(len(tc.body))
			}
			if err := r.Parse(tc.ep, reqHeader, []byte(tc.body)); (err == nil) != tc.ok {
				t.Fatalf("got the error %v", err)
			}
			if !reflect.DeepEqual(r, want) {
				t.Errorf("got %+v, want %+v", r, want)
			}
		})
	}
}
