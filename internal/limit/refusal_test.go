package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// sdkError is what a vendor's SDK makes of an answer.
type sdkError struct {
	kind    string // by which programs know it
	code    string
	message string
}

// sdks read an answer as the SDK of each dialect does.
var sdks = map[usage.Dialect]func(h http.Header, body []byte) (sdkError, error){
	usage.OpenAI: func(_ http.Header, body []byte) (sdkError, error) {
		var v struct {
			Error struct {
				Type, Code, Message string
				Param               *string
			}
			Message string
		}
		err := json.Unmarshal(body, &v)
		if v.Message != v.Error.Message { // Groq, Together, Cohere and Mistral show the outer one
			return sdkError{}, fmt.Errorf("the messages %q and %q differ", v.Message, v.Error.Message)
		}
		return sdkError{v.Error.Type, v.Error.Code, v.Error.Message}, err
	},
	usage.Anthropic: func(_ http.Header, body []byte) (sdkError, error) {
		var v struct {
			Type  string
			Error struct{ Type, Code, Message string }
		}
		err := json.Unmarshal(body, &v)
		if v.Type != "error" {
			return sdkError{}, fmt.Errorf("the type is %q", v.Type)
		}
		return sdkError{v.Error.Type, v.Error.Code, v.Error.Message}, err
	},
	usage.Gemini: func(_ http.Header, body []byte) (sdkError, error) {
		var v struct {
			Error struct {
				Code            int
				Status, Message string
			}
		}
		err := json.Unmarshal(body, &v)
		return sdkError{v.Error.Status, strconv.Itoa(v.Error.Code), v.Error.Message}, err
	},
	usage.Bedrock: func(h http.Header, body []byte) (sdkError, error) {
		var v struct{ Message string }
		err := json.Unmarshal(body, &v)
		return sdkError{h.Get("X-Amzn-Errortype"), "", v.Message}, err
	},
	usage.Ollama: func(_ http.Header, body []byte) (sdkError, error) {
		var v struct{ Error string } // an object would print as [object Object]
		err := json.Unmarshal(body, &v)
		return sdkError{"", "", v.Error}, err
	},
}

func TestRefusalsSpeakTheDialect(t *testing.T) {
	statuses := []int{400, 401, 403, 413, 415, 429, 503}
	kinds := map[usage.Dialect][]string{
		usage.OpenAI: {
			"invalid_request_error", "authentication_error", "permission_error", "invalid_request_error",
			"invalid_request_error", "rate_limit_exceeded", "service_unavailable",
		},
		usage.Anthropic: {
			"invalid_request_error", "authentication_error", "permission_error", "request_too_large",
			"invalid_request_error", "rate_limit_error", "overloaded_error",
		},
		usage.Gemini: {
			"INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT",
			"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
		},
		usage.Bedrock: {
			"ValidationException", "AccessDeniedException", "AccessDeniedException", "ValidationException",
			"ValidationException", "ThrottlingException", "ServiceUnavailableException",
		},
		usage.Ollama: {"", "", "", "", "", "", ""},
	}
	const message = `limit of "tokens" <per hour> reached`
	for dialect, wants := range kinds {
		for i, status := range statuses {
			t.Run(fmt.Sprintf("%s %d", dialect, status), func(t *testing.T) {
				w := httptest.NewRecorder()
				f := &Refusal{Status: status, Code: "some_code", Message: message}
				f.Write(w, dialect)

				if w.Code != status || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("got status %d and type %q", w.Code, w.Header().Get("Content-Type"))
				}
				if n := w.Header().Get("Content-Length"); n != strconv.Itoa(w.Body.Len()) {
					t.Errorf("got Content-Length %s of %d bytes", n, w.Body.Len())
				}
				got, err := sdks[dialect](w.Header(), w.Body.Bytes())
				if err != nil {
					t.Fatalf("%s: %v", w.Body, err)
				}
				code := map[usage.Dialect]string{usage.OpenAI: "some_code", usage.Anthropic: "some_code", usage.Gemini: strconv.Itoa(status)}[dialect]
				if want := (sdkError{wants[i], code, message}); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

func TestRefusalsOfOpenAINameTheParameterAndType(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refusal Refusal
		want    string
	}{
		{"no parameter", Refusal{Status: 429, Code: "c", Message: "m"}, `{"error":{"code":"c","message":"m","param":null,"type":"rate_limit_exceeded"},"message":"m"}`},
		{"a parameter", Refusal{Status: 400, Code: "c", Message: "m", Param: "stream"}, `{"error":{"code":"c","message":"m","param":"stream","type":"invalid_request_error"},"message":"m"}`},
		{"a type", Refusal{Status: 401, Code: "c", Message: "m", Type: "my_error"}, `{"error":{"code":"c","message":"m","param":null,"type":"my_error"},"message":"m"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			tc.refusal.Write(w, usage.OpenAI)
			if got := w.Body.String(); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestRefusalsSayWhenToComeBack(t *testing.T) {
	for _, tc := range []struct {
		name        string
		wait        time.Duration
		after, stop string
	}{
		{"waiting does not help", 0, "", ""},
		{"less than a second", time.Millisecond, "1", ""},
		{"part of a second more", 1001 * time.Millisecond, "2", ""},
		{"a minute", time.Minute, "60", ""},
		{"more than clients should sleep", time.Minute + time.Millisecond, "61", "false"},
		{"more than a timer holds", 31 * 24 * time.Hour, "2147483", "false"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := &Refusal{Status: 429, Code: "rate_limit_exceeded", Message: "m", RetryAfter: tc.wait}
			for _, dialect := range []usage.Dialect{usage.OpenAI, usage.Anthropic, usage.Gemini, usage.Bedrock, usage.Ollama} {
				w := httptest.NewRecorder()
				f.Write(w, dialect)
				if got := w.Header().Get("Retry-After"); got != tc.after {
					t.Errorf("%s: got Retry-After %q, want %q", dialect, got, tc.after)
				}
				if got := w.Header().Get("X-Should-Retry"); got != tc.stop {
					t.Errorf("%s: got x-should-retry %q, want %q", dialect, got, tc.stop)
				}
			}

			w := httptest.NewRecorder()
			f.Write(w, usage.Gemini)
			var v struct {
				Error struct {
					Details []struct {
						Type       string `json:"@type"`
						RetryDelay string
					}
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
				t.Fatal(err)
			}
			if tc.after == "" {
				if len(v.Error.Details) > 0 {
					t.Errorf("got the details %+v", v.Error.Details)
				}
				return
			}
			if d := v.Error.Details; len(d) != 1 || d[0].Type != "type.googleapis.com/google.rpc.RetryInfo" || d[0].RetryDelay != tc.after+"s" {
				t.Errorf("got the details %+v", d)
			}
		})
	}
}

func TestErrorsOfTheRequestBecomeRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		status int
		code   string
		param  string
	}{
		{"a bad body", &usage.BadRequest{Param: "model", Message: "twice"}, 400, "invalid_request", "model"},
		{"a bad body inside", fmt.Errorf("reading: %w", &usage.BadRequest{Message: "no JSON"}), 400, "invalid_request", ""},
		{"a large body", meter.ErrTooLarge, 413, "request_body_too_large", ""},
		{"a large body, decoded", fmt.Errorf("decoding: %w", usage.ErrBodyTooLarge), 413, "request_body_too_large", ""},
		{"a large body, by another handler's limit", fmt.Errorf("reading: %w", &http.MaxBytesError{Limit: 1}), 413, "request_body_too_large", ""},
		{"a large body, by Caddy's limit", caddyhttp.Error(413, errors.New("too large")), 413, "request_body_too_large", ""},
		{"an encoding nobody knows", fmt.Errorf("decoding: %w", usage.ErrUnknownEncoding), 415, "unsupported_content_encoding", ""},
		{"too many bodies", meter.ErrBusy, 503, "gateway_busy", ""},
		{"another error of Caddy's", caddyhttp.Error(500, errors.New("no")), 0, "", ""},
		{"a broken connection", errors.New("connection reset"), 0, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := RefusalOf(tc.err)
			if tc.status == 0 {
				if f != nil {
					t.Errorf("got %v", f)
				}
				return
			}
			if f == nil || f.Status != tc.status || f.Code != tc.code || f.Param != tc.param {
				t.Errorf("got %+v, want %d %s", f, tc.status, tc.code)
			}
			if gone := []int{413, 503}; f != nil && f.spent != slices.Contains(gone, tc.status) {
				t.Errorf("got spent %t", f.spent)
			}
		})
	}
}

func TestRefusalIsAnError(t *testing.T) {
	if got, want := (&Refusal{Code: "c", Message: "m"}).Error(), "c: m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
