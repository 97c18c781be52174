package limit

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Refusal is an answer of ours in place of the provider's.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Code says what is wrong, for programs: `rate_limit_exceeded`.
	Code string
	// Type is the class of the error in OpenAI's words; all other dialects have
	// theirs from the status. The default follows from the status, too.
	Type string
	// Message says it for people. It must hold no secret and no bytes of a client's.
	Message string
	// Param names the member of the request that is wrong, if one is.
	Param string
	// RetryAfter is when it may be tried again; 0 if waiting does not help.
	RetryAfter time.Duration

	// What was violated, for placeholders; nil if no rule was.
	violation *violation
	// The body has been read in part, so that the call cannot go on.
	spent bool
}

// Error implements error.
func (f *Refusal) Error() string { return f.Code + ": " + f.Message }

// maxPatience is the longest wait that a client's own retries should sit out.
const maxPatience = time.Minute

// Write answers in the dialect of the API that was called, so that its SDK raises
// the error that it has for the status.
func (f *Refusal) Write(w http.ResponseWriter, d usage.Dialect) {
	h := w.Header()
	f.headers(h)
	h.Set("Content-Type", "application/json")
	if d == usage.Bedrock {
		h.Set("X-Amzn-Errortype", bedrockType(f.Status))
	}
	body, err := json.Marshal(f.body(d))
	if err != nil {
		body = []byte(`{"error":{"message":"` + f.Code + `"}}`)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // the client may have gone; there is nothing else to tell it
}

func (f *Refusal) headers(h http.Header) {
	if f.RetryAfter <= 0 {
		return
	}
	h.Set("Retry-After", strconv.FormatInt(seconds(f.RetryAfter), 10))
	if f.RetryAfter > maxPatience {
		// the SDKs of OpenAI and Anthropic would otherwise sleep for the whole window
		h.Set("X-Should-Retry", "false")
	}
}

func (f *Refusal) body(d usage.Dialect) any {
	switch d {
	case usage.Anthropic:
		return map[string]any{
			"type":  "error",
			"error": map[string]any{"type": f.anthropicType(), "code": f.Code, "message": f.Message},
		}
	case usage.Gemini:
		e := map[string]any{"code": f.Status, "message": f.Message, "status": googleStatus(f.Status)}
		if f.RetryAfter > 0 {
			e["details"] = []any{map[string]any{
				"@type":      "type.googleapis.com/google.rpc.RetryInfo",
				"retryDelay": strconv.FormatInt(seconds(f.RetryAfter), 10) + "s",
			}}
		}
		return map[string]any{"error": e}
	case usage.Bedrock:
		return map[string]any{"message": f.Message}
	case usage.Ollama:
		return map[string]any{"error": f.Message}
	default:
		var param any
		if f.Param != "" {
			param = f.Param
		}
		// `message` beside `error` is what Cohere's and Mistral's SDKs show
		return map[string]any{
			"error":   map[string]any{"type": f.openAIType(), "code": f.Code, "message": f.Message, "param": param},
			"message": f.Message,
		}
	}
}

func (f *Refusal) openAIType() string {
	if f.Type != "" {
		return f.Type
	}
	switch f.Status {
	case http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusServiceUnavailable:
		return "service_unavailable"
	default:
		return "invalid_request_error"
	}
}

// anthropicType is the type by the status, as Anthropic's list of errors has it.
func (f *Refusal) anthropicType() string {
	switch f.Status {
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	default:
		return "invalid_request_error"
	}
}

// googleStatus is the canonical code of google.rpc for an HTTP status.
func googleStatus(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	default:
		return "INVALID_ARGUMENT"
	}
}

// bedrockType is the exception by which the AWS SDKs know an error.
func bedrockType(status int) string {
	switch status {
	case http.StatusTooManyRequests:
		return "ThrottlingException"
	case http.StatusUnauthorized, http.StatusForbidden:
		return "AccessDeniedException"
	case http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	default:
		return "ValidationException"
	}
}

// RefusalOf turns an error of the meter's into an answer. It returns nil for an
// error that is not about the request: Caddy answers those.
func RefusalOf(err error) *Refusal {
	if err == nil {
		return nil // as nearly always: what follows allocates
	}
	var (
		bad     *usage.BadRequest
		maxSize *http.MaxBytesError
		he      caddyhttp.HandlerError
	)
	switch {
	case errors.As(err, &bad):
		return &Refusal{Status: http.StatusBadRequest, Code: "invalid_request", Message: bad.Message, Param: bad.Param}
	case errors.Is(err, meter.ErrTooLarge), errors.Is(err, usage.ErrBodyTooLarge), errors.As(err, &maxSize),
		errors.As(err, &he) && he.StatusCode == http.StatusRequestEntityTooLarge:
		return &Refusal{
			Status: http.StatusRequestEntityTooLarge, Code: "request_body_too_large",
			Message: "the request body is larger than this gateway reads", spent: true,
		}
	case errors.Is(err, usage.ErrUnknownEncoding):
		return &Refusal{Status: http.StatusUnsupportedMediaType, Code: "unsupported_content_encoding", Message: "the request body has a content encoding that this gateway cannot read"}
	case errors.Is(err, meter.ErrBusy):
		return &Refusal{
			Status: http.StatusServiceUnavailable, Code: "gateway_busy",
			Message: "the gateway holds too many requests at this moment", RetryAfter: time.Second, spent: true,
		}
	}
	return nil
}
