package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	keyProvider = "sk-provider-own-key"
	keyUnknown  = "sk-test-nobody-issued"

	// sdkPatience bounds a script, which takes a second or two.
	sdkPatience = time.Minute
)

// sdkSite is a gateway in front of both providers. It has keys for two applications
// and one for a key that may use no model of the scripts; {limits} are those of each.
// Windows that are not to end during a test have 3650 days: the next is over in 2029.
const sdkSite = `{site} {
	api_key_auth {
		key a {hash-a} {
			application app-a
		}
		key b {hash-b} {
			application app-b
		}
		key c {hash-c} {
			application app-c
			models llama*
		}
	}
	token_limit {name}{run} {
		consumer_based
		{limits}
	}
	reverse_proxy /v1/messages* {upstream} {
		header_up X-Api-Key ` + keyProvider + `
	}
	reverse_proxy {upstream} {
		header_up Authorization "Bearer ` + keyProvider + `"
	}
}`

// sdkSetup is a gateway in front of a provider that speaks both APIs.
type sdkSetup struct {
	*gateway
	up       *upstream
	provider *provider
	run      string // of this setup alone, so that a test may be repeated in a process
}

// sdkRuns numbers the setups.
var sdkRuns atomic.Int64

func startSDK(t *testing.T, limits string) *sdkSetup {
	t.Helper()
	s := &sdkSetup{provider: &provider{key: keyProvider}, run: fmt.Sprintf("-%d", sdkRuns.Add(1))}
	s.up = newUpstream(t, s.provider.ServeHTTP)
	s.gateway = start(t, s.up, strings.NewReplacer(
		"{hash-a}", keyHash(keyA), "{hash-b}", keyHash(keyB), "{hash-c}", keyHash(keyUnbound),
		"{run}", s.run, "{limits}", limits,
	).Replace(sdkSite))
	return s
}

// used is what is charged to application A under a rule.
func (s *sdkSetup) used(rule string) row {
	s.t.Helper()
	return s.gateway.used(s.run, "app-a", rule)
}

func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// application is how a script is set up: where it calls, with which keys.
type application struct {
	addr                    string // host:port of the provider or of the gateway
	openAIKey, anthropicKey string
}

// run runs a script of the folder sdk and reads what it prints. It fails, and does
// not skip, where the SDKs are missing: else nobody would notice that they are.
func (a application) run(t *testing.T, into any, script string, args ...string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("node is needed to run the SDKs: install it, then `npm ci --prefix integration/sdk`: %v", err)
	}
	for _, sdk := range []string{"openai", "@anthropic-ai/sdk"} {
		if _, err := os.Stat("sdk/node_modules/" + sdk + "/package.json"); err != nil {
			t.Fatalf("the SDKs are not installed: run `npm ci --prefix integration/sdk`: %v", err)
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), sdkPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append([]string{script}, args...)...)
	cmd.Dir = "sdk"
	// the variables and files of whoever runs the test may hold other addresses and keys
	cmd.Env = []string{
		"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"),
		"OPENAI_BASE_URL=http://" + a.addr + "/v1", "OPENAI_API_KEY=" + a.openAIKey,
		"ANTHROPIC_BASE_URL=http://" + a.addr, "ANTHROPIC_API_KEY=" + a.anthropicKey,
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node %s: %v (%v)\n%s", script, err, context.Cause(ctx), stderr.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("node %s: %v in %s", script, err, out)
	}
}

func TestSDKsGetTheSameThroughTheGateway(t *testing.T) {
	s := startSDK(t, `
		limit 1000 requests per 3650d
		limit 1M tokens per 3650d
		limit 1M input_tokens per 3650d
		limit 1M output_tokens per 3650d
		limit 1M uncached_tokens per 3650d`)

	var direct, through map[string]json.RawMessage
	application{addr: s.up.addr, openAIKey: keyProvider, anthropicKey: keyProvider}.run(t, &direct, "calls.mjs")
	wantServed := s.provider.take()
	application{addr: s.addr, openAIKey: keyA, anthropicKey: keyA}.run(t, &through, "calls.mjs")
	served := s.provider.take()

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
		// the last bytes of an answer may be with the client before the call is charged
		eventually(t, "settled", func() bool { return s.used("tokens per 3650d").Reserved == 0 })
		for rule, want := range map[string]int64{
			"requests per 3650d":        served.Requests,
			"tokens per 3650d":          served.Input + served.Output,
			"input_tokens per 3650d":    served.Input,
			"output_tokens per 3650d":   served.Output,
			"uncached_tokens per 3650d": served.Input + served.Output - served.CacheRead,
		} {
			if got := s.used(rule).Used; got != want {
				t.Errorf("%s: %d, the provider served %d", rule, got, want)
			}
		}
	})
	t.Run("key stays here", func(t *testing.T) {
		for _, seen := range s.up.requests {
			text, err := json.Marshal(seen)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte(keyA)) {
				t.Errorf("the provider got the gateway's key: %s", text)
			}
		}
	})
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

func (want refusal) check(t *testing.T, got map[string]attempt) {
	t.Helper()
	if len(got) != 4 {
		t.Fatalf("%d calls, want 4: %v", len(got), got)
	}
	for name, a := range got {
		wantType := want.openAIType
		if strings.HasPrefix(name, "anthropic") {
			wantType = want.anthropicType
		}
		switch e := a.Error; {
		case e == nil:
			t.Errorf("%s: was let through: %+v", name, a)
		case e.Class != want.class || e.Status != want.status || e.Code != want.code || e.Type != wantType:
			t.Errorf("%s: got %+v, want %+v", name, *e, want)
		case !strings.Contains(e.Message, want.message):
			t.Errorf("%s: message %q does not say %q", name, e.Message, want.message)
		case want.waits && (e.RetryAfter <= 60 || e.ShouldRetry != "false"):
			t.Errorf("%s: wait %d s, try again: %q", name, e.RetryAfter, e.ShouldRetry)
		case len(a.Statuses) != 1:
			t.Errorf("%s: tried %d times, statuses %v", name, len(a.Statuses), a.Statuses)
		}
	}
}

func TestSDKsRaiseTheirErrorsAndDoNotInsist(t *testing.T) {
	overLimit := refusal{
		class: "RateLimitError", status: 429, code: "rate_limit_exceeded",
		openAIType: "rate_limit_exceeded", anthropicType: "rate_limit_error",
		message: "limit of tokens per 3650d reached", waits: true,
	}
	tests := []struct {
		name    string
		options string // of the clients
		want    refusal
	}{
		{"over the limit without retries", `{"apiKey":"` + keyA + `","maxRetries":0}`, overLimit},
		{"over the limit for long", `{"apiKey":"` + keyA + `"}`, overLimit},
		{"unknown key", `{"apiKey":"` + keyUnknown + `"}`, refusal{
			class: "AuthenticationError", status: 401, code: "invalid_api_key",
			openAIType: "authentication_error", anthropicType: "authentication_error",
		}},
		{"model that the key may not use", `{"apiKey":"` + keyUnbound + `"}`, refusal{
			class: "PermissionDeniedError", status: 403, code: "model_not_allowed",
			openAIType: "permission_error", anthropicType: "permission_error",
		}},
	}

	s := startSDK(t, "limit 1000 tokens per 3650d")
	if a := s.chat(keyA); a.Status != http.StatusOK {
		t.Fatalf("the call that uses up the limit: %d: %s", a.Status, a.Body)
	}
	before := s.up.calls()
	options := make(map[string]json.RawMessage)
	for _, tt := range tests {
		options[tt.name] = json.RawMessage(tt.options)
	}
	arg, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]map[string]attempt
	application{addr: s.addr}.run(t, &got, "refused.mjs", string(arg))

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.want.check(t, got[tt.name]) })
	}
	if n := s.up.calls() - before; n != 0 {
		t.Errorf("%d calls that were refused reached the provider", n)
	}
}

func TestSDKsWaitOutAShortLimit(t *testing.T) {
	s := startSDK(t, "limit 1 requests per 2s")
	var got map[string][]attempt
	application{addr: s.addr, openAIKey: keyA, anthropicKey: keyB}.run(t, &got, "patient.mjs")

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
