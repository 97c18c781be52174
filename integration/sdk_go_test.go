package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// goSDK is the program of the folder gosdk, which has the official Go clients.
type goSDK struct{ path string }

// buildGoSDK builds it, once for all tests. How long that takes depends on what has been
// compiled before.
func buildGoSDK(t *testing.T) goSDK {
	t.Helper()
	path, err := builtGoSDK()
	if err != nil {
		t.Fatal(err)
	}
	return goSDK{path}
}

var builtGoSDK = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(os.Getenv("XDG_DATA_HOME"), "gosdk") // which TestMain deletes
	cmd := exec.Command("go", "build", "-o", path, ".")       //nolint:noctx // it is of no one test
	cmd.Dir = "gosdk"
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return path, nil
})

// run makes the calls that the argument stands for.
func (g goSDK) run(t *testing.T, into any, a application, arg string) {
	t.Helper()
	runProgram(t, into, "", append(a.env(), "HOME="+t.TempDir()), g.path, arg)
}

func TestGoSDKs(t *testing.T) {
	t.Parallel()
	program := buildGoSDK(t)

	t.Run("get the same through the gateway", func(t *testing.T) {
		s := startSDK(t, everyRule, "")
		var direct, through map[string]json.RawMessage
		program.run(t, &direct, application{addr: s.direct, openAIKey: keyProvider, anthropicKey: keyProvider}, "calls")
		wantServed := s.provider.take("v1")
		program.run(t, &through, application{addr: s.addr, openAIKey: keyA, anthropicKey: keyA}, "calls")
		served := s.provider.take("v1")

		if len(direct) < 13 || len(direct) != len(through) {
			t.Fatalf("%d calls directly, %d through the gateway", len(direct), len(through))
		}
		for name, want := range direct {
			if bytes.Contains(want, []byte(`"failed":`)) {
				t.Errorf("%s: without the gateway: %s", name, want)
			}
			if got := through[name]; !bytes.Equal(got, want) {
				t.Errorf("%s: got  %s\nwant %s", name, got, want)
			}
		}
		for name, want := range map[string]bool{"chat stream": false, "chat stream with usage": true} {
			if got := !bytes.Contains(through[name], []byte(`"usages":null`)); got != want {
				t.Errorf("%s: usage %t, want %t", name, got, want)
			}
		}
		if served != wantServed {
			t.Errorf("the provider served %+v, and %+v without the gateway", served, wantServed)
		}
		s.charged(t, "app-a", served)
		s.keyStays(t, keyA)
	})

	t.Run("raise their errors and do not insist", func(t *testing.T) {
		s := startSDK(t, "limit 1000 tokens per 3650d", "")
		if a := s.chat(keyA); a.Status != 200 {
			t.Fatalf("the call that uses up the limit: %d: %s", a.Status, a.Body)
		}
		before := s.up.calls()
		for _, tt := range refusals {
			t.Run(tt.name, func(t *testing.T) {
				want := tt.want
				want.class = "Error" // both clients have one for all
				var got map[string]attempt
				program.run(t, &got, application{addr: s.addr, openAIKey: tt.key, anthropicKey: tt.key}, "refused")
				want.check(t, got)
			})
		}
		if n := s.up.calls() - before; n != 0 {
			t.Errorf("%d calls that were refused reached the provider", n)
		}
	})

	t.Run("wait out a short limit", func(t *testing.T) {
		s := startSDK(t, "limit 1 requests per 2s", "")
		var got map[string][]attempt
		program.run(t, &got, application{addr: s.addr, openAIKey: keyA, anthropicKey: keyB}, "patient")
		checkPatience(t, s, got)
	})
}
