package integration

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// builtWithJWT is a Caddy with the modules of this repository and the plugin of the folder
// jwtauth, built by xcaddy as operators do. How long that takes depends on what has been
// compiled before.
var builtWithJWT = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(os.Getenv("XDG_DATA_HOME"), "caddy-jwt") // which TestMain deletes
	const module = "github.com/llmlimits/caddy-llm-limits"
	//nolint:noctx // it is of no one test
	cmd := exec.Command("go", "tool", "xcaddy", "build", caddyVersion(), "--output", path,
		"--with", module+"@v0.0.0=.", "--with", module+"/integration/jwtauth@v0.0.0=./integration/jwtauth")
	cmd.Dir = ".."
	// the same flags as make, so that what it has compiled is used again
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", `XCADDY_GO_BUILD_FLAGS=-ldflags "-w -s" -tags nobadger,nomysql,nopgx`)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return path, nil
})

// caddyVersion is that of the Caddy that the tests are built with.
func caddyVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "github.com/caddyserver/caddy/v2" })
	if i < 0 {
		return ""
	}
	return info.Deps[i].Version
}

// issuer signs tokens.
type issuer struct{ key *rsa.PrivateKey }

func newIssuer(t *testing.T) issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return issuer{key}
}

// keyFile writes the public key.
func (i issuer) keyFile(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "issuer.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// unsigned is a token without a signature.
func unsigned(alg, claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"typ":"JWT","alg":"`+alg+`"}`)) + "." + part([]byte(claims))
}

// sign appends a signature by RS256.
func (i issuer) sign(t *testing.T, token string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(token))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return token + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func claimsOf(user, plan, audience string, life time.Duration) string {
	return fmt.Sprintf(`{"iss":"https://login.example.com","aud":%q,"sub":%q,"plan":%q,"exp":%d}`, audience, user, plan, time.Now().Add(life).Unix())
}

// token is a good one of a user and a plan.
func (i issuer) token(t *testing.T, user, plan string, life time.Duration) string {
	t.Helper()
	return i.sign(t, unsigned("RS256", claimsOf(user, plan, "llm", life)))
}

func TestUsersOfAnAuthenticatorHaveCountersOfTheirOwn(t *testing.T) {
	exe, err := builtWithJWT()
	if err != nil {
		t.Fatal(err)
	}
	is := newIssuer(t)
	k := newKeeper(t, nil)
	k.exe = exe
	k.config = func(addr, admin string) string {
		return fmt.Sprintf(`{
	admin unix/%s
	auto_https off
	persist_config off
}
http://%s {
	jwt_auth {
		key_file %s
		issuer   https://login.example.com
		audience llm
		claims   plan
	}
	token_limit users {
		key {http.auth.user.id}
		limit 100 tokens per 3650d
		group pro {
			limit 200 tokens per 3650d
		}
		group_key {http.auth.user.plan}
	}
	reverse_proxy %s {
		header_up Authorization "Bearer sk-provider"
	}
}
`, admin, addr, is.keyFile(t), k.up.addr)
	}
	p := k.run(t)
	chat := func(token string) (status int, body string) {
		t.Helper()
		req, err := http.NewRequest(http.MethodPost, "http://"+p.addr+"/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(answer)
	}

	alice, bob, carol := is.token(t, "alice", "free", time.Hour), is.token(t, "bob", "free", time.Hour), is.token(t, "carol", "pro", time.Hour)
	for i, call := range []struct {
		name, token string
		status      int
	}{
		{"alice", alice, 200},
		{"alice", alice, 200},
		{"alice, over her limit", alice, 429},
		{"alice, with another token", is.token(t, "alice", "free", 2*time.Hour), 429},
		{"bob", bob, 200},
		{"carol", carol, 200},
		{"carol", carol, 200},
		{"carol", carol, 200},
		{"carol, whose plan has more", carol, 200},
		{"carol, over that", carol, 429},
		{"alice, with a larger plan", is.token(t, "alice", "pro", time.Hour), 200},
	} {
		if status, body := chat(call.token); status != call.status {
			t.Errorf("call %d, of %s: %d, want %d: %s", i+1, call.name, status, call.status, body)
		}
	}

	before := k.up.calls()
	claims := claimsOf("bob", "pro", "llm", time.Hour)
	for name, token := range map[string]string{
		"no token":                          "",
		"no token at all":                   "hello",
		"a token that has ended":            is.token(t, "bob", "pro", -time.Hour),
		"a token with another's signature":  unsigned("RS256", claims) + bob[strings.LastIndexByte(bob, '.'):],
		"a token of another issuer's key":   newIssuer(t).sign(t, unsigned("RS256", claims)),
		"a token that says it needs none":   unsigned("none", claims) + ".",
		"the same with a signature":         is.sign(t, unsigned("none", claims)),
		"a token without its last part":     unsigned("RS256", claims),
		"a token for somebody else":         is.sign(t, unsigned("RS256", claimsOf("bob", "pro", "mail", time.Hour))),
		"a gateway's key":                   keyA,
		"a token that is signed, of nobody": is.token(t, "", "pro", time.Hour),
	} {
		if status, body := chat(token); status != http.StatusUnauthorized {
			t.Errorf("%s: %d: %s", name, status, body)
		}
	}
	if n := k.up.calls() - before; n != 0 {
		t.Errorf("%d calls without a good token went to the provider", n)
	}

	g := &gateway{t: t, admin: p.admin}
	for user, want := range map[string]int64{"alice": 180, "bob": 60, "carol": 240} {
		var rows []row
		atRest(func() bool {
			rows = nil
			g.adminGet("/llm/usage?instance=users&consumer="+user, &rows)
			return len(rows) == 1 && rows[0].Reserved == 0
		})
		if len(rows) != 1 || rows[0].Rule != "tokens per 3650d" || rows[0].Used != want {
			t.Errorf("%s used %+v, want %d tokens", user, rows, want)
		}
	}
	if got := k.up.last().Header.Get("Authorization"); got != "Bearer sk-provider" {
		t.Errorf("the provider was shown %q", got)
	}
	if strings.Contains(p.out.String(), bob) {
		t.Error("a token stands in the log")
	}
}
