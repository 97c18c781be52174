package integration

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

	// sdkPatience bounds a script, which takes a few seconds.
	sdkPatience = 2 * time.Minute
)

// sdkSite is a gateway in front of all providers. It has keys of two applications and
// one that may use no model of the scripts; {keys} are more of them and {limits} those
// of each application. Windows that are not to end during a test have 3650 days: the
// next is over in 2029. AWS's client speaks HTTP/2 from the start, hence h2c.
const sdkSite = `{
	servers {
		protocols h1 h2c
	}
}
{site} {
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
		{keys}
	}
	token_limit {name}{run} {
		consumer_based
		{limits}
	}
	reverse_proxy /google/* {upstream} {
		header_up X-Goog-Api-Key ` + keyProvider + `
	}
	reverse_proxy /v1/messages* {upstream} {
		header_up X-Api-Key ` + keyProvider + `
	}
	reverse_proxy {upstream} {
		header_up Authorization "Bearer ` + keyProvider + `"
	}
}`

// sdkSetup is a gateway in front of a provider that speaks all APIs.
type sdkSetup struct {
	*gateway
	up       *upstream
	direct   string // host:port of the same provider, for clients without the gateway
	provider *provider
	run      string // of this setup alone, so that a test may be repeated in a process
}

// sdkRuns numbers the setups.
var sdkRuns atomic.Int64

// startSDK starts both, with keys and limits in the words of a Caddyfile. Tests of SDKs
// run beside each other, for most of their time goes by in waiting.
func startSDK(t *testing.T, limits, keys string) *sdkSetup {
	t.Helper()
	s := &sdkSetup{provider: &provider{key: keyProvider}, run: fmt.Sprintf("-%d", sdkRuns.Add(1))}
	s.up = newUpstream(t, s.provider.ServeHTTP)

	direct := httptest.NewUnstartedServer(s.provider)
	direct.Config.Protocols = new(http.Protocols)
	direct.Config.Protocols.SetHTTP1(true)
	direct.Config.Protocols.SetUnencryptedHTTP2(true)
	direct.Start()
	t.Cleanup(direct.Close)
	s.direct = direct.Listener.Addr().String()

	s.gateway = startApart(t, s.up, strings.NewReplacer(
		"{hash-a}", keyHash(keyA), "{hash-b}", keyHash(keyB), "{hash-c}", keyHash(keyUnbound),
		"{run}", s.run, "{limits}", limits, "{keys}", keys,
	).Replace(sdkSite))
	return s
}

// used is what is charged to an application under a rule.
func (s *sdkSetup) used(application, rule string) row {
	s.t.Helper()
	return s.gateway.used(s.run, application, rule)
}

// charged compares all that is charged to an application with what was served to it.
func (s *sdkSetup) charged(t *testing.T, application string, served tokens) {
	t.Helper()
	if held := s.used(application, "tokens per 3650d").Reserved; held != 0 {
		t.Fatalf("%s: %d tokens are still held", application, held)
	}
	for rule, want := range map[string]int64{
		"requests per 3650d":        served.Requests,
		"tokens per 3650d":          served.Input + served.Output,
		"input_tokens per 3650d":    served.Input,
		"output_tokens per 3650d":   served.Output,
		"uncached_tokens per 3650d": served.Input + served.Output - served.CacheRead,
	} {
		if got := s.used(application, rule).Used; got != want {
			t.Errorf("%s, %s: %d, the provider served %d", application, rule, got, want)
		}
	}
}

// keyStays reports a request in which the provider was shown a key of the gateway's.
func (s *sdkSetup) keyStays(t *testing.T, keys ...string) {
	t.Helper()
	for _, seen := range s.up.requests {
		text, err := json.Marshal(seen)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(keys, func(key string) bool { return bytes.Contains(text, []byte(key)) }) {
			t.Errorf("the provider got the gateway's key: %s", text)
		}
	}
}

// everyRule are limits that no test reaches, one for each count of tokens.
const everyRule = `
		limit 1000 requests per 3650d
		limit 1M tokens per 3650d
		limit 1M input_tokens per 3650d
		limit 1M output_tokens per 3650d
		limit 1M uncached_tokens per 3650d`

func keyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// application is how a script is set up: where it calls, with which keys.
type application struct {
	addr                    string // host:port of the provider or of the gateway
	openAIKey, anthropicKey string
}

// run runs a script of the folder sdk with the variables of this application.
func (a application) run(t *testing.T, into any, script string, args ...string) {
	t.Helper()
	runNode(t, into, a.env(), append([]string{script}, args...))
}

// env are the variables that the SDKs of both providers read by themselves.
func (a application) env() []string {
	return []string{
		"OPENAI_BASE_URL=http://" + a.addr + "/v1", "OPENAI_API_KEY=" + a.openAIKey,
		"ANTHROPIC_BASE_URL=http://" + a.addr, "ANTHROPIC_API_KEY=" + a.anthropicKey,
	}
}

// runNode runs a script of the folder sdk and reads what it prints. It fails, and does
// not skip, where the SDKs are missing: else nobody would notice that they are.
func runNode(t *testing.T, into any, env, args []string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("node is needed to run the SDKs: install it, then `npm ci --prefix integration/sdk`: %v", err)
	}
	text, err := os.ReadFile("sdk/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var pkg struct{ Dependencies map[string]string }
	if err := json.Unmarshal(text, &pkg); err != nil {
		t.Fatal(err)
	}
	for name := range pkg.Dependencies {
		if _, err := os.Stat("sdk/node_modules/" + name + "/package.json"); err != nil {
			t.Fatalf("the SDKs are not installed: run `npm ci --prefix integration/sdk`: %v", err)
		}
	}
	// the variables and files of whoever runs the test may hold other addresses and keys
	env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	runProgram(t, into, "sdk", env, node, args...)
}

// runProgram runs a program and reads the JSON that it prints.
func runProgram(t *testing.T, into any, dir string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sdkPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v (%v)\n%s", strings.Join(cmd.Args, " "), err, context.Cause(ctx), stderr.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%s: %v in %s", strings.Join(cmd.Args, " "), err, out)
	}
}
