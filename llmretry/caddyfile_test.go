package llmretry_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/llmlimits/caddy-llm-limits" // for the order of the directives
)

var update = flag.Bool("update", false, "write what is adapted into the golden files")

func adapt(text string) ([]byte, error) {
	got, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	return got, err
}

func TestAdapt(t *testing.T) {
	paths, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files (%v)", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text, want, _ := strings.Cut(string(raw), "----------\n")
			got, err := adapt(text)
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := json.Indent(&b, got, "", "\t"); err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(path, []byte(text+"----------\n"+b.String()+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if b.String() != strings.TrimSpace(want) {
				t.Errorf("got\n%s\nwant\n%s", &b, want)
			}
			if err := validate(got); err != nil {
				t.Errorf("it is adapted, and then refused: %v", err)
			}
		})
	}
}

// validate checks a config as `caddy validate` does.
func validate(config []byte) error {
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	return caddy.Validate(&c)
}

func TestCaddyfileIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name, args, line string
		want             []string
	}{
		{"a name", "mine", "", []string{"unexpected 'mine'", "llm_retry has no name", ":2"}},
		{"an unknown word", "", "retries 3", []string{"unrecognized subdirective 'retries'", ":3"}},
		{"a word twice", "", "attempts 3\nattempts 3", []string{"attempts already specified", ":4"}},
		{"attempts of nothing", "", "attempts", []string{"argument", ":3"}},
		{"no attempt", "", "attempts 0", []string{"attempts '0' is not a number from 1 to 10", ":3"}},
		{"too many attempts", "", "attempts 11", []string{"attempts 11 is not a number from 1 to 10", ":3"}},
		{"on nothing", "", "on", []string{"argument", ":3"}},
		{"a class of statuses", "", "on 5xx", []string{"'5xx' is not a status", ":3"}},
		{"a status that is no failure", "", "on 200", []string{"200 is not a status from 400 to 599", ":3"}},
		{"a status twice", "", "on 429 503 429", []string{"429 stands there twice", ":3"}},
		{"no wait", "", "max_wait 0s", []string{"max_wait: 0s must be greater than zero", ":3"}},
		{"a wait without a unit", "", "max_wait 5", []string{"'5' is not a duration", ":3"}},
		{"a fallback to the same", "", "fallback", []string{"fallback needs a model or directives", ":3"}},
		{"a fallback to two models", "", "fallback a b", []string{"argument", ":3"}},
		{"a fallback with an unknown directive", "", "fallback {\nproxy x\n}", []string{"unrecognized directive: proxy"}},
		{"half a breaker", "", "breaker 5", []string{"breaker takes `<failures> per <duration> [open <duration>]`", ":3"}},
		{"a breaker of no failures", "", "breaker 0 per 1m", []string{"failures 0 is not a number from 1", ":3"}},
		{"a breaker of a moment", "", "breaker 5 per 10ms", []string{"per 10ms is shorter than a second", ":3"}},
		{"a breaker that opens for nothing", "", "breaker 5 per 1m open 0s", []string{"0s must be greater than zero", ":3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := adapt(":80 {\nllm_retry " + tt.args + " {\n" + tt.line + "\n}\n}")
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestJSONIsRefused(t *testing.T) {
	for _, tt := range []struct{ name, members, want string }{
		{"attempts", `"attempts":-1`, "llm_retry: attempts -1"},
		{"a status", `"on":[600]`, "llm_retry: on: 600"},
		{"a wait", `"max_wait":-1`, "llm_retry: max_wait"},
		{"a fallback", `"fallback":[{"model":"a"},{}]`, "llm_retry: fallback 2: needs a model or routes"},
		{"a fallback's model", `"fallback":[{"model":"a\ufffd"}]`, "llm_retry: fallback 1: model \"a\ufffd\" must be valid UTF-8"},
		{"a fallback that is null", `"fallback":[null]`, "llm_retry: fallback 1"},
		{"a breaker", `"breaker":{"failures":1}`, "llm_retry: breaker: per 0s is shorter"},
		{"an unknown member", `"retries":1`, "unknown field"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := validate([]byte(`{"apps":{"http":{"servers":{"s":{"routes":[{"handle":[{"handler":"llm_retry",` + tt.members + `}]}]}}}}}`))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// FuzzCaddyfile looks for a panic, or a handler that is read and then refused.
func FuzzCaddyfile(f *testing.F) {
	f.Add("attempts 2\non 429\nmax_wait 5s")
	f.Add("fallback m {\nrespond x\n}\nbreaker 5 per 1m open 2s")
	f.Fuzz(func(t *testing.T, block string) {
		got, err := adapt(":80 {\nllm_retry {\n" + block + "\n}\n}")
		if err != nil || !json.Valid(got) {
			return
		}
		var h struct{ Attempts int }
		if err := json.Unmarshal(got, &h); err != nil || h.Attempts < 0 {
			t.Errorf("%q became %s", block, got)
		}
	})
}
