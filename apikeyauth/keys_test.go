package apikeyauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/modelname"
)

func TestFindHonoursTheKeysState(t *testing.T) {
	at := func(s string) time.Time {
		when, err := parseTime("now", s)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	x := newIndexer(0)
	err := x.add([]Key{
		{ID: "plain", Hash: hashOf("plain-key")},
		{ID: "dated", Hash: hashOf("dated-key"), Expires: "2026-12-31"},
		{ID: "timed", Hash: hashOf("timed-key"), Expires: "2026-12-31T02:00:00+02:00"},
		{ID: "off", Hash: hashOf("off-key"), Disabled: true},
		{ID: "rotated", Hash: hashOf("new-key"), Previous: &Previous{Hash: hashOf("old-key"), Until: "2026-12-31"}},
		{ID: "both", Hash: hashOf("b-new"), Expires: "2026-12-30", Previous: &Previous{Hash: hashOf("b-old"), Until: "2026-12-31"}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	const before, edge = "2026-12-30T23:59:59.999999999Z", "2026-12-31T00:00:00Z"
	for _, tc := range []struct {
		name, key, now, id string
		err                error
	}{
		{"known", "plain-key", edge, "plain", nil},
		{"unknown", "plain-kex", edge, "", errUnknown},
		{"empty", "", edge, "", errMalformed},
		{"as long as a key can be", strings.Repeat("k", maxKeyLen), edge, "", errUnknown},
		{"longer than any key", strings.Repeat("k", maxKeyLen+1), edge, "", errMalformed},
		{"with a space", "plain-key plain-key", edge, "", errMalformed},
		{"with a control byte", "plain-key\x00", edge, "", errMalformed},
		{"with a letter beyond ASCII", "schlüssel", edge, "", errMalformed},
		{"the hash instead of the key", hashOf("plain-key"), edge, "", errUnknown},
		{"before its date", "dated-key", before, "dated", nil},
		{"on its date", "dated-key", edge, "dated", errExpired},
		{"before its time", "timed-key", before, "timed", nil},
		{"at its time", "timed-key", edge, "timed", errExpired},
		{"disabled", "off-key", edge, "off", errDisabled},
		{"rotated, the new secret", "new-key", edge, "rotated", nil},
		{"rotated, the old secret in its grace", "old-key", before, "rotated", nil},
		{"rotated, the old secret after it", "old-key", edge, "rotated", errRotated},
		{"the grace does not outlast the key", "b-old", before, "both", errExpired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, err := x.index.find(tc.key, at(tc.now))
			if !errors.Is(err, tc.err) {
				t.Errorf("got error %v, want %v", err, tc.err)
			}
			var id any
			if g != nil {
				id = g.id
			}
			if tc.id != "" && id != tc.id || tc.id == "" && g != nil {
				t.Errorf("got id %v, want %q", id, tc.id)
			}
		})
	}
}

func TestKeysThatNoIndexHolds(t *testing.T) {
	a, b := hashOf("a-key"), hashOf("b-key")
	for _, tc := range []struct {
		name string
		keys []Key
		want string
	}{
		{"id missing", []Key{{Hash: a}}, `keys[0]: id must not be empty`},
		{"hash missing", []Key{{ID: "a"}}, `keys[0] (id "a"): hash must be "sha256:"`},
		{"id twice", []Key{{ID: "a", Hash: a}, {ID: "a", Hash: b}}, `keys[1] (id "a"): id is already that of keys[0] of the configuration`},
		{"hash twice", []Key{{ID: "a", Hash: a}, {ID: "b", Hash: a}}, `keys[1] (id "b"): hash is already that of keys[0]`},
		{"former secret of another key", []Key{{ID: "a", Hash: a}, {ID: "b", Hash: b, Previous: &Previous{a, "2026-12-31"}}}, `hash is already that of keys[0]`},
		{"former secret not changed", []Key{{ID: "a", Hash: a, Previous: &Previous{a, "2026-12-31"}}}, `hash is already that of keys[0]`},
		{"former secret without an end", []Key{{ID: "a", Hash: a, Previous: &Previous{Hash: b}}}, `previous: until must be a date`},
		{"former secret without a hash", []Key{{ID: "a", Hash: a, Previous: &Previous{Until: "2026-12-31"}}}, `previous: hash must be`},
		{"reserved application", []Key{{ID: "a", Hash: a, Application: "default"}}, `application "default" is reserved`},
		{"group like a matcher", []Key{{ID: "a", Hash: a, Group: "@g"}}, `group must not start with "@"`},
		{"no models, and not so said", []Key{{ID: "a", Hash: a, Models: Models{}}}, `models must not be empty`},
		{"bad date", []Key{{ID: "a", Hash: a, Expires: "31.12.2026"}}, `expires must be a date`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := newIndexer(0).add(tc.keys, false)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

func TestAKeyThatIsItsOwnIDIsNotShown(t *testing.T) {
	err := newIndexer(0).add([]Key{{ID: "sk-secret", Hash: hashOf("sk-secret")}}, true)
	if !errors.Is(err, errPublicID) || strings.Contains(err.Error(), "sk-secret") {
		t.Errorf("got %v", err)
	}
}

func TestModelsTellAbsentFromEmpty(t *testing.T) {
	for _, tc := range []struct {
		name, input string
		want        string // of the compiled list: what it says of "gpt-4o", or an error
	}{
		{"absent", `{}`, "true"},
		{"a match", `{"models":["gpt-*"]}`, "true"},
		{"no match", `{"models":["claude-*"]}`, "false"},
		{"none", `{"models":["none"]}`, "false"},
		{"empty", `{"models":[]}`, "models must not be empty"},
		{"null", `{"models":null}`, "models must not be empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k Key
			if err := json.Unmarshal([]byte(tc.input), &k); err != nil {
				t.Fatal(err)
			}
			// Caddy marshals configurations and reads them again
			b, err := json.Marshal(k)
			if err != nil {
				t.Fatal(err)
			}
			k = Key{}
			if err := json.Unmarshal(b, &k); err != nil {
				t.Fatal(err)
			}
			a, err := k.Models.compile()
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprint(a.allows("gpt-4o"))
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGlobs(t *testing.T) {
	for _, tc := range []struct {
		glob, model string
		want        bool
	}{
		{"gpt-4o", "gpt-4o", true},
		{"gpt-4o", "GPT-4o", true},
		{"GPT-4O", "gpt-4o", true},
		{"gpt-4o", "gpt-4o-mini", false},
		{"gpt-4o", "openai/gpt-4o", true},
		{"gpt-4o*", "gpt-4o-mini", true},
		{"*", "anything/at:all", true},
		{"*/llama-*", "meta-llama/a/llama-3", true},
		{"*/llama-*", "llama-3", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"*a*b*", "b-a", false},
		{"*a*b*", "xaxbx", true},
		{"**", "x", true},
		{"*", "", false}, // a call whose model is not known
		{"gpt-4?", "gpt-4o", false},
		{"[a-z]*", "gpt", false},
	} {
		if got := (&allowlist{globs: []modelname.Glob{modelname.NewGlob(tc.glob)}}).allows(tc.model); got != tc.want {
			t.Errorf("%q allows %q: got %t", tc.glob, tc.model, got)
		}
	}
}

// A list means the models that a model block of the same globs means: no way to write a
// name leads past it, and none that is in it is refused.
func TestModelsAreThoseOfAModelBlock(t *testing.T) {
	for _, tc := range []struct {
		globs   string
		allowed string
		not     string
	}{
		{"gpt-4o", "gpt-4o GPT-4o openai/gpt-4o gpt-4o-2024-08-06 openrouter/openai/gpt-4o:nitro azure/gpt-4o models/gpt-4o gpt-4o@preset/mine", "gpt-4o-mini openai/gpt-4o-mini gpt-4o-mini-2024-07-18 gpt-4o-audio-preview o3 gpt-4o/o3"},
		{"gpt-4o-2024-08-06", "gpt-4o-2024-08-06 openai/GPT-4o-2024-08-06", "gpt-4o gpt-4o-2024-11-20 openai/gpt-4o"},
		{"openai/gpt-4o", "openai/gpt-4o OpenAI/gpt-4o openai/gpt-4o-2024-08-06", "gpt-4o azure/gpt-4o openai/gpt-4o-mini"},
		{"claude-sonnet-4", "claude-sonnet-4-20250514 anthropic/claude-sonnet-4 eu.anthropic.claude-sonnet-4-20250514-v1:0 claude-sonnet-4@20250514 anthropic.claude-sonnet-4-20250514-v1%3A0", "claude-sonnet-4-5 eu.anthropic.claude-sonnet-4-5-20250929-v1:0 claude-opus-4"},
		{"llama3:latest", "llama3 llama3:latest Llama3", "llama3:70b llama3.1"},
		{"llama3", "llama3 llama3:latest", "llama3:70b"},
		{"models/gemini-2.5-pro", "gemini-2.5-pro models/gemini-2.5-pro publishers/google/models/gemini-2.5-pro", "gemini-2.5-flash models/gemini-2.5-flash"},
		{"amazon.nova-lite-v1:0", "amazon.nova-lite-v1:0 amazon.nova-lite-v1%3A0", "nova-pro amazon.nova-pro-v1:0"},
		{"gpt-4o*", "gpt-4o gpt-4o-mini openai/gpt-4o-mini", "o3 openai/o3 gpt-4 openai/gpt-4"},
		{"*-mini", "gpt-4o-mini openai/gpt-4o-mini-2024-07-18", "gpt-4o o3-pro"},
		{"openai/*", "openai/o3 OpenAI/gpt-4o", "o3 anthropic/claude-opus-4"},
	} {
		models := Models(strings.Fields(tc.globs))
		a, err := models.compile()
		if err != nil {
			t.Fatal(err)
		}
		for names, want := range map[string]bool{tc.allowed: true, tc.not: false} {
			for _, name := range strings.Fields(names) {
				if got := a.allows(name); got != want {
					t.Errorf("%s: %s is allowed: %t, want %t", tc.globs, name, got, want)
				}
				if block := modelname.ForModels(tc.globs).MatchAny(modelname.Forms(name)); block != want {
					t.Errorf("%s: a model block has %s: %t, want %t", tc.globs, name, block, want)
				}
			}
		}
	}
}
