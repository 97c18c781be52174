package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// watched stands before a gateway and notes what each key asked, and what it was told.
type watched struct {
	addr string

	mu sync.Mutex
	by map[string][]told // by key
}

// told is a request and its answer.
type told struct {
	began  time.Time
	ended  time.Time
	status int
	wait   time.Duration // that was asked for
	final  bool          // the client was asked not to try again
}

func watch(t *testing.T, addr string) *watched {
	t.Helper()
	w := &watched{by: make(map[string][]told)}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.FlushInterval = -1
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		now := told{began: time.Now()}
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key"} {
			if v := r.Header.Get(name); v != "" {
				key = v
			}
		}
		rec := &statusWriter{ResponseWriter: rw}
		proxy.ServeHTTP(rec, r)
		seconds, _ := strconv.Atoi(rw.Header().Get("Retry-After")) // none is 0
		now.ended, now.status, now.wait = time.Now(), rec.status, time.Duration(seconds)*time.Second
		now.final = rw.Header().Get("X-Should-Retry") == "false"
		w.mu.Lock()
		defer w.mu.Unlock()
		w.by[key] = append(w.by[key], now)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true) // which AWS's client speaks from the start
	srv.Start()
	t.Cleanup(srv.Close)
	w.addr = srv.Listener.Addr().String()
	return w
}

// statusWriter notes the status.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// retrier is a client whose own retries are looked at.
type retrier struct {
	title   string // in the documentation
	key     string
	vendor  string // of the script vendors.mjs, or empty
	call    string
	version string
}

// retriers are all clients of these tests, as they are when nobody sets their retries.
func retriers(t *testing.T) []retrier {
	t.Helper()
	var pkg struct{ Dependencies map[string]string }
	text, err := os.ReadFile("sdk/package.json")
	if err == nil {
		err = json.Unmarshal(text, &pkg)
	}
	mod, modErr := os.ReadFile("gosdk/go.mod")
	if err != nil || modErr != nil {
		t.Fatal(err, modErr)
	}
	all := []retrier{
		{title: "`openai` (JavaScript)", version: pkg.Dependencies["openai"], key: "sk-test-js-openai"},
		{title: "`@anthropic-ai/sdk`", version: pkg.Dependencies["@anthropic-ai/sdk"], key: "sk-test-js-anthropic"},
		{title: "`openai-go`", version: versionOf(mod, "github.com/openai/openai-go/v3"), key: "sk-test-go-openai"},
		{title: "`anthropic-sdk-go`", version: versionOf(mod, "github.com/anthropics/anthropic-sdk-go"), key: "sk-test-go-anthropic"},
	}
	for _, v := range []struct{ title, pkg, vendor, call string }{
		{"Vercel's `ai`", "ai", "ai", "chat"},
		{"`@aws-sdk/client-bedrock-runtime`", "@aws-sdk/client-bedrock-runtime", "bedrock", "converse"},
		{"`cohere-ai`", "cohere-ai", "cohere", "chat"},
		{"`@google/genai`", "@google/genai", "google", "generate"},
		{"`@google/genai`, interactions", "@google/genai", "google", "interaction"},
		{"`@mistralai/mistralai`", "@mistralai/mistralai", "mistral", "chat"},
		{"`ollama`", "ollama", "ollama", "chat"},
	} {
		all = append(all, retrier{v.title, "sk-test-js-" + v.vendor + "-" + v.call, v.vendor, v.call, pkg.Dependencies[v.pkg]})
	}
	return all
}

func versionOf(mod []byte, module string) string {
	m := regexp.MustCompile(regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(mod)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// What a client does when it is refused, in the words of the documentation.
const (
	waits    = "waits as told, and succeeds"
	fails    = "fails at once"
	repeats  = "tries again, in times of its own"
	oversees = "waits for longer than 30 s"
)

const (
	// longest is how long a client is waited for that waits.
	longest = 30 * time.Second
	// mostRounds is how often clients make their calls until they have been refused.
	mostRounds = 20
)

func TestClientsRetryAsIsDocumented(t *testing.T) {
	t.Parallel()
	clients := retriers(t)
	program := buildGoSDK(t)
	var short, long map[string]string
	t.Run("refused", func(t *testing.T) { // which ends when both have
		t.Run("for 3 s", func(t *testing.T) {
			t.Parallel()
			short = refuse(t, program, clients, "limit 20 requests per minute burst 1", 4)
		})
		t.Run("for over a minute", func(t *testing.T) {
			t.Parallel()
			long = refuse(t, program, clients, "limit 1000 tokens per 3650d", 1)
		})
	})
	want := []string{"| client | version | refused for 3 s | refused for over a minute |", "|---|---|---|---|"}
	for _, c := range clients {
		want = append(want, fmt.Sprintf("| %s | %s | %s | %s |", c.title, c.version, short[c.key], long[c.key]))
	}
	page, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "<!-- begin retries -->\n")
	table, _, _ = strings.Cut(table, "\n<!-- end retries -->")
	if text := strings.Join(want, "\n"); table != text {
		t.Errorf("docs/clients.md has\n%s\nand clients do\n%s", table, text)
	}
}

// refuse has all clients make so many calls, each one after the other, under a limit that
// refuses some, and returns what each does then, by key.
func refuse(t *testing.T, program goSDK, clients []retrier, limit string, times int) map[string]string {
	t.Helper()
	var keys strings.Builder
	for _, c := range clients {
		id := strings.TrimPrefix(c.key, "sk-test-")
		fmt.Fprintf(&keys, "\t\tkey %s %s {\n\t\t\tapplication app-%s\n\t\t}\n", id, keyHash(c.key), id)
	}
	s := startSDK(t, limit, keys.String())
	w := watch(t, s.addr)
	vendors := make(map[string]vendorClient)
	calls, late := make(map[string]int), make(map[string]bool)
	for _, c := range clients {
		if times == 1 { // the limit is used up before
			if a := s.chat(c.key); a.Status != http.StatusOK {
				t.Fatalf("%s: %d: %s", c.title, a.Status, a.Body)
			}
		}
		if c.vendor != "" {
			vendors[c.key] = vendorClient{
				Vendor: c.vendor, URL: "http://" + w.addr, Key: c.key, Only: c.call, Times: times, Patient: true,
				Within: longest.Milliseconds(),
			}
		}
	}
	js := application{addr: w.addr, openAIKey: clients[0].key, anthropicKey: clients[1].key}
	golang := application{addr: w.addr, openAIKey: clients[2].key, anthropicKey: clients[3].key}
	t.Run("clients", func(t *testing.T) { // which ends when all have
		var mu sync.Mutex
		t.Run("of vendors", func(t *testing.T) {
			t.Parallel()
			// on a machine so slow that calls are seconds apart, it takes more of them
			for range mostRounds {
				all := callVendors(t, vendors)
				mu.Lock()
				for key, ended := range all {
					for _, a := range ended {
						calls[key]++
						late[key] = late[key] || a.Error != nil && a.Error.Class == "late"
					}
				}
				mu.Unlock()
				maps.DeleteFunc(vendors, func(key string, _ vendorClient) bool { return w.refused(key) })
				if len(vendors) == 0 {
					return
				}
			}
		})
		t.Run("of OpenAI and Anthropic", func(t *testing.T) {
			t.Parallel()
			these := patientCalls
			if times == 1 {
				these = refusedCalls
			}
			all := these(t, program, js, golang)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(calls, all)
		})
	})

	did := make(map[string]string)
	for _, c := range clients {
		did[c.key] = w.does(t, c, calls[c.key], late[c.key])
	}
	return did
}

// refusedCalls makes each call of the clients of OpenAI and Anthropic once, and returns
// their number by key.
func refusedCalls(t *testing.T, program goSDK, js, golang application) (calls map[string]int) {
	t.Helper()
	calls = make(map[string]int)
	var ofJS map[string]map[string]attempt
	var ofGo map[string]attempt
	js.run(t, &ofJS, "refused.mjs", `{"all":{}}`)
	program.run(t, &ofGo, golang, "refused")
	for a, ended := range map[application]map[string]attempt{js: ofJS["all"], golang: ofGo} {
		for name := range ended {
			calls[a.keyOf(name)]++
		}
	}
	return calls
}

// patientCalls makes calls of the same clients until each has been refused.
func patientCalls(t *testing.T, program goSDK, js, golang application) (calls map[string]int) {
	t.Helper()
	calls = make(map[string]int)
	var ofJS, ofGo map[string][]attempt
	js.run(t, &ofJS, "patient.mjs")
	program.run(t, &ofGo, golang, "patient")
	for a, ended := range map[application]map[string][]attempt{js: ofJS, golang: ofGo} {
		for name, made := range ended {
			calls[a.keyOf(name)] += len(made)
		}
	}
	return calls
}

// keyOf is the key with which a call of the scripts is made.
func (a application) keyOf(call string) string {
	if strings.HasPrefix(call, "anthropic") {
		return a.anthropicKey
	}
	return a.openAIKey
}

// refused tells whether a client has been refused.
func (w *watched) refused(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.by[key], func(a told) bool { return a.status == http.StatusTooManyRequests })
}

// does tells what a client did that made so many calls. late is set if it still waited.
func (w *watched) does(t *testing.T, c retrier, calls int, late bool) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.by[c.key]
	refused, early, served := 0, false, 0
	for i, a := range asked {
		switch {
		case a.status == http.StatusOK:
			served++
		case a.status != http.StatusTooManyRequests || a.wait <= 0 || a.final != (a.wait > time.Minute):
			t.Errorf("%s: answer %d: %+v", c.title, i, a)
		default:
			refused++
			early = early || i+1 < len(asked) && asked[i+1].began.Sub(a.ended) < a.wait-100*time.Millisecond
		}
	}
	switch {
	case calls == 0 || refused == 0:
		t.Errorf("%s: %d of %d calls were refused", c.title, refused, calls)
		return ""
	case late && len(asked) == calls:
		return oversees
	case len(asked) == calls:
		return fails
	case early || served != calls:
		return repeats
	default:
		return waits
	}
}
