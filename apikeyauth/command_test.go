package apikeyauth

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
)

// llmKey runs the command, and returns what it prints and its error.
func llmKey(t testing.TB, args ...string) (out, errOut string, err error) {
	t.Helper()
	cmd := &cobra.Command{Use: "llm-key", SilenceUsage: true}
	caddycmd.Commands()["llm-key"].CobraFunc(cmd)
	var o, e bytes.Buffer
	cmd.SetOut(&o)
	cmd.SetErr(&e)
	cmd.SetArgs(args)
	err = cmd.Execute()
	return o.String(), e.String(), err
}

func mustLLMKey(t testing.TB, args ...string) string {
	t.Helper()
	out, _, err := llmKey(t, args...)
	if err != nil {
		t.Fatalf("llm-key %q: %v", args, err)
	}
	return out
}

func TestKeysOfAFileByCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	var first, second issued
	if err := json.Unmarshal([]byte(mustLLMKey(t, "new", "--file", path, "--json", "--id", "a", "--application", "shop", "--group", "gold", "--models", "gpt-*,o3", "--expires", "2100-01-01")), &first); err != nil {
		t.Fatal(err)
	}
	if first.ID != "a" || !apikey.Valid(first.Key) {
		t.Errorf("got %+v", first)
	}
	out, hint, err := llmKey(t, "new", "-f", path)
	id, key, ok := strings.Cut(out, "\n")
	second = issued{strings.TrimPrefix(id, "id:  "), strings.TrimSuffix(strings.TrimPrefix(key, "key: "), "\n")}
	if err != nil || !ok || !storedID.MatchString(second.ID) || !apikey.Valid(second.Key) || !strings.Contains(hint, "not shown again") {
		t.Errorf("got %q and %q, %v", out, hint, err)
	}

	// the handler takes the file as it is
	h := &Handler{KeysFile: path}
	mustProvision(t, h)
	if g, err := h.find(t.Context(), first.Key); err != nil || g.id != "a" || g.application != "shop" || g.group != "gold" || !g.models.allows("o3") || g.models.allows("o4") {
		t.Errorf("got %+v, %v", g, err)
	}

	var rotated issued
	if err := json.Unmarshal([]byte(mustLLMKey(t, "rotate", "a", "--file", path, "--json")), &rotated); err != nil || rotated.ID != "a" {
		t.Fatalf("got %+v, %v", rotated, err)
	}
	h = &Handler{KeysFile: path}
	mustProvision(t, h)
	for _, key := range []string{first.Key, rotated.Key, second.Key} {
		if _, err := h.find(t.Context(), key); err != nil {
			t.Errorf("in its grace: %v", err)
		}
	}
	list := mustLLMKey(t, "list", "--file", path)
	for _, want := range []string{"ID ", "a ", "shop", "gold", "gpt-*,o3", "2100-01-01T00:00:00Z", "the secret before works until", second.ID, "active"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %q:\n%s", want, list)
		}
	}
	if out := mustLLMKey(t, "revoke", "a", "--file", path); out != "revoked a\n" {
		t.Errorf("got %q", out)
	}
	var rows []keyRow
	if err := json.Unmarshal([]byte(mustLLMKey(t, "list", "--file", path, "--json")), &rows); err != nil || len(rows) != 1 || rows[0].ID != second.ID {
		t.Errorf("got %+v, %v", rows, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{first.Key, second.Key, rotated.Key} {
		if bytes.Contains(text, []byte(secret)) || strings.Contains(list, secret) {
			t.Error("a secret is in the file or the list")
		}
	}
}

func TestAFileKeepsItsModeLinkAndDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no such modes")
	}
	dir := t.TempDir()
	path, link := filepath.Join(dir, "real.json"), filepath.Join(dir, "link.json")
	if err := os.WriteFile(path, []byte(annotated), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.json", link); err != nil {
		t.Fatal(err)
	}
	mustLLMKey(t, "new", "--file", link)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "// keys of the gateway") {
		t.Errorf("got %s, %v", text, err)
	}
	mustLLMKey(t, "new", "--file", filepath.Join(dir, "new.json"))
	if info, err := os.Lstat(filepath.Join(dir, "new.json")); err != nil || info.Mode() != 0o600 {
		t.Errorf("a new file has the mode %v, %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 { // with a lock for each file
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

func TestAFileThatIsChangedMeanwhileIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	other := file(entry("other", "key-other"))
	for _, before := range []string{"", annotated} {
		if before != "" {
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			_ = os.Remove(path)
		}
		err := changeFile(path, true, func(kt *keysText) ([]byte, error) {
			if err := os.WriteFile(path, []byte(other), 0o600); err != nil {
				t.Fatal(err)
			}
			return kt.add(&Key{ID: "new", Hash: hashOf("key-new")})
		})
		if err == nil || !strings.Contains(err.Error(), "somebody else has changed it") {
			t.Errorf("got %v", err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != other {
			t.Errorf("got %s, %v", text, err)
		}
	}
}

func TestCommandErrors(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.json"), filepath.Join(dir, "bad.json")
	secret := apikey.New()
	for path, text := range map[string]string{good: annotated, bad: `{"keys":[{"id":"` + secret + `"}]}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, want string
		args       []string
	}{
		{"file and address", "give one of them", []string{"list", "--file", good, "--address", "localhost:1"}},
		{"a key for an id", "this is a key, not the id", []string{"revoke", secret, "--file", good}},
		{"a key to be rotated", "this is a key, not the id", []string{"rotate", secret, "--file", good}},
		{"no id", "accepts 1 arg(s)", []string{"rotate", "--file", good}},
		{"an argument to new", "unknown command", []string{"new", "shop", "--file", good}},
		{"no such id", `no key "x"`, []string{"revoke", "x", "--file", good}},
		{"no such file", "no such file", []string{"revoke", "x", "--file", filepath.Join(dir, "none.json")}},
		{"bad file", "bad.json", []string{"new", "--file", bad}},
		{"a directory", "not a regular file", []string{"list", "--file", dir}},
		{"odd grace", "grace must be a duration", []string{"rotate", "a", "--file", good, "--grace", "soon"}},
		{"no models", "models must not be empty", []string{"new", "--file", good, "--models", ""}},
		{"reserved application", "is reserved", []string{"new", "--file", good, "--application", "default"}},
		{"nobody at the address", "asking the Caddy at", []string{"list", "--address", "unix/" + filepath.Join(dir, "none.sock")}},
		{"no such config", "finding the admin address", []string{"list", "--config", filepath.Join(dir, "none.json")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, errOut, err := llmKey(t, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if out != "" || strings.Contains(errOut+err.Error(), secret) {
				t.Errorf("printed %q and %q", out, errOut)
			}
		})
	}
	if text, err := os.ReadFile(good); err != nil || string(text) != annotated {
		t.Errorf("the file has become %s, %v", text, err)
	}
}

func TestRotatingInAFileAgainWithinTheGrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	var keys [3]issued
	get := func(i int, args ...string) {
		t.Helper()
		if err := json.Unmarshal([]byte(mustLLMKey(t, append(args, "--file", path, "--json")...)), &keys[i]); err != nil {
			t.Fatal(err)
		}
	}
	get(0, "new", "--id", "a")
	get(1, "rotate", "a")
	if _, _, err := llmKey(t, "rotate", "a", "--file", path); err == nil || !strings.Contains(err.Error(), "two secrets until") {
		t.Errorf("got %v", err)
	}
	get(2, "rotate", "a", "--end", "current")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true} {
		if got := strings.Contains(string(text), hashText(keys[i].Key)); got != want {
			t.Errorf("secret %d is in the file: %t", i, got)
		}
	}
}
