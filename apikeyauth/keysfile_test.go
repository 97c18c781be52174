package apikeyauth

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

func entry(id, key string) string { return `{"id":"` + id + `","hash":"` + hashOf(key) + `"}` }

func file(entries ...string) string { return `{"keys":[` + strings.Join(entries, ",") + `]}` }

// fileHandler is a handler with a keys file that only the test reads again.
func fileHandler(t *testing.T, content string, inline ...Key) (h *Handler, write func(string), logs *observer.ObservedLogs) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	write = func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(content)
	core, logs := observer.New(zapcore.DebugLevel)
	h = &Handler{Keys: inline, KeysFile: path, logger: zap.New(core)}
	if err := h.loadKeys(); err != nil {
		t.Fatal(err)
	}
	return h, write, logs
}

func (h *Handler) knows(key string) bool {
	_, err := h.index.Load().find(key, start)
	return err == nil
}

func TestReloadPutsANewVersionInForce(t *testing.T) {
	h, write, logs := fileHandler(t, file(entry("a", "key-a")), Key{ID: "i", Hash: hashOf("key-i")})
	write(file(entry("b", "key-b")))
	h.file.reload()
	if h.knows("key-a") || !h.knows("key-b") || !h.knows("key-i") {
		t.Error("the keys are not those of the new version")
	}
	h.file.reload() // the same again
	if got := logs.FilterMessage("keys file loaded").Len(); got != 1 {
		t.Errorf("logged %d times", got)
	}
	write(file())
	h.file.reload()
	if h.knows("key-b") || !h.knows("key-i") {
		t.Error("a file without keys did not revoke them")
	}
}

func TestABadVersionKeepsTheLastGoodOne(t *testing.T) {
	h, write, logs := fileHandler(t, file(entry("a", "key-a")), Key{ID: "i", Hash: hashOf("key-i")})
	for i, bad := range []string{
		`{"keys":[`,
		``,
		file(entry("b", "key-b"), entry("b", "key-c")),
		file(entry("b", "key-i")), // the configuration has it
		file(entry("i", "key-b")),
	} {
		write(bad)
		h.file.reload()
		h.file.reload()
		if !h.knows("key-a") || !h.knows("key-i") || h.knows("key-b") {
			t.Errorf("%s: the last good version is not in force", bad)
		}
		if got := logs.FilterLevelExact(zapcore.ErrorLevel).Len(); got != i+1 {
			t.Errorf("%s: %d errors logged, want %d", bad, got, i+1)
		}
	}
	if err := os.Remove(h.KeysFile); err != nil {
		t.Fatal(err)
	}
	h.file.reload()
	h.file.reload()
	if got := logs.FilterLevelExact(zapcore.ErrorLevel).Len(); got != 6 || !h.knows("key-a") {
		t.Errorf("without the file: %d errors logged, key known: %t", got, h.knows("key-a"))
	}
	write(file(entry("a", "key-a")))
	h.file.reload()
	if got := logs.FilterMessage("keys file is back to its last good version").Len(); got != 1 {
		t.Errorf("its return was logged %d times", got)
	}
	write(file(entry("b", "key-b")))
	h.file.reload()
	if !h.knows("key-b") {
		t.Error("a good version after bad ones is not in force")
	}
}

func TestRotationKeepsTheIDAndGrantsGrace(t *testing.T) {
	h, write, _ := fileHandler(t, file(entry("a", "old-key")))
	write(file(`{"id":"a","hash":"` + hashOf("new-key") + `","application":"app",` +
		`"previous":{"hash":"` + hashOf("old-key") + `","until":"2026-06-01T12:00:01Z"}}`))
	h.file.reload()
	for _, tc := range []struct {
		key string
		now time.Time
		err error
	}{
		{"old-key", start, nil},
		{"new-key", start, nil},
		{"old-key", start.Add(time.Second), errRotated},
		{"new-key", start.Add(time.Second), nil},
	} {
		g, err := h.index.Load().find(tc.key, tc.now)
		if !errors.Is(err, tc.err) || g == nil || g.id != "a" || g.application != "app" {
			t.Errorf("%s at %v: got %+v, %v", tc.key, tc.now, g, err)
		}
	}
}

func TestChangesAreNoticed(t *testing.T) {
	h, write, _ := fileHandler(t, file(entry("a", "key-a")))
	f := h.file
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	// settled gives the file an old time stamp and takes note of it
	settled := func() {
		t.Helper()
		if err := os.Chtimes(f.path, old, old); err != nil {
			t.Fatal(err)
		}
		f.reload()
		if f.changed() {
			t.Fatal("changed before anything has")
		}
	}

	settled()
	write(file(entry("b", "key-b"))) // as long as before
	if !f.changed() {
		t.Error("a newer time stamp was not noticed")
	}

	settled()
	write(file(entry("b", "key-b"), entry("c", "key-c")))
	if err := os.Chtimes(f.path, old, old); err != nil {
		t.Fatal(err)
	}
	if !f.changed() {
		t.Error("another size was not noticed")
	}

	settled()
	other := f.path + ".new"
	if err := os.WriteFile(other, []byte(file(entry("b", "key-d"), entry("c", "key-e"))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(other, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, f.path); err != nil {
		t.Fatal(err)
	}
	if !f.changed() {
		t.Error("another file in its place was not noticed")
	}

	settled()
	if err := os.Chtimes(f.path, time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	f.reload()
	if !f.changed() {
		t.Error("a file that was written just now must be read again")
	}

	settled()
	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if !f.changed() {
		t.Error("a missing file was not noticed")
	}
}

// Kubernetes mounts secrets behind a link to a directory that it swaps.
func TestSwappedLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	for version, key := range map[string]string{"v1": "key-1", "v2": "key-2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, version, "keys.json"), []byte(file(entry("a", key))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("v1", "..data")
	link(filepath.Join("..data", "keys.json"), "keys.json")
	h := &Handler{KeysFile: filepath.Join(dir, "keys.json"), logger: zap.NewNop()}
	if err := h.loadKeys(); err != nil {
		t.Fatal(err)
	}
	link("v2", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if !h.file.changed() {
		t.Fatal("the swap was not noticed")
	}
	h.file.reload()
	if h.knows("key-1") || !h.knows("key-2") {
		t.Error("the keys are not those of the new version")
	}
}

// The one test that runs on the real clock: from the file to the index through the
// goroutine that Provision starts, which ends with the context.
func TestTheFileIsWatchedUntilTheContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, []byte(file(entry("a", "key-a"))), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &Handler{KeysFile: path, logger: zap.NewNop(), meter: meter.New()}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	if err := h.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(file(entry("b", "key-b"))), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(30 * time.Second)
	for !h.knows("key-b") {
		select {
		case <-deadline:
			t.Fatal("the change was not noticed")
		case <-ticker.C:
		}
	}
	cancel()
	select {
	case <-h.file.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the goroutine outlives its context")
	}
}

func TestParseKeysIsStrict(t *testing.T) {
	a := hashOf("key-a")
	for _, tc := range []struct{ name, input, want string }{
		{"empty", ``, "line 1: not valid JSON"},
		{"no JSON", "{\n\"keys\": [\n{]", "line 3: not valid JSON"},
		{"half a file", "{\"keys\":[\n{\"id\":\"a\"", "not valid JSON"},
		{"two documents", `{"keys":[]}{}`, "something follows the JSON object"},
		{"a list", `[]`, `the file must be an object with the list "keys": must be an object, not array`},
		{"nothing in it", `{}`, `the list "keys" is missing`},
		{"no list", `{"keys":null}`, `the list "keys" is missing`},
		{"a map", `{"keys":{}}`, `field "keys" has the wrong type, object`},
		{"an unknown member", `{"keys":[],"groups":[]}`, `unknown field "groups"`},
		{"an unknown member of a key", `{"keys":[{"id":"a","hash":"` + a + `","app":"x"}]}`, `keys[0] (id "a"): unknown field "app"`},
		{"an unknown member that may be a key", `{"keys":[{"id":"a","sk-secret":"x"}]}`, `keys[0] (id "a"): unknown field`},
		{"a member twice", `{"keys":[{"id":"a","disabled":true,"disabled":false}]}`, `field "disabled" is given twice`},
		{"a member twice in another case", `{"keys":[{"id":"a","Hash":"x","hash":"y"}]}`, `field "hash" is given twice`},
		{"a member twice that may be a key", `{"keys":[],"sk-secret":1,"SK-secret":2}`, `a field is given twice`},
		{"a wrong type", `{"keys":[{"id":"a","hash":123456789}]}`, `keys[0] (id "a"): field "hash" has the wrong type, number`},
		{"no object", `{"keys":["sk-secret"]}`, `keys[0]: must be an object, not string`},
		{"models that are no list", `{"keys":[{"id":"a","models":"gpt-4o"}]}`, `keys[0] (id "a"): models must be a list of strings`},
		{"nested without end", strings.Repeat(`{"a":`, 100), "nested too deeply"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseKeys([]byte(tc.input))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want it to contain %q", err, tc.want)
			}
			for _, secret := range []string{"sk-secret", "123456789"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error shows %q: %v", secret, err)
				}
			}
		})
	}
}

func TestParseKeysReadsEveryField(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("testdata", "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	// editors on Windows put a mark before the text
	keys, err := parseKeys(append([]byte("\xef\xbb\xbf"), content...))
	if err != nil {
		t.Fatal(err)
	}
	x := newIndexer(len(keys))
	if err := x.add(keys, true); err != nil {
		t.Fatal(err)
	}
	g, err := x.index.find("example-key-new", start)
	if err != nil {
		t.Fatal(err)
	}
	if g.id != "team-a" || g.application != "app-a" || g.group != "gold" || g.expires.Year() != 2027 ||
		!g.models.allows("gpt-4o-mini") || g.models.allows("o3") {
		t.Errorf("got %+v", g)
	}
	if g, err := x.index.find("example-key-old", start); err != nil || g.id != "team-a" {
		t.Errorf("former secret: got %+v, %v", g, err)
	}
	if _, err := x.index.find("example-key-off", start); !errors.Is(err, errDisabled) {
		t.Errorf("disabled key: got %v", err)
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add([]byte(file(entry("a", "key-a"))))
	f.Add([]byte(`{"keys":[{"id":"a","models":[],"previous":{"until":"2026-12-31"}}]}`))
	f.Add([]byte(`{"Keys":[{"ID":"a","id":"b"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		keys, err := parseKeys(content)
		if err != nil {
			return
		}
		x := newIndexer(len(keys))
		if x.add(keys, true) != nil {
			return
		}
		if len(x.index.secrets) < len(keys) {
			t.Errorf("%d keys gave %d secrets", len(keys), len(x.index.secrets))
		}
	})
}
