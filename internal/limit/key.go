package limit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
)

// maxKey is the length of a key that is kept as it is; a longer one is kept as a
// hash, so that a client cannot fill memory with it.
const maxKey = 128

// placeholder is the form of one part of a key.
var placeholder = regexp.MustCompile(`^\{([^{}]+)\}$`)

// secrets are the placeholders whose values are, or hold, credentials: only a hash
// of them is kept.
var secrets = map[string]bool{
	"http.request.header.authorization": true, "http.request.header.proxy-authorization": true,
	"http.request.header.x-api-key": true, "http.request.header.api-key": true,
	"http.request.header.x-goog-api-key": true, "http.request.header.cookie": true,
	"http.request.uri": true, "http.request.orig_uri": true,
	"http.request.uri.query": true, "http.request.orig_uri.query": true,
	"http.request.uri.query.key": true, "http.request.uri.query.api_key": true,
	"http.request.uri.query.api-key": true, "http.request.uri.query.access_token": true,
}

func secret(name string) bool {
	name = strings.ToLower(name)
	return secrets[name] || strings.HasPrefix(name, "http.request.cookie.")
}

// namespaces are those whose placeholders a request has.
var namespaces = []string{"http.request.", "http.vars.", "http.auth.", "http.regexp.", "http.error.", "env.", "system."}

// named are the placeholders whose values the operator says, not the client. A
// variable may hold anything, but for those that api_key_auth sets.
var named = []string{
	"http.auth.", "env.", "system.",
	"http.vars." + meter.VarApplication, "http.vars." + meter.VarGroup, "http.vars." + meter.VarKeyID,
}

func checkKey(parts []string) error {
	seen := make(map[string]bool)
	for _, p := range parts {
		m := placeholder.FindStringSubmatch(p)
		if m == nil {
			return fmt.Errorf("key %q is not a placeholder such as {http.auth.user.id}", p)
		}
		if seen[p] {
			return fmt.Errorf("key %q stands here twice", p)
		}
		seen[p] = true
	}
	return nil
}

// unknownPlaceholders returns those parts of a key that no handler of Caddy's own
// sets; a map directive may.
func unknownPlaceholders(parts []string) (names []string) {
	for _, p := range parts {
		if name := strings.Trim(p, "{}"); !hasPrefix(name, namespaces) {
			names = append(names, name)
		}
	}
	return names
}

func hasPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// inventable tells whether a client can make up new values of a key at will.
func inventable(parts []string) bool {
	for _, p := range parts {
		if !hasPrefix(strings.Trim(p, "{}"), named) {
			return true
		}
	}
	return false
}

// keyPart is one placeholder of a key.
type keyPart struct {
	name   string
	secret bool
}

func keyParts(parts []string) []keyPart {
	ps := make([]keyPart, len(parts))
	for i, p := range parts {
		name := strings.Trim(p, "{}")
		ps[i] = keyPart{name, secret(name)}
	}
	return ps
}

// identity tells whether the value is what api_key_auth finds out.
func (p keyPart) identity() bool {
	switch p.name {
	case "http.auth.user.id", "http.vars." + meter.VarApplication, "http.vars." + meter.VarGroup, "http.vars." + meter.VarKeyID:
		return true
	}
	return false
}

// errNoReplacer is returned outside of a request.
var errNoReplacer = errors.New("no placeholders in this context")

// consumer is whose counter a call counts in; empty for the shared one.
func (l *Limiter) consumer(r *http.Request) (string, error) {
	return l.consumerBy(r, meter.VarsOf(r))
}

// consumerBy is consumer for who has the variables of the request already.
func (l *Limiter) consumerBy(r *http.Request, vars meter.Vars) (string, error) {
	switch {
	case l.config.ConsumerBased:
		if app := vars.Text(meter.VarApplication); app != "" {
			return bounded(app), nil
		}
		return meter.DefaultConsumer, nil
	case len(l.key) == 0:
		return "", nil
	}

	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return "", errNoReplacer
	}
	if len(l.key) == 1 {
		return cmp.Or(l.key[0].value(repl), meter.DefaultConsumer), nil
	}
	// each part is escaped by itself, so that no value can look like two
	var b strings.Builder
	empty := true
	for i, p := range l.key {
		v := p.value(repl)
		empty = empty && v == ""
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(url.PathEscape(v))
	}
	if empty {
		return meter.DefaultConsumer, nil
	}
	if b.Len() > maxKey {
		return hash(b.String()), nil
	}
	return b.String(), nil
}

// value is final: what a client sent is never looked at for placeholders.
func (p keyPart) value(repl *caddy.Replacer) string {
	v, _ := repl.GetString(p.name)
	if v != "" && p.secret {
		return hash(v)
	}
	return bounded(v)
}

// hashed begins the hash of a value.
const hashed = "sha256:"

// bounded is the value itself, or its hash if it is long or could be taken for one.
func bounded(value string) string {
	if len(value) > maxKey || strings.HasPrefix(value, hashed) {
		return hash(value)
	}
	return value
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hashed + hex.EncodeToString(sum[:16])
}
