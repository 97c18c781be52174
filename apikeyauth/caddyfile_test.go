package apikeyauth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
)

// hashOf is a key's hash as a configuration states it.
func hashOf(key string) string {
	d := sha256.Sum256([]byte(key))
	return hashPrefix + hex.EncodeToString(d[:])
}

func TestCaddyfileAdaptsToJSON(t *testing.T) {
	a, b := hashOf("key-a"), hashOf("key-b")
	for _, tc := range []struct{ name, input, want string }{
		{
			name:  "a key with nothing but its hash",
			input: "api_key_auth {\n key a " + a + "\n}",
			want:  `{"keys":[{"id":"a","hash":"` + a + `"}]}`,
		},
		{
			name: "a key with all it can have",
			input: "api_key_auth {\n key a " + a + ` {
				application "App One"
				group gold
				models gpt-* claude-*
				expires 2026-12-31
			}
			key b ` + b + ` {
				models none
				expires 2026-12-31T18:00:00+02:00
			}
			}`,
			want: `{"keys":[{"id":"a","hash":"` + a + `","application":"App One","group":"gold","models":["gpt-*","claude-*"],"expires":"2026-12-31"},` +
				`{"id":"b","hash":"` + b + `","models":["none"],"expires":"2026-12-31T18:00:00+02:00"}]}`,
		},
		{
			name:  "a hash behind a placeholder",
			input: "api_key_auth {\n key a {env.KEY_A}\n key b sha256:{file./run/b}\n}",
			want:  `{"keys":[{"id":"a","hash":"{env.KEY_A}"},{"id":"b","hash":"sha256:{file./run/b}"}]}`,
		},
		{
			name:  "a keys file",
			input: "api_key_auth {\n keys_file {env.DIR}/keys.json\n}",
			want:  `{"keys_file":"{env.DIR}/keys.json"}`,
		},
		{
			name:  "places of one's own",
			input: "api_key_auth {\n keys_file f\n header X-Team-Key\n header Authorization Token\n query key\n query api_key\n}",
			want:  `{"keys_file":"f","headers":[{"name":"X-Team-Key"},{"name":"Authorization","prefix":"Token"}],"query":["key","api_key"]}`,
		},
		{
			name:  "keys of the store",
			input: "api_key_auth {\n keys_store\n key_cache 1h\n}",
			want:  `{"keys_store":true,"key_cache":3600000000000}`,
		},
		{
			name:  "anonymous requests",
			input: "api_key_auth {\n keys_file f\n optional\n}",
			want:  `{"keys_file":"f","optional":{}}`,
		},
		{
			name:  "anonymous requests with a group and models",
			input: "api_key_auth {\n keys_file f\n optional {\n group guests\n models *-mini\n }\n}",
			want:  `{"keys_file":"f","optional":{"group":"guests","models":["*-mini"]}}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h Handler
			if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(tc.input)); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(&h)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestCaddyfileErrorsNameLineAndRule(t *testing.T) {
	a := hashOf("key-a")
	for _, tc := range []struct{ name, input, want string }{
		{"no keys at all", "optional", "there must be a key, a keys_file or keys_store"},
		{"unknown word", "keystore x", "unrecognized subdirective 'keystore', at Testfile:2"},
		{"store of keys with a word", "keys_store redis", "keys_store takes no arguments"},
		{"store of keys twice", "keys_store\nkeys_store", "keys_store already specified, at Testfile:3"},
		{"key cache without a store of keys", "keys_file f\nkey_cache 1m", "there is no keys_store"},
		{"key cache without a duration", "keys_store\nkey_cache", "key_cache takes one argument, at Testfile:3"},
		{"key cache of another form", "keys_store\nkey_cache long", "not \"long\", at Testfile:3"},
		{"key cache that is too short", "keys_store\nkey_cache 900ms", "at least 1s, such as 10m, not \"900ms\", at Testfile:3"},
		{"key cache twice", "keys_store\nkey_cache 1m\nkey_cache 2m", "key_cache already specified, at Testfile:4"},
		{"unknown word in a key", "key a " + a + " {\n rate 5\n}", "unrecognized subdirective 'rate', at Testfile:3"},
		{"unknown word in optional", "optional {\n application x\n}", "unrecognized subdirective 'application', at Testfile:3"},
		{"argument after optional", "optional guests", "wrong argument count"},
		{"optional twice", "optional\noptional", "optional already specified, at Testfile:3"},
		{"keys file twice", "keys_file a\nkeys_file b", "keys_file already specified, at Testfile:3"},
		{"keys file without a path", "keys_file", "keys_file takes one argument"},
		{"keys file with two paths", "keys_file a b", "keys_file takes one argument"},
		{"keys file with an empty path", `keys_file ""`, "keys_file must not be empty"},
		{"key without a hash", "key a", "key takes an id and the key's hash"},
		{"key with too much", "key a " + a + " b", "key takes an id and the key's hash"},
		{"hash of another kind", "key a md5:0123", `hash must be "sha256:" followed by 64 hex digits`},
		{"hash that is too short", "key a sha256:0123", `printf %s "$KEY" | sha256sum`},
		{"hash with other digits", "key a sha256:" + strings.Repeat("g", 64), `hash must be "sha256:"`},
		{"hash without its kind", "key a " + strings.TrimPrefix(a, hashPrefix), `hash must be "sha256:"`},
		{"hash of nothing", "key a " + hashOf(""), "hash is that of an empty key"},
		{"hash and id swapped", "key " + a + " a", "the id comes first, then the hash"},
		{"key as its own id", "key key-a " + a, "id is the key itself"},
		{"id twice", "key a " + a + "\nkey a " + hashOf("b"), "id is already that of keys[0] of the configuration, at Testfile:3"},
		{"id twice, hash behind a placeholder", "key a " + a + "\nkey a {env.B}", "id is already that of keys[0]"},
		{"hash twice", "key a " + a + "\nkey b " + a, "hash is already that of keys[0] of the configuration, at Testfile:3"},
		{"hash twice in another case", "key a " + a + "\nkey b sha256:" + strings.ToUpper(a[7:]), "hash is already that of keys[0]"},
		{"empty id", `key "" ` + a, "id must not be empty"},
		{"id like a path", "key /a " + a, `id must not start with "/"`},
		{"id like a matcher", "key @a " + a, `id must not start with "@"`},
		{"id with a line break", "key \"a\nb\" " + a, "id must be printable"},
		{"id that is too long", "key " + strings.Repeat("i", 257) + " " + a, "id must be at most 256 bytes long"},
		{"reserved application", "key a " + a + " {\n application default\n}", `application "default" is reserved for calls without one, at Testfile:3`},
		{"application like a matcher", "key a " + a + " {\n application @x\n}", `application must not start with "@"`},
		{"application twice", "key a " + a + " {\n application x\n application y\n}", "application already specified, at Testfile:4"},
		{"application missing", "key a " + a + " {\n application\n}", "application takes one argument"},
		{"group like a path", "key a " + a + " {\n group /x\n}", `group must not start with "/"`},
		{"group twice", "optional {\n group x\n group y\n}", "group already specified"},
		{"models line without models", "key a " + a + " {\n models\n}", "models must not be empty"},
		{"none beside a glob", "key a " + a + " {\n models none gpt-*\n}", `models: "none" must stand alone`},
		{"glob twice", "key a " + a + " {\n models x y x\n}", `models: glob "x" is given twice`},
		{"empty glob", "key a " + a + " {\n models \"\"\n}", "models must not contain an empty glob"},
		{"models twice", "key a " + a + " {\n models x\n models y\n}", "models already specified"},
		{"no date", "key a " + a + " {\n expires soon\n}", `expires must be a date (2026-12-31) or an RFC 3339 time (2026-12-31T18:00:00Z), not "soon", at Testfile:3`},
		{"date that is not in the calendar", "key a " + a + " {\n expires 2026-02-30\n}", "expires must be a date"},
		{"time without a zone", "key a " + a + " {\n expires 2026-12-31T18:00:00\n}", "expires must be a date"},
		{"expires twice", "key a " + a + " {\n expires 2026-12-31\n expires 2027-12-31\n}", "expires already specified"},
		{"header without a name", "header", "header takes a name"},
		{"header with too much", "header a b c", "header takes a name"},
		{"header that is none", "header X:Key", `"X:Key" is no header name, at Testfile:2`},
		{"header twice", "header X-Key\nheader x-key", `header "X-Key" is given twice, at Testfile:3`},
		{"cookie", "header cookie", `a key cannot stand in "cookie"`},
		{"query without a name", "query", "query takes one argument"},
		{"query twice", "query key\nquery key", `parameter "key" is given twice`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var h Handler
			err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("api_key_auth {\n" + tc.input + "\n}"))
			if err == nil {
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "Testfile:") {
				t.Errorf("got %q, want it to contain %q and a line", err, tc.want)
			}
		})
	}
}

func TestCaddyfileRefusesArguments(t *testing.T) {
	var h Handler
	err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("api_key_auth sk-secret {\n keys_file f\n}"))
	if err == nil || !strings.Contains(err.Error(), "takes no arguments") || strings.Contains(err.Error(), "sk-secret") {
		t.Errorf("got %v", err)
	}
}

// A raw key where its hash belongs is the likeliest slip of all, and the error is
// shown on screens and kept in CI logs.
func TestCaddyfileErrorsNeverShowAKey(t *testing.T) {
	const secret = "sk-live-0123456789"
	for _, input := range []string{
		"key a " + secret,
		"key " + secret,
		"key " + secret + " a",
		"key a sha256:" + secret,
		"key a " + hashOf(secret) + " " + secret,
		"key " + secret + " " + hashOf(secret),
		"key a b " + secret,
		"key a " + secret + " {\n group x\n}",
	} {
		var h Handler
		err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser("api_key_auth {\n" + input + "\n}"))
		if err == nil {
			t.Errorf("%s: no error", input)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error shows the key: %v", input, err)
		}
	}
}

func TestParseCaddyfile(t *testing.T) {
	h := httpcaddyfile.Helper{Dispenser: caddyfile.NewTestDispenser("api_key_auth {\n keys_file f\n}")}
	got, err := parseCaddyfile(h)
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := got.(*Handler); !ok || a.KeysFile != "f" {
		t.Errorf("got %#v", got)
	}
}

func FuzzCaddyfile(f *testing.F) {
	f.Add("key a " + hashOf("a") + " {\n application x\n models gpt-*\n}\nheader X-Key Bearer\noptional {\n group g\n}")
	f.Add("keys_file f\nquery key")
	f.Fuzz(func(t *testing.T, block string) {
		tokens, err := caddyfile.Tokenize([]byte("api_key_auth {\n"+block+"\n}"), "Testfile")
		if err != nil || !utf8.ValidString(block) { // JSON could not hold it
			return
		}
		var h Handler
		if h.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens)) != nil {
			return
		}
		// what parses says the same in JSON
		b, err := json.Marshal(&h)
		if err != nil {
			t.Fatal(err)
		}
		var again Handler
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if c, _ := json.Marshal(&again); !bytes.Equal(c, b) {
			t.Errorf("%s became %s", b, c)
		}
	})
}
