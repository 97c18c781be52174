package apikeyauth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// start is what the clock of tests shows.
var start = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// provision makes a handler ready as Caddy does, but with a clock and a log of the
// test's own. Its context ends with the test.
func provision(t testing.TB, h *Handler) (*observer.ObservedLogs, error) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	h.logger = zap.New(core)
	h.meter = meter.New()
	if h.now == nil {
		h.now = func() time.Time { return start }
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(cancel)
	if err := h.Provision(ctx); err != nil {
		return logs, err
	}
	return logs, h.Validate()
}

func mustProvision(t testing.TB, h *Handler) *observer.ObservedLogs {
	t.Helper()
	logs, err := provision(t, h)
	if err != nil {
		t.Fatal(err)
	}
	return logs
}

// upstream is a next handler that keeps what it sees.
type upstream struct {
	called bool
	header http.Header
	uri    string
	target string // RequestURI
	body   string
	vars   map[string]any
	userID string
	err    error // what it returns
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) error {
	u.called = true
	u.header = r.Header.Clone()
	u.uri, u.target = r.URL.String(), r.RequestURI
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	u.body = string(b)
	u.vars = r.Context().Value(caddyhttp.VarsCtxKey).(map[string]any)
	u.userID, _ = r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).GetString("http.auth.user.id")
	return u.err
}

// newRequest is a request as Caddy's server hands it to handlers. Headers are given as
// name, value, ….
func newRequest(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
}

const chat = "/v1/chat/completions"

// refusal is the part of a refusal's body that does not depend on the API.
type refusal struct {
	Error struct{ Type, Code, Message string }
}

func refusalOf(t *testing.T, rec *httptest.ResponseRecorder) refusal {
	t.Helper()
	var got refusal
	if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
		t.Fatalf("body %q: %v", rec.Body, err)
	}
	return got
}

func TestIdentityOfAKey(t *testing.T) {
	h := &Handler{
		Keys: []Key{
			{ID: "bound", Hash: hashOf("key-bound"), Application: "app-1", Group: "gold"},
			{ID: "loose", Hash: hashOf("key-loose")},
		},
		Optional: &Anonymous{Group: "guests"},
	}
	mustProvision(t, h)
	for _, tc := range []struct{ name, key, id, application, group, userID string }{
		{"bound to an application", "key-bound", "bound", "app-1", "gold", "bound"},
		{"bound to none", "key-loose", "loose", "", "", "loose"},
		{"anonymous", "", "", "", "guests", "earlier"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRequest(http.MethodPost, chat, `{"model":"m"}`, "X-Wso2-Application-Id", "forged", "Authorization", "Bearer "+tc.key)
			// what another handler has set is no identity of ours
			caddyhttp.SetVar(r.Context(), "x-wso2-application-id", "earlier")
			caddyhttp.SetVar(r.Context(), "llm_group", "earlier")
			caddyhttp.SetVar(r.Context(), "llm.key_id", "earlier")
			r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer).Set("http.auth.user.id", "earlier")

			var next upstream
			if err := h.ServeHTTP(httptest.NewRecorder(), r, &next); err != nil {
				t.Fatal(err)
			}
			if !next.called {
				t.Fatal("refused")
			}
			if next.vars["x-wso2-application-id"] != tc.application || next.vars["llm_group"] != tc.group || next.vars["llm.key_id"] != tc.id {
				t.Errorf("got %v, want %+v", next.vars, tc)
			}
			if next.userID != tc.userID {
				t.Errorf("got user id %q, want %q", next.userID, tc.userID)
			}
			if len(next.header) != 0 || next.body != `{"model":"m"}` {
				t.Errorf("upstream saw %v, %s", next.header, next.body)
			}
		})
	}
}

func TestRefusalsOfKeys(t *testing.T) {
	h := &Handler{Keys: []Key{
		{ID: "good", Hash: hashOf("good-key")},
		{ID: "late", Hash: hashOf("late-key"), Expires: "2026-06-01"},
		{ID: "off", Hash: hashOf("off-key"), Disabled: true},
	}}
	lax := &Handler{Keys: h.Keys, Optional: &Anonymous{}}
	logs := mustProvision(t, h)
	mustProvision(t, lax)
	const plain, invalid = `Bearer realm="llm"`, `Bearer realm="llm", error="invalid_token"`
	for _, tc := range []struct {
		name               string
		headers            []string
		challenge, message string
		reason, keyID      string // in the log
		optionalToo        bool
	}{
		{"none", nil, plain, "no API key", "no key", "", false},
		{"no bearer", []string{"Authorization", "Basic eDp5"}, plain, "no API key", "no key", "", false},
		{"unknown", []string{"X-Api-Key", "bad-key"}, invalid, "invalid API key", "unknown key", "", true},
		{"expired", []string{"X-Api-Key", "late-key"}, invalid, "invalid API key", "key has expired", "late", true},
		{"disabled", []string{"X-Api-Key", "off-key"}, invalid, "invalid API key", "key is disabled", "off", true},
		{"odd bytes", []string{"X-Api-Key", "good key"}, invalid, "invalid API key", "not a possible key", "", true},
		{"too long", []string{"X-Api-Key", strings.Repeat("k", 5000)}, invalid, "invalid API key", "not a possible key", "", true},
		{"two", []string{"X-Api-Key", "bad-key", "Authorization", "Bearer good-key"}, invalid, "two different API keys", "two different keys", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs.TakeAll()
			handlers := []*Handler{h}
			if tc.optionalToo {
				handlers = append(handlers, lax)
			}
			for _, h := range handlers {
				var next upstream
				rec := httptest.NewRecorder()
				r := newRequest(http.MethodPost, chat, `{}`, tc.headers...)
				if err := h.ServeHTTP(rec, r, &next); err != nil {
					t.Fatal(err)
				}
				if next.called {
					t.Error("went on")
				}
				if rec.Code != http.StatusUnauthorized || rec.Header().Get("WWW-Authenticate") != tc.challenge {
					t.Errorf("got %d, %v", rec.Code, rec.Header())
				}
				got := refusalOf(t, rec).Error
				if got.Code != "invalid_api_key" || got.Type != "authentication_error" || got.Message != tc.message {
					t.Errorf("got %+v", got)
				}
				if len(r.Header) != 0 {
					t.Errorf("headers left: %v", r.Header)
				}
			}
			for _, entry := range logs.All() {
				fields := entry.ContextMap()
				if id, _ := fields["key_id"].(string); entry.Level != zapcore.DebugLevel || fields["reason"] != tc.reason || id != tc.keyID {
					t.Errorf("logged %v %v", entry.Level, fields)
				}
			}
			if logs.Len() != 1 {
				t.Errorf("logged %d entries", logs.Len())
			}
		})
	}
}

func TestModelsOfAKey(t *testing.T) {
	h := &Handler{
		Keys: []Key{
			{ID: "listed", Hash: hashOf("listed-key"), Models: Models{"gpt-4o*", "*/llama"}},
			{ID: "none", Hash: hashOf("none-key"), Models: Models{"none"}},
			{ID: "all", Hash: hashOf("all-key")},
		},
		Optional: &Anonymous{Models: Models{"tiny"}},
	}
	mustProvision(t, h)
	for _, tc := range []struct {
		name, key, method, target, body string
		status                          int
	}{
		{"listed model", "listed-key", "POST", chat, `{"model":"GPT-4o-mini"}`, 200},
		{"listed model with a slash", "listed-key", "POST", chat, `{"model":"meta/llama"}`, 200},
		{"another model", "listed-key", "POST", chat, `{"model":"o3"}`, 403},
		{"a model with a prefix", "listed-key", "POST", chat, `{"model":"openai/gpt-4o"}`, 200},
		{"another model with a prefix", "listed-key", "POST", chat, `{"model":"openai/o3"}`, 403},
		{"a snapshot as a fallback", "listed-key", "POST", chat, `{"model":"gpt-4o","models":["openai/gpt-4o-2024-08-06"]}`, 200},
		{"another model's snapshot as a fallback", "listed-key", "POST", chat, `{"model":"gpt-4o","models":["openai/o3-2025-04-16"]}`, 403},
		{"no model", "listed-key", "POST", chat, `{}`, 403},
		{"model in the path", "listed-key", "POST", "/v1beta/models/gemini-2.5-pro:generateContent", `{}`, 403},
		{"upgrade to a listed model, where another may be named later", "listed-key", "GET", "/v1/realtime?model=gpt-4o-realtime", "", 403},
		{"upgrade to another model", "listed-key", "GET", "/v1/realtime?model=o3", "", 403},
		{"endpoint whose model is not known", "listed-key", "POST", "/v1/batches", `{}`, 403},
		{"minting of other credentials", "listed-key", "POST", "/v1/realtime/client_secrets", `{"model":"gpt-4o"}`, 403},
		{"list of models", "listed-key", "GET", "/v1/models", "", 200},
		{"none allowed", "none-key", "POST", chat, `{"model":"gpt-4o"}`, 403},
		{"none allowed, list of models", "none-key", "GET", "/v1/models", "", 200},
		{"all allowed", "all-key", "POST", chat, `{"model":"o3"}`, 200},
		{"all allowed, no model", "all-key", "POST", chat, `{}`, 200},
		{"anonymous, listed model", "", "POST", chat, `{"model":"tiny"}`, 200},
		{"anonymous, another model", "", "POST", chat, `{"model":"gpt-4o"}`, 403},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var next upstream
			rec := httptest.NewRecorder()
			r := newRequest(tc.method, tc.target, tc.body, "Authorization", "Bearer "+tc.key, "Content-Type", "application/json")
			if strings.HasPrefix(tc.name, "upgrade") {
				r.Header.Set("Connection", "Upgrade")
				r.Header.Set("Upgrade", "websocket")
			}
			if err := h.ServeHTTP(rec, r, &next); err != nil {
				t.Fatal(err)
			}
			if rec.Code != tc.status || next.called != (tc.status == 200) {
				t.Fatalf("got %d %s, went on: %t", rec.Code, rec.Body, next.called)
			}
			if next.called && next.body != tc.body {
				t.Errorf("upstream read %q, want %q", next.body, tc.body)
			}
			if !next.called && !strings.Contains(rec.Body.String(), "this API key") {
				t.Errorf("got %s", rec.Body)
			}
		})
	}
}

func TestRefusalOfAModelTellsWhy(t *testing.T) {
	h := &Handler{Keys: []Key{{ID: "a", Hash: hashOf("a-key"), Models: Models{"gpt-4o"}}}}
	logs := mustProvision(t, h)
	for _, tc := range []struct{ name, body, want string }{
		{"another model", `{"model":"o3"}`, "this API key may not use the model of this call"},
		{"no model", `{}`, "this API key is limited to certain models, and the model of this call is not known"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logs.TakeAll()
			rec := httptest.NewRecorder()
			r := newRequest("POST", chat, tc.body, "Authorization", "Bearer a-key", "Content-Type", "application/json")
			if err := h.ServeHTTP(rec, r, &upstream{}); err != nil {
				t.Fatal(err)
			}
			got := refusalOf(t, rec).Error
			if got.Code != "model_not_allowed" || got.Type != "permission_error" || got.Message != tc.want {
				t.Errorf("got %+v", got)
			}
			if entries := logs.All(); len(entries) != 1 || entries[0].ContextMap()["key_id"] != "a" {
				t.Errorf("logged %v", entries)
			}
			// refused, yet identified: the access log tells whose call it was
			if id := caddyhttp.GetVar(r.Context(), "llm.key_id"); id != "a" {
				t.Errorf("got key id %v", id)
			}
		})
	}
}

func TestABodyThatCannotBeReadIsTheClientsFault(t *testing.T) {
	h := &Handler{Keys: []Key{{ID: "a", Hash: hashOf("a-key"), Models: Models{"gpt-4o"}}}}
	mustProvision(t, h)
	rec := httptest.NewRecorder()
	var next upstream
	r := newRequest("POST", chat, `{"model":`, "Authorization", "Bearer a-key", "Content-Type", "application/json")
	if err := h.ServeHTTP(rec, r, &next); err != nil {
		t.Fatal(err)
	}
	if next.called || rec.Code < 400 || rec.Code > 499 {
		t.Errorf("got %d, went on: %t", rec.Code, next.called)
	}
}

type brokenBody struct{ err error }

func (b brokenBody) Read([]byte) (int, error) { return 0, b.err }
func (brokenBody) Close() error               { return nil }

func TestABodyThatBreaksOffIsLeftToCaddy(t *testing.T) {
	h := &Handler{Keys: []Key{{ID: "a", Hash: hashOf("a-key"), Models: Models{"gpt-4o"}}}}
	mustProvision(t, h)
	var next upstream
	r := newRequest("POST", chat, "", "Authorization", "Bearer a-key")
	r.Body, r.ContentLength = brokenBody{io.ErrUnexpectedEOF}, -1
	err := h.ServeHTTP(httptest.NewRecorder(), r, &next)
	if !errors.Is(err, io.ErrUnexpectedEOF) || next.called {
		t.Errorf("got %v, went on: %t", err, next.called)
	}
}

// Error routes get the original URL back, so a key must not be in there either.
func TestErrorRoutesSeeNoKey(t *testing.T) {
	h := &Handler{
		Keys:    []Key{{ID: "a", Hash: hashOf("s3cret"), Application: "app"}},
		Headers: []HeaderPlace{{Name: "X-Team-Key"}},
		Query:   []string{"key"},
	}
	mustProvision(t, h)
	for _, tc := range []struct {
		name, target, want string
		headers            []string
	}{
		{"in the query", "/v1/x?a=1&key=s3cret&b=%2F", "/v1/x?a=1&b=%2F", nil},
		{"alone in the query", "/v1/x?key=s3cret", "/v1/x", nil},
		{"under another name too", "/v1/x?token=s%33cret&a=1", "/v1/x?a=1", []string{"X-Team-Key", "s3cret"}},
		{"in a header only", "/v1/x?a=1", "/v1/x?a=1", []string{"X-Team-Key", "s3cret"}},
	} {
		for _, replaced := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				server := newRequest("GET", tc.target, "", tc.headers...)
				repl := server.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
				r := server
				if replaced { // by a handler before this one, so that the server's request is another
					r = server.WithContext(context.WithoutCancel(server.Context()))
				}
				// a rewrite before this handler leaves the key in both places
				r.URL.Path = "/rewritten"
				failure := errors.New("upstream is down")
				next := &upstream{err: failure}
				if err := h.ServeHTTP(httptest.NewRecorder(), r, next); !errors.Is(err, failure) {
					t.Fatalf("got %v", err)
				}
				if want := strings.Replace(tc.want, "/v1/x", "/rewritten", 1); !strings.HasSuffix(next.uri, want) {
					t.Errorf("upstream saw %s, want %s", next.uri, want)
				}
				if next.target != tc.want {
					t.Errorf("request target %s, want %s", next.target, tc.want)
				}
				original := server.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
				if got := original.URL.RequestURI(); got != tc.want {
					t.Errorf("original URL %s, want %s", got, tc.want)
				}
				if !replaced && original.RequestURI != tc.want {
					t.Errorf("original target %s, want %s", original.RequestURI, tc.want)
				}
				for _, placeholder := range []string{"{http.request.orig_uri}", "{http.request.orig_uri.path}{http.request.orig_uri.prefixed_query}"} {
					if got := repl.ReplaceAll(placeholder, ""); got != tc.want {
						t.Errorf("%s is %s, want %s", placeholder, got, tc.want)
					}
				}
			})
		}
	}
}

func TestProvisionRefuses(t *testing.T) {
	t.Setenv("APIKEYAUTH_EMPTY", "")
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"keys":[{"id":"a"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []Key{{ID: "a", Hash: hashOf("key")}}
	for _, tc := range []struct {
		name, config, want string
	}{
		{"nothing to know keys from", `{}`, "there must be a key, a keys_file or keys_store"},
		{"a bad key", `{"keys":[{"id":"a","hash":"` + good[0].Hash + `"},{"id":"b","hash":"sk-raw"}]}`, `keys[1] (id "b"): hash must be`},
		{"an unknown placeholder", `{"keys":[{"id":"a","hash":"{http.request.host}"}]}`, `keys[0] (id "a"): hash: a placeholder is unknown or empty`},
		{"an empty placeholder", `{"keys":[{"id":"a","hash":"sha256:{env.APIKEYAUTH_EMPTY}"}]}`, `keys[0] (id "a"): hash: a placeholder is unknown or empty`},
		{"an empty placeholder in a former hash", `{"keys":[{"id":"a","hash":"` + good[0].Hash + `","previous":{"hash":"{env.APIKEYAUTH_EMPTY}"}}]}`, `(id "a"): previous: hash: a placeholder`},
		{"an empty list of models", `{"keys":[{"id":"a","hash":"` + good[0].Hash + `","models":[]}]}`, `keys[0] (id "a"): models must not be empty`},
		{"an empty list for anonymous requests", `{"keys_file":"x","optional":{"models":[]}}`, `optional: models must not be empty`},
		{"a bad group for anonymous requests", `{"keys_file":"x","optional":{"group":"/x"}}`, `optional: group must not start with "/"`},
		{"a header without a name", `{"keys_file":"x","headers":[{"prefix":"Bearer"}]}`, `headers[0]: "" is no header name`},
		{"a prefix that no header can have", `{"keys_file":"x","headers":[{"name":"X","prefix":"\n!\u0001"}]}`, `headers[0]: prefix must be printable`},
		{"an empty query parameter", `{"keys_file":"x","query":["a",""]}`, `query[1]: name must not be empty`},
		{"a keys file that is not there", `{"keys_file":"` + bad + `.none"}`, "keys_file: stat"},
		{"a keys file with nobody behind its placeholder", `{"keys_file":"{env.APIKEYAUTH_EMPTY}"}`, "keys_file: "},
		{"a bad keys file", `{"keys_file":"` + bad + `"}`, `bad.json": keys[0] (id "a"): hash must be`},
		{"a directory", `{"keys_file":"` + filepath.Dir(bad) + `"}`, "is not a regular file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := new(Handler)
			if err := caddy.StrictUnmarshalJSON([]byte(tc.config), h); err != nil {
				t.Fatal(err)
			}
			_, err := provision(t, h)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to contain %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "sk-raw") {
				t.Errorf("error shows a key: %v", err)
			}
		})
	}
}

// The meter comes from the llm app, which a configuration need not name.
func TestProvisionInAConfiguration(t *testing.T) {
	err := caddy.Validate(&caddy.Config{
		Admin: &caddy.AdminConfig{Disabled: true},
		AppsRaw: caddy.ModuleMap{"http": json.RawMessage(`{"servers":{"s":{"routes":[{"handle":[
			{"handler":"api_key_auth","keys":[{"id":"a","hash":"` + hashOf("key") + `"}]}
		]}]}}}`)},
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPlaceholdersAreResolvedAtLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "hash")
	if err := os.WriteFile(file, []byte(hashOf("file-key")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "keys.json"), []byte(`{"keys":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("APIKEYAUTH_DIR", dir)
	t.Setenv("APIKEYAUTH_HASH", hashOf("env-key"))
	h := &Handler{
		Keys: []Key{
			{ID: "env", Hash: "{env.APIKEYAUTH_HASH}"},
			{ID: "file", Hash: "{file." + file + "}", Previous: &Previous{Hash: hashOf("former-key"), Until: "2027-01-01"}},
		},
		KeysFile: "{env.APIKEYAUTH_DIR}/keys.json",
	}
	mustProvision(t, h)
	for _, key := range []string{"env-key", "file-key", "former-key"} {
		if _, err := h.index.Load().find(key, start); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if h.Keys[0].Hash != "{env.APIKEYAUTH_HASH}" {
		t.Errorf("the configuration was changed to %q", h.Keys[0].Hash)
	}
}

func TestManyRequestsWhileKeysChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	versions := []string{
		`{"keys":[{"id":"f","hash":"` + hashOf("file-key") + `","application":"one"}]}`,
		`{"keys":[{"id":"f","hash":"` + hashOf("file-key") + `","application":"two"}]}`,
		`{"keys":[{"id":"f"`, // half a file
	}
	if err := os.WriteFile(path, []byte(versions[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &Handler{Keys: []Key{{ID: "i", Hash: hashOf("inline-key"), Application: "fixed"}}, KeysFile: path}
	core, _ := observer.New(zapcore.ErrorLevel)
	h.logger, h.now = zap.New(core), func() time.Time { return start }
	if err := h.loadKeys(); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.places, err = newPlaces(nil, nil); err != nil {
		t.Fatal(err)
	}

	var clients sync.WaitGroup
	done := make(chan struct{})
	for _, key := range []string{"file-key", "inline-key", "wrong-key"} {
		clients.Go(func() {
			for range 500 {
				var next upstream
				rec := httptest.NewRecorder()
				if err := h.ServeHTTP(rec, newRequest("POST", chat, "", "X-Api-Key", key), &next); err != nil {
					t.Error(err)
				}
				if next.called != (key != "wrong-key") {
					t.Errorf("%s went on: %t", key, next.called)
				}
			}
		})
	}
	go func() { clients.Wait(); close(done) }()
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default:
		}
		if err := os.WriteFile(path, []byte(versions[i%len(versions)]), 0o600); err != nil {
			t.Fatal(err)
		}
		h.file.reload()
	}
}
