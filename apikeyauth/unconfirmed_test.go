package apikeyauth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/logging"

	"github.com/llmlimits/caddy-llm-limits/internal/datadir"
)

func TestMain(m *testing.M) { os.Exit(datadir.Run(m)) }

// logged has Caddy log to a file until the test is over, and returns what it has.
func logged(t *testing.T) func() string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	config, err := json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
		"logging": map[string]any{"logs": map[string]any{"default": map[string]any{"writer": map[string]any{"output": "file", "filename": path}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return func() string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

// A revocation that the store does not confirm is sent again, and is one if the key is gone
// then. Where it is never confirmed, the answer and the log say so: who asks again is told
// that there is no such key.
func TestARevocationThatTheStoreDoesNotConfirm(t *testing.T) {
	log := logged(t)
	h := &Handler{}
	b, _ := serveStored(t, h)
	for _, tc := range []struct {
		name   string
		unsure int64
		status int
		line   string
	}{
		{"confirmed later", putTries - 1, http.StatusNoContent, `"API key revoked"`},
		{"never", putTries, http.StatusServiceUnavailable, `"API key revoked, not confirmed by the store"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var key issued
			asked(t, http.StatusCreated, "POST", "/llm/keys", `{}`, &key)
			b.unsureGone.Store(tc.unsure)
			w := ask(t, "DELETE", "/llm/keys/"+key.ID, "")
			if w.Code != tc.status || w.Code == http.StatusServiceUnavailable && !strings.Contains(w.Body.String(), "until the answer is 204 or 404") {
				t.Errorf("got %d: %s", w.Code, w.Body)
			}
			if _, err := h.find(t.Context(), key.Key); err == nil {
				t.Error("it works still")
			}
			b.unsureGone.Store(0)
			asked(t, http.StatusNotFound, "DELETE", "/llm/keys/"+key.ID, "", nil)
			lines := 0
			for line := range strings.Lines(log()) {
				if strings.Contains(line, fmt.Sprintf(`"key_id":%q`, key.ID)) && strings.Contains(line, "API key revoked") {
					if lines++; !strings.Contains(line, tc.line) {
						t.Errorf("logged %s", line)
					}
				}
			}
			if lines != 1 {
				t.Errorf("%d lines say that it was revoked", lines)
			}
		})
	}
	// A slip of the pen is not taken for a revocation.
	b.unsureGone.Store(1)
	asked(t, http.StatusNotFound, "DELETE", "/llm/keys/nobody", "", nil)
}
