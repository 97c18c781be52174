package integration

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestSDKsGetTheSameThroughTheGateway(t *testing.T) {
	t.Parallel()
	s := startSDK(t, everyRule, "")

	var direct, through map[string]json.RawMessage
	application{addr: s.direct, openAIKey: keyProvider, anthropicKey: keyProvider}.run(t, &direct, "calls.mjs")
	wantServed := s.provider.take("v1")
	application{addr: s.addr, openAIKey: keyA, anthropicKey: keyA}.run(t, &through, "calls.mjs")
	served := s.provider.take("v1")

	if len(direct) < 20 || len(direct) != len(through) {
		t.Fatalf("%d calls directly, %d through the gateway", len(direct), len(through))
	}
	for name, want := range direct {
		t.Run(name, func(t *testing.T) {
			if bytes.Contains(want, []byte(`"failed":`)) {
				t.Fatalf("without the gateway: %s", want)
			}
			if got := through[name]; !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	t.Run("usage chunk only if asked for", func(t *testing.T) {
		for name, want := range map[string]bool{
			"chat stream": false, "chat stream without usage by name": false, "chat helper": false, "completion stream": false,
			"chat stream with usage": true, "chat helper with usage": true, "completion stream with usage": true,
		} {
			if got := bytes.Contains(through[name], []byte(`"prompt_tokens"`)); got != want {
				t.Errorf("%s: usage %t, want %t", name, got, want)
			}
		}
	})

	t.Run("counted as served", func(t *testing.T) {
		if served != wantServed {
			t.Errorf("the provider served %+v, and %+v without the gateway", served, wantServed)
		}
		s.charged(t, "app-a", served)
	})
	t.Run("key stays here", func(t *testing.T) { s.keyStays(t, keyA) })
}

// attempt is a call as the application that made it sees it.
type attempt struct {
	OK       string
	Statuses []int // of all requests, retries included
	Error    *sdkError
}

type sdkError struct {
	Class, Code, Type, Message, ShouldRetry string
	Status, RetryAfter                      int
}

// refusal is what each of the calls of refused.mjs must come to.
type refusal struct {
	class, code               string
	status                    int
	openAIType, anthropicType string
	message                   string // or a part of it
	waits                     bool   // for longer than a client's own retries should
}

func (f refusal) check(t *testing.T, got map[string]attempt) {
	t.Helper()
	if len(got) != 4 {
		t.Fatalf("%d calls, want 4: %v", len(got), got)
	}
	for name, a := range got {
		wantType := f.openAIType
		if strings.HasPrefix(name, "anthropic") {
			wantType = f.anthropicType
		}
		switch e := a.Error; {
		case e == nil:
			t.Errorf("%s: was let through: %+v", name, a)
		case e.Class != f.class || e.Status != f.status || e.Code != f.code || e.Type != wantType:
			t.Errorf("%s: got %+v, want %+v", name, *e, f)
		case !strings.Contains(e.Message, f.message):
			t.Errorf("%s: message %q does not say %q", name, e.Message, f.message)
		case f.waits && (e.RetryAfter <= 60 || e.ShouldRetry != "false"):
			t.Errorf("%s: wait %d s, try again: %q", name, e.RetryAfter, e.ShouldRetry)
		case len(a.Statuses) != 1:
			t.Errorf("%s: tried %d times, statuses %v", name, len(a.Statuses), a.Statuses)
		}
	}
}

// refusals are what calls with each key come to, after A has used up its limit.
var refusals = []struct {
	name, key string
	want      refusal
}{
	{"over the limit for long", keyA, refusal{
		class: "RateLimitError", status: 429, code: "rate_limit_exceeded",
		openAIType: "rate_limit_exceeded", anthropicType: "rate_limit_error",
		message: "limit of tokens per 3650d reached", waits: true,
	}},
	{"unknown key", keyUnknown, refusal{
		class: "AuthenticationError", status: 401, code: "invalid_api_key",
		openAIType: "authentication_error", anthropicType: "authentication_error",
		message: "invalid API key",
	}},
	{"model that the key may not use", keyUnbound, refusal{
		class: "PermissionDeniedError", status: 403, code: "model_not_allowed",
		openAIType: "permission_error", anthropicType: "permission_error",
		message: "may not use the model",
	}},
}

func TestSDKsRaiseTheirErrorsAndDoNotInsist(t *testing.T) {
	t.Parallel()
	s := startSDK(t, "limit 1000 tokens per 3650d", "")
	if a := s.chat(keyA); a.Status != http.StatusOK {
		t.Fatalf("the call that uses up the limit: %d: %s", a.Status, a.Body)
	}
	before := s.up.calls()
	const noRetries = "without retries"
	options := map[string]any{noRetries: map[string]any{"apiKey": keyA, "maxRetries": 0}}
	for _, tt := range refusals {
		options[tt.name] = map[string]any{"apiKey": tt.key}
	}
	arg, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]attempt
	application{addr: s.addr}.run(t, &got, "refused.mjs", string(arg))

	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, got[tt.name]) })
	}
	t.Run(noRetries, func(t *testing.T) { refusals[0].want.check(t, got[noRetries]) })
	if n := s.up.calls() - before; n != 0 {
		t.Errorf("%d calls that were refused reached the provider", n)
	}
}

func TestSDKsWaitOutAShortLimit(t *testing.T) {
	t.Parallel()
	s := startSDK(t, "limit 1 requests per 2s", "")
	var got map[string][]attempt
	application{addr: s.addr, openAIKey: keyA, anthropicKey: keyB}.run(t, &got, "patient.mjs")
	checkPatience(t, s, got)
}

// checkPatience wants all calls of both SDKs to succeed, and one of each to have waited.
func checkPatience(t *testing.T, s *sdkSetup, got map[string][]attempt) {
	t.Helper()
	calls := 0
	for _, sdk := range []string{"openai", "anthropic"} {
		retried := false
		for i, a := range got[sdk] {
			calls++
			refused := a.Statuses[:max(len(a.Statuses)-1, 0)]
			if a.Error != nil || a.OK == "" || slices.ContainsFunc(refused, func(s int) bool { return s != 429 }) {
				t.Errorf("%s, call %d: %+v, error %+v", sdk, i+1, a, a.Error)
			}
			retried = retried || len(refused) > 0
		}
		if !retried {
			t.Errorf("%s: none of %d calls had to wait", sdk, len(got[sdk]))
		}
	}
	if n := s.up.calls(); n != calls {
		t.Errorf("the provider was called %d times for %d calls", n, calls)
	}
}
