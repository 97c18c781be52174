package llmusage_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/llmlimits/caddy-llm-limits/llmusage"
)

var update = flag.Bool("update", false, "write what is made into the golden files")

func TestUnmarshalCaddyfile(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       *llmusage.Handler
	}{
		{"the least", "llm_usage", &llmusage.Handler{}},
		{"an empty block", "llm_usage {\n}", &llmusage.Handler{}},
		{"a path", "llm_usage /mine", &llmusage.Handler{Path: "/mine"}},
		{"instances", "llm_usage {\ninstances a b\n}", &llmusage.Handler{Instances: []string{"a", "b"}}},
		{"both", "llm_usage /my/usage {\ninstances a\n}", &llmusage.Handler{Path: "/my/usage", Instances: []string{"a"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := new(llmusage.Handler)
			if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(tc.text)); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(h, tc.want) {
				t.Errorf("got %+v, want %+v", h, tc.want)
			}
		})
	}
}

func TestUnmarshalCaddyfileRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"a word that is no path", "llm_usage usage", []string{`path "usage"`, "does not start with /", ":1"}},
		{"a wildcard", "llm_usage /usage/*", []string{`path "/usage/*"`, "not a plain path", ":1"}},
		{"a placeholder", "llm_usage /{path}", []string{`path "/{path}"`, "not a plain path", ":1"}},
		{"a query", "llm_usage /usage?a", []string{`path "/usage?a"`, "not a plain path", ":1"}},
		{"an escape", "llm_usage /us%61ge", []string{`path "/us%61ge"`, "not a plain path", ":1"}},
		{"dots", "llm_usage /a/../b", []string{`path "/a/../b"`, `write "/b"`, ":1"}},
		{"two slashes", "llm_usage //b", []string{`path "//b"`, `write "/b"`, ":1"}},
		{"two paths", "llm_usage /a /b", []string{"'/b'", "one path", ":1"}},
		{"an unknown word", "llm_usage {\nlimits\n}", []string{"unrecognized subdirective 'limits'", ":2"}},
		{"no instance", "llm_usage {\ninstances\n}", []string{"argument", ":2"}},
		{"an instance twice", "llm_usage {\ninstances a b a\n}", []string{`instance "a"`, "twice", ":2"}},
		{"instances without a name", "llm_usage {\ninstances a \"\"\n}", []string{"instances[1]", "no name", ":2"}},
		{"instances twice", "llm_usage {\ninstances a\ninstances b\n}", []string{"instances already specified", ":3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := new(llmusage.Handler).UnmarshalCaddyfile(caddyfile.NewTestDispenser(tc.text))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestJSONIsChecked(t *testing.T) {
	for _, tc := range []struct{ name, handler, want string }{
		{"a path", `{"handler":"llm_usage","path":"usage"}`, `llm_usage: path "usage" does not start with /`},
		{"an instance twice", `{"handler":"llm_usage","instances":["a","a"]}`, `llm_usage: instances[1]: instance "a" stands here twice`},
		{"an unknown field", `{"handler":"llm_usage","paths":"/a"}`, `unknown field "paths"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var config caddy.Config
			text := `{"admin":{"disabled":true},"apps":{"http":{"servers":{"s":{"listen":["127.0.0.1:0"],"routes":[{"handle":[` + tc.handler + `]}]}}}}}`
			if err := json.Unmarshal([]byte(text), &config); err != nil {
				t.Fatal(err)
			}
			if err := caddy.Validate(&config); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestAdapt(t *testing.T) {
	paths, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".caddyfiletest"), func(t *testing.T) {
			file, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text, want, _ := strings.Cut(string(file), "----------\n")
			got, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), nil)
			if err != nil {
				if want = strings.TrimSpace(want); want == "" || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %q, want %s", err, want)
				}
				return
			}
			for _, w := range warnings {
				t.Errorf("warning: %s", w)
			}
			var b bytes.Buffer
			if err := json.Indent(&b, got, "", "\t"); err != nil {
				t.Fatal(err)
			}
			b.WriteByte('\n')
			if *update {
				want = b.String()
				if err := os.WriteFile(path, []byte(text+"----------\n"+want), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if b.String() != want {
				t.Errorf("got\n%s\nwant\n%s", &b, want)
			}
		})
	}
}
