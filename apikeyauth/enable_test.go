package apikeyauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/keyring"
	"github.com/llmlimits/caddy-llm-limits/store"
)

// A key is turned off through one replica, and on: another, which is not asked anything,
// goes by it within a second.
func TestDisablingAndEnabling(t *testing.T) {
	other := &Handler{}
	b, _ := serveStored(t, other)
	h := &Handler{KeysStore: true, ring: &ring{Ring: keyring.New(grantOf, keyring.Options{})}}
	mustProvision(t, h)
	h.serve(b)
	t.Cleanup(func() {
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
		h.ring.Close()
	})
	var key, next issued
	asked(t, http.StatusCreated, "POST", "/llm/keys", `{"id":"a","application":"app","models":["m"],"expires":"2100-01-01"}`, &key)
	asked(t, http.StatusOK, "POST", "/llm/keys/a/rotate", `{"grace":"1h"}`, &next)
	before, err := b.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, enabled := range []bool{false, false, true, true, false, true} {
		var row keyRow
		body, want := `{"enabled":true}`, error(nil)
		if !enabled {
			body, want = `{"enabled":false}`, errDisabled
		}
		began := time.Now()
		asked(t, http.StatusOK, "PATCH", "/llm/keys/a", body, &row)
		if row.ID != "a" || row.Application != "app" || row.Disabled != !enabled || row.PreviousUntil == nil {
			t.Errorf("got %+v", row)
		}
		for _, secret := range []string{key.Key, next.Key} {
			if _, err := h.find(t.Context(), secret); !errors.Is(err, want) {
				t.Errorf("enabled %t, here: %v", enabled, err)
			}
			for {
				_, err := other.find(t.Context(), secret)
				if errors.Is(err, want) {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatalf("enabled %t, elsewhere: %v", enabled, err)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	after, err := b.Get(t.Context(), "a")
	if err != nil || !bytes.Equal(after.Record(), before.Record()) {
		t.Errorf("got %+v, %v\nwant %+v", after, err, before)
	}
}

// busy is a store in which somebody else changes each key that is read.
type busy struct {
	store.Keys
	times atomic.Int64 // yet
}

func (b *busy) Get(ctx context.Context, id string) (store.Key, error) {
	k, err := b.Keys.Get(ctx, id)
	if err == nil && b.times.Add(-1) >= 0 {
		other := k
		other.Group += "x"
		_, err = b.Put(ctx, other)
	}
	return k, err
}

func TestDisablingAKeyThatOthersChange(t *testing.T) {
	h := &Handler{}
	b, _ := serveStored(t, h)
	stored(t, b, store.Key{ID: "a"})
	others := &busy{Keys: b.Keys}
	h.ring.mu.Lock()
	h.ring.keys = others
	h.ring.mu.Unlock()
	others.times.Store(enableTries)
	if w := ask(t, "PATCH", "/llm/keys/a", `{"enabled":false}`); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "nothing was changed") {
		t.Errorf("got %d: %s", w.Code, w.Body)
	}
	others.times.Store(enableTries - 1)
	asked(t, http.StatusOK, "PATCH", "/llm/keys/a", `{"enabled":false}`, nil)
	if k, err := b.Get(t.Context(), "a"); err != nil || !k.Disabled || k.Group != strings.Repeat("x", 2*enableTries-1) {
		t.Errorf("got %+v, %v", k, err)
	}
}

func TestEnablingAsksForWhatItNeeds(t *testing.T) {
	b, _ := serveStored(t, &Handler{Keys: []Key{{ID: "stated", Hash: hashOf("key-stated")}}})
	stored(t, b, store.Key{ID: "a"})
	for _, tc := range []struct {
		name, target, body string
		status             int
		want               string
	}{
		{"nothing", "/llm/keys/a", ``, 400, `"enabled" must be there`},
		{"an empty object", "/llm/keys/a", `{}`, 400, `"enabled" must be there`},
		{"null", "/llm/keys/a", `{"enabled":null}`, 400, `"enabled" must be there`},
		{"a text", "/llm/keys/a", `{"enabled":"no"}`, 400, `field "enabled" has the wrong type`},
		{"another field", "/llm/keys/a", `{"enabled":true,"group":"gold"}`, 400, `unknown field "group"`},
		{"no such key", "/llm/keys/nobody", `{"enabled":true}`, 404, "no key of that id"},
		{"a stated key", "/llm/keys/stated", `{"enabled":false}`, 404, "no key of that id"},
		{"a rotation", "/llm/keys/a/rotate", `{"enabled":false}`, 405, "method PATCH"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if w := ask(t, "PATCH", tc.target, tc.body); w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d: %s", w.Code, w.Body)
			}
		})
	}
	b.down.Store(true)
	if w := ask(t, "PATCH", "/llm/keys/a", `{"enabled":false}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("while the store is away: %d: %s", w.Code, w.Body)
	}
}

func TestDisablingInAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, []byte(annotated), 0o600); err != nil {
		t.Fatal(err)
	}
	disabled := func(want map[string]bool) {
		t.Helper()
		var rows []keyRow
		if err := json.Unmarshal([]byte(mustLLMKey(t, "list", "--file", path, "--json")), &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.Disabled != want[r.ID] {
				t.Errorf("%s is disabled: %t", r.ID, r.Disabled)
			}
		}
	}
	disabled(nil)
	for range 2 {
		if out := mustLLMKey(t, "disable", "a", "--file", path); out != "disabled a\n" {
			t.Errorf("got %q", out)
		}
	}
	mustLLMKey(t, "disable", "b", "--file", path)
	disabled(map[string]bool{"a": true, "b": true})
	for range 2 {
		if out := mustLLMKey(t, "enable", "a", "--file", path, "--json"); !strings.Contains(out, `"enabled": true`) {
			t.Errorf("got %q", out)
		}
	}
	mustLLMKey(t, "enable", "b", "--file", path)
	if text, err := os.ReadFile(path); err != nil || string(text) != annotated {
		t.Errorf("got %s, %v", text, err)
	}
	if _, _, err := llmKey(t, "disable", "x", "--file", path); err == nil || !strings.Contains(err.Error(), `no key "x"`) {
		t.Errorf("got %v", err)
	}
}

func TestAStatedDisabledIsReplaced(t *testing.T) {
	kt := parsedText(t, `{"keys":[{"disabled":false,"id":"a","hash":"`+hashOf("key-a")+`"}]}`)
	out, err := kt.enable("a", false)
	if err != nil || !strings.Contains(string(out), `"disabled":true,"id"`) {
		t.Errorf("got %s, %v", out, err)
	}
}
