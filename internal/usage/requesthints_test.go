package usage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestHintsOfRequests(t *testing.T) {
	images, speech := Endpoint{API: OpenAIImages}, Endpoint{API: OpenAIAudio}
	tests := []struct {
		name string
		ep   Endpoint
		body string
		want Hints
	}{
		{"a tier", epChat, `{"service_tier":"priority"}`, Hints{ServiceTier: "priority"}},
		{"a tier in an extra body", epChat, `{"extra_body":{"service_tier":"flex"}}`, Hints{ServiceTier: "flex"}},
		{"a tier of Google's", epGemini, `{"serviceTier":"flex"}`, Hints{ServiceTier: "flex"}},
		{"a tier with escapes", epChat, `{"service_tier":"fl\u0065x"}`, Hints{ServiceTier: "flex"}},
		{"no tier", epChat, `{"service_tier":null}`, Hints{}},
		{"a mode", epMessages, `{"speed":"fast"}`, Hints{Speed: "fast"}},
		{"the speed of speech", speech, `{"speed":1.25,"input":"a"}`, Hints{Characters: 1}},
		{"pictures", images, `{"size":"1024x1792","quality":"hd","n":3}`, Hints{ImageSize: "1024x1792", ImageQuality: "hd"}},
		{"speech", speech, `{"input":"T\u00fcr \ud83c\udf0a\n\"ü\""}`, Hints{Characters: 9}},
		{"text that is not spoken", epChat, `{"input":"abc"}`, Hints{}},
		{"options of a search", epChat, `{"web_search_options":{"search_context_size":"high"}}`, Hints{SearchContext: "high"}},
		{"options of no search", epChat, `{"web_search_options":{}}`, Hints{}},
		{
			"tools that search", epResponses,
			`{"tools":[{"type":"function","name":"f"},{"type":"web_search","search_context_size":"low"},{"type":"web_search_preview","search_context_size":"medium"},7]}`,
			Hints{SearchContext: "medium"},
		},
		{"a size that nobody sells", epResponses, `{"tools":[{"type":"web_search","search_context_size":"huge"}]}`, Hints{}},
		{"a tool of the client's", epResponses, `{"tools":[{"type":"function","search_context_size":"high"}]}`, Hints{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRequest(tt.ep, reqHeader, []byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if r.Hints != tt.want {
				t.Errorf("got %+v, want %+v", r.Hints, tt.want)
			}
		})
	}
}

func TestWordsThatDecideThePriceStandOnce(t *testing.T) {
	for body, param := range map[string]string{
		`{"service_tier":"flex","service_tier":"priority"}`:                "service_tier",
		`{"service_tier":"flex","extra_body":{"service_tier":"priority"}}`: "service_tier",
		`{"quality":"standard","Quality":"hd"}`:                            "quality",
		`{"size":"256x256","s\u0069ze":"1024x1024"}`:                       "size",
		`{"speed":"standard","speed":"fast"}`:                              "speed",
	} {
		_, err := ParseRequest(epChat, reqHeader, []byte(body))
		var bad *BadRequest
		if !errors.As(err, &bad) || bad.Param != param {
			t.Errorf("%s: got %v", body, err)
		}
	}
	for _, body := range []string{`{"speed":1,"speed":2}`, `{"size":null,"size":"1x1"}`} {
		if _, err := ParseRequest(epChat, reqHeader, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestTextInPlaceOfAWordIsText(t *testing.T) {
	const long = "This is no mode of any model but a prompt that somebody has hidden."
	r, err := ParseRequest(epChat, reqHeader, []byte(`{"speed":"`+long+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	if r.TextBytes != int64(len(long)) || r.Hints != (Hints{}) {
		t.Errorf("got %d bytes, %+v", r.TextBytes, r.Hints)
	}
}

func TestHintsOfForms(t *testing.T) {
	form := func(fields ...string) (h http.Header, body string) {
		for i := 0; i < len(fields); i += 2 {
			body += "--x\r\nContent-Disposition: form-data; name=\"" + fields[i] + "\"\r\n\r\n" + fields[i+1] + "\r\n"
		}
		return http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}, body + "--x--\r\n"
	}
	h, body := form("size", "512x512", "Quality", "low", "prompt", "a lighthouse")
	r, err := ParseRequest(Endpoint{API: OpenAIImages}, h, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Hints{ImageSize: "512x512", ImageQuality: "low"}); r.Hints != want {
		t.Errorf("got %+v, want %+v", r.Hints, want)
	}
	h, body = form("size", "512x512", "size", "1024x1024")
	if _, err := ParseRequest(Endpoint{API: OpenAIImages}, h, []byte(body)); err == nil {
		t.Error("a size that is given twice is taken")
	}
}

func TestCharactersAreCodePoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		raw := string(quoted[1 : len(quoted)-1])
		if rapid.Bool().Draw(t, "escaped") {
			var b strings.Builder
			for _, unit := range utf16.Encode([]rune(text)) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
			raw = b.String()
		}
		if got, want := reqCharacters([]byte(raw)), int64(utf8.RuneCountInString(text)); got != want {
			t.Fatalf("%s: got %d, want %d", raw, got, want)
		}
	})
}

func TestPresignedRequestsAreSigned(t *testing.T) {
	for query, want := range map[string]bool{
		"":                               false,
		"?X-Amz-Signature=ab":            true,
		"?a=b&X-Amz-Signature=ab&c=d":    true,
		"?X-Amz-Signature":               true,
		"?X%2DAmz%2DSignature=ab":        true,
		"?x-amz-signature=ab":            false,
		"?X-Amz-Date=20261101T000000Z":   false,
		"?X-Amz-SignatureX=ab":           false,
		"?note=X-Amz-Signature%3Dab":     false,
		"?X-Amz-Credential=a%2F20261101": false,
	} {
		ep := identify(t, http.MethodPost, "/model/m/converse"+query, nil)
		r, err := ParseRequest(ep, reqHeader, []byte(`{"messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		if r.Signed != want {
			t.Errorf("%q: got %v", query, r.Signed)
		}
		if _, ok := r.WriteCap([]byte(`{"messages":[]}`), 5); ok == want {
			t.Errorf("%q: got a cap written: %v", query, ok)
		}
	}
}
