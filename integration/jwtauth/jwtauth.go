// Package jwtauth is a Caddy plugin that authenticates callers by JSON Web Tokens. The tests
// build it into a Caddy beside the modules of this repository, as operators build plugins of
// others.
package jwtauth

import (
	"crypto/rsa"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"github.com/golang-jwt/jwt/v5"
)

func init() {
	caddy.RegisterModule(new(Provider))
	httpcaddyfile.RegisterHandlerDirective("jwt_auth", parseCaddyfile)
	httpcaddyfile.RegisterDirectiveOrder("jwt_auth", httpcaddyfile.Before, "basic_auth")
}

// Provider authenticates by a bearer token that is signed by RS256 and says when it expires.
// Its subject is the user, `{http.auth.user.id}`.
type Provider struct {
	// KeyFile is the path of the issuer's public key, in PEM. Required.
	KeyFile string `json:"key_file"`
	// Issuer and Audience are what a token must name. Both are required.
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	// Claims are strings of a token that become `{http.auth.user.NAME}`. Default: none.
	Claims []string `json:"claims,omitempty"`

	key    *rsa.PublicKey
	parser *jwt.Parser
}

// CaddyModule returns the Caddy module information.
func (*Provider) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.authentication.providers.jwt", New: func() caddy.Module { return new(Provider) }}
}

// Provision reads the key.
func (p *Provider) Provision(caddy.Context) error {
	if p.Issuer == "" || p.Audience == "" {
		return errors.New("jwt_auth: issuer and audience are required")
	}
	pem, err := os.ReadFile(p.KeyFile)
	if err != nil {
		return fmt.Errorf("jwt_auth: reading key: %w", err)
	}
	if p.key, err = jwt.ParseRSAPublicKeyFromPEM(pem); err != nil {
		return fmt.Errorf("jwt_auth: reading key %q: %w", p.KeyFile, err)
	}
	p.parser = jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(),
		jwt.WithIssuer(p.Issuer), jwt.WithAudience(p.Audience))
	return nil
}

// Authenticate implements caddyauth.Authenticator.
func (p *Provider) Authenticate(w http.ResponseWriter, r *http.Request) (caddyauth.User, bool, error) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	text, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !isBearer {
		return caddyauth.User{}, false, nil
	}
	claims := jwt.MapClaims{}
	if _, err := p.parser.ParseWithClaims(text, claims, func(*jwt.Token) (any, error) { return p.key, nil }); err != nil {
		return caddyauth.User{}, false, fmt.Errorf("checking token: %w", err)
	}
	subject, err := claims.GetSubject()
	if err != nil || subject == "" {
		return caddyauth.User{}, false, errors.New("checking token: it has no subject")
	}
	user := caddyauth.User{ID: subject, Metadata: make(map[string]string, len(p.Claims))}
	for _, name := range p.Claims {
		user.Metadata[name], _ = claims[name].(string)
	}
	return user, true, nil
}

// UnmarshalCaddyfile reads
//
//	jwt_auth {
//		key_file <path>
//		issuer   <name>
//		audience <name>
//		claims   <names...>
//	}
func (p *Provider) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	for d.NextBlock(0) {
		word, args := d.Val(), d.RemainingArgs()
		switch {
		case word == "claims" && len(args) > 0:
			p.Claims = args
		case word == "key_file" && len(args) == 1:
			p.KeyFile = args[0]
		case word == "issuer" && len(args) == 1:
			p.Issuer = args[0]
		case word == "audience" && len(args) == 1:
			p.Audience = args[0]
		default:
			return d.Errf("%q is not understood here", word)
		}
	}
	return nil
}

func parseCaddyfile(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	p := new(Provider)
	if err := p.UnmarshalCaddyfile(h.Dispenser); err != nil {
		return nil, err
	}
	return caddyauth.Authentication{ProvidersRaw: caddy.ModuleMap{"jwt": caddyconfig.JSON(p, nil)}}, nil
}

// Interface guards
var (
	_ caddy.Provisioner       = (*Provider)(nil)
	_ caddyfile.Unmarshaler   = (*Provider)(nil)
	_ caddyauth.Authenticator = (*Provider)(nil)
)
