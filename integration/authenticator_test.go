package integration

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
)

// tokenSecret signs the tokens of these tests.
const tokenSecret = "a secret of the issuer and the gateway"

// tokenAuth is an authenticator as a plugin for JSON Web Tokens is one: the subject is the
// user, and a claim is published beside it. It knows one algorithm, HS256.
type tokenAuth struct{}

func init() {
	caddy.RegisterModule(tokenAuth{})
	httpcaddyfile.RegisterHandlerDirective("token_auth", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		return caddyauth.Authentication{ProvidersRaw: caddy.ModuleMap{"tokens": caddyconfig.JSON(tokenAuth{}, nil)}}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("token_auth", httpcaddyfile.Before, "basic_auth")
}

func (tokenAuth) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.authentication.providers.tokens", New: func() caddy.Module { return new(tokenAuth) }}
}

var errToken = errors.New("not a token of ours")

func (tokenAuth) Authenticate(w http.ResponseWriter, r *http.Request) (caddyauth.User, bool, error) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	text, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		return caddyauth.User{}, false, nil
	}
	signed, signature := text, ""
	if i := strings.LastIndexByte(text, '.'); i >= 0 {
		signed, signature = text[:i], text[i+1:]
	}
	head, body, _ := strings.Cut(signed, ".")
	var header struct{ Alg string }
	var claims struct {
		Sub, Plan string
		Exp       int64
	}
	switch {
	case readPart(head, &header) != nil, header.Alg != "HS256",
		!hmac.Equal([]byte(signature), []byte(sign(signed))),
		readPart(body, &claims) != nil, claims.Sub == "", time.Now().Unix() >= claims.Exp:
		return caddyauth.User{}, false, errToken
	}
	return caddyauth.User{ID: claims.Sub, Metadata: map[string]string{"plan": claims.Plan}}, true, nil
}

func readPart(text string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func sign(signed string) string {
	mac := hmac.New(sha256.New, []byte(tokenSecret))
	mac.Write([]byte(signed))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// token is one without a signature.
func token(alg, claims string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"typ":"JWT","alg":"`+alg+`"}`)) + "." + part([]byte(claims))
}

// tokenOf is a good one of a user and a plan.
func tokenOf(user, plan string, life time.Duration) string {
	t := token("HS256", fmt.Sprintf(`{"sub":%q,"plan":%q,"exp":%d}`, user, plan, time.Now().Add(life).Unix()))
	return t + "." + sign(t)
}

func TestUsersOfAnAuthenticatorHaveCountersOfTheirOwn(t *testing.T) {
	up := newUpstream(t, nil)
	g := start(t, up, `{site} {
		token_auth
		token_limit {name} {
			key {http.auth.user.id}
			limit 100 tokens per 3650d
			group pro {
				limit 200 tokens per 3650d
			}
			group_key {http.auth.user.plan}
		}
		reverse_proxy {upstream} {
			header_up Authorization "Bearer sk-provider"
		}
	}`)
	alice, bob, carol := tokenOf("alice", "free", time.Hour), tokenOf("bob", "free", time.Hour), tokenOf("carol", "pro", time.Hour)
	for i, call := range []struct {
		name, token string
		status      int
	}{
		{"alice", alice, 200},
		{"alice", alice, 200},
		{"alice, over her limit", alice, 429},
		{"alice, with another token", tokenOf("alice", "free", 2*time.Hour), 429},
		{"bob", bob, 200},
		{"carol", carol, 200},
		{"carol", carol, 200},
		{"carol", carol, 200},
		{"carol, whose plan has more", carol, 200},
		{"carol, over that", carol, 429},
		{"alice, with a larger plan", tokenOf("alice", "pro", time.Hour), 200},
	} {
		if a := g.chat(call.token); a.Status != call.status {
			t.Errorf("call %d, of %s: %d, want %d: %s", i+1, call.name, a.Status, call.status, a.Body)
		}
	}

	before := up.calls()
	forged := token("HS256", `{"sub":"bob","plan":"pro","exp":9999999999}`)
	unsigned := token("none", `{"sub":"bob","plan":"pro","exp":9999999999}`)
	for name, text := range map[string]string{
		"no token":                          "",
		"no token at all":                   "hello",
		"a token that has ended":            tokenOf("bob", "pro", -time.Hour),
		"a token with another's signature":  forged + bob[strings.LastIndexByte(bob, '.'):],
		"a token that says it needs none":   unsigned + ".",
		"the same with a signature":         unsigned + "." + sign(unsigned),
		"a token without its last part":     forged,
		"a gateway's key":                   keyA,
		"a token that is signed, of nobody": tokenOf("", "pro", time.Hour),
	} {
		if a := g.chat(text); a.Status != http.StatusUnauthorized {
			t.Errorf("%s: %d: %s", name, a.Status, a.Body)
		}
	}
	if n := up.calls() - before; n != 0 {
		t.Errorf("%d calls without a good token went to the provider", n)
	}
	for user, want := range map[string]int64{"alice": 180, "bob": 60, "carol": 240} {
		if got := g.used("", user, "tokens per 3650d").Used; got != want {
			t.Errorf("%s used %d tokens, want %d", user, got, want)
		}
	}
	if got := up.last().Header.Get("Authorization"); got != "Bearer sk-provider" {
		t.Errorf("the provider was shown %q", got)
	}
}
