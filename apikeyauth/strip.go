package apikeyauth

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"
)

// HeaderPlace is a header a key may stand in.
type HeaderPlace struct {
	// Name of the header; required.
	Name string `json:"name,omitempty"`

	// Prefix comes before the key, in any case, such as "Bearer"; after one that
	// ends in a letter or digit there must be a space. A value without it holds no
	// key. Default: none, the key is the whole value.
	Prefix string `json:"prefix,omitempty"`
}

// defaultHeaders are the places in which SDKs send keys.
var defaultHeaders = []HeaderPlace{
	{Name: "Authorization", Prefix: "Bearer"},
	{Name: "X-Api-Key"},      // Anthropic
	{Name: "Api-Key"},        // Azure
	{Name: "X-Goog-Api-Key"}, // Gemini
}

// alwaysStripped never reach an upstream: they hold credentials of this gateway, or
// an identity that a client could otherwise claim.
var alwaysStripped = []string{
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key",
	"X-Wso2-Application-Id",
}

// places are where keys stand in a request.
type places struct {
	headers []HeaderPlace // looked into
	query   []string      // looked into and stripped
	strip   []string      // headers stripped, canonical names
}

// newPlaces checks the configured places; without any the defaults apply.
func newPlaces(headers []HeaderPlace, query []string) (*places, error) {
	p := &places{strip: slices.Clone(alwaysStripped)}
	for i, h := range headers {
		if err := h.check(); err != nil {
			return nil, fmt.Errorf("headers[%d]: %w", i, err)
		}
		h = HeaderPlace{http.CanonicalHeaderKey(h.Name), strings.TrimSpace(h.Prefix)}
		same := func(o HeaderPlace) bool { return o.Name == h.Name && strings.EqualFold(o.Prefix, h.Prefix) }
		if slices.ContainsFunc(p.headers, same) {
			return nil, fmt.Errorf("headers[%d]: header %q is given twice", i, h.Name)
		}
		p.headers = append(p.headers, h)
		if !slices.Contains(p.strip, h.Name) {
			p.strip = append(p.strip, h.Name)
		}
	}
	for i, name := range query {
		if name == "" {
			return nil, fmt.Errorf("query[%d]: name must not be empty", i)
		}
		if slices.Contains(query[:i], name) {
			return nil, fmt.Errorf("query[%d]: parameter %q is given twice", i, name)
		}
	}
	p.query = query
	if len(p.headers)+len(p.query) == 0 {
		p.headers = defaultHeaders
	}
	return p, nil
}

// unfit are headers that a request cannot do without, so they cannot be stripped.
var unfit = []string{"Cookie", "Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection"}

func (h HeaderPlace) check() error {
	if !httpguts.ValidHeaderFieldName(h.Name) {
		return fmt.Errorf("%q is no header name", h.Name)
	}
	if slices.Contains(unfit, http.CanonicalHeaderKey(h.Name)) {
		return fmt.Errorf("a key cannot stand in %q, which would be stripped", h.Name)
	}
	if !httpguts.ValidHeaderFieldValue(h.Prefix) {
		return errors.New("prefix must be printable")
	}
	return nil
}

// key takes the key out of a header value; empty if there is none.
func (h HeaderPlace) key(value string) string {
	if h.Prefix == "" {
		return strings.Trim(value, " \t")
	}
	n := len(h.Prefix)
	if len(value) < n || value[:n] != h.Prefix && !strings.EqualFold(value[:n], h.Prefix) {
		return ""
	}
	rest := value[n:]
	key := strings.Trim(rest, " \t")
	if isWord(h.Prefix[n-1]) && rest != "" && rest[0] != ' ' && rest[0] != '\t' {
		return "" // another scheme that begins alike
	}
	return key
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// maxDistinct bounds how many different keys are told apart; two are one too many.
const maxDistinct = 4

// take gets the key out of the request and strips every place a key can stand in.
// errNoKey and errTwoKeys mean that there was none or that there were several; the
// request is stripped all the same.
func (p *places) take(r *http.Request) (string, error) {
	var found [maxDistinct]string
	n := 0
	add := func(key string) {
		if key == "" || n == maxDistinct || slices.Contains(found[:n], key) {
			return
		}
		found[n] = key
		n++
	}
	for _, h := range p.headers {
		for _, v := range r.Header[h.Name] {
			add(h.key(v))
		}
	}
	if len(p.query) > 0 {
		for _, seg := range segments(r.URL.RawQuery) {
			if name, value := decodeParameter(seg); slices.Contains(p.query, name) {
				add(value)
			}
		}
	}
	p.scrub(r, found[:n])
	switch n {
	case 0:
		return "", errNoKey
	case 1:
		return found[0], nil
	}
	return "", errTwoKeys
}

// scrub removes keys from the request and from the original that Caddy saves: error
// routes get its URL back, and placeholders read it.
func (p *places) scrub(r *http.Request, secrets []string) {
	for _, name := range p.strip {
		delete(r.Header, name)
	}
	s := scrubber{query: p.query}
	r.URL.RawQuery = s.scrub(r.URL.RawQuery, secrets)
	r.RequestURI = s.scrubURI(r.RequestURI, secrets)

	original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request)
	if !ok {
		return
	}
	if original.URL != nil {
		original.URL.RawQuery = s.scrub(original.URL.RawQuery, secrets)
	}
	uri := s.scrubURI(original.RequestURI, secrets)
	if uri == original.RequestURI {
		return
	}
	// the URL is shared, but the URI is a string inside a copy in the context. The
	// request is changed in place because its pointer is the one the server and the
	// replacer hold; where an earlier handler has replaced it, the placeholder is
	// still put right.
	original.RequestURI = uri
	*r = *r.WithContext(context.WithValue(r.Context(), caddyhttp.OriginalRequestCtxKey, original))
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set("http.request.orig_uri", uri)
	}
}

// scrubber removes from queries the parameters a key can stand in and those whose
// value is one of the secrets, the same at each call. What stays, stays byte for byte.
type scrubber struct {
	query []string

	last, kept string // most requests have one query, in four places
}

func (s *scrubber) scrub(raw string, secrets []string) string {
	if raw != s.last {
		s.last, s.kept = raw, s.rest(raw, secrets)
	}
	return s.kept
}

// scrubURI is scrub for the query of a request target.
func (s *scrubber) scrubURI(uri string, secrets []string) string {
	path, raw, ok := strings.Cut(uri, "?")
	if !ok {
		return uri
	}
	switch kept := s.scrub(raw, secrets); kept {
	case raw:
		return uri
	case "":
		return path
	default:
		return path + "?" + kept
	}
}

func (s *scrubber) rest(raw string, secrets []string) string {
	if !s.maybe(raw, secrets) {
		return raw
	}
	kept := make([]byte, 0, len(raw))
	dirty, first := false, true
	for sep, seg := range segments(raw) {
		if s.hides(seg, secrets) {
			dirty = true
			continue
		}
		if !first {
			kept = append(kept, sep...)
		}
		first = false
		kept = append(kept, seg...)
	}
	if !dirty {
		return raw
	}
	return string(kept)
}

// maybe spares most queries the closer look.
func (s *scrubber) maybe(raw string, secrets []string) bool {
	if len(s.query) > 0 {
		return true
	}
	within := func(secret string) bool { return strings.Contains(raw, secret) }
	return len(secrets) > 0 && (strings.Contains(raw, "%") || slices.ContainsFunc(secrets, within))
}

func (s *scrubber) hides(seg string, secrets []string) bool {
	name, value := decodeParameter(seg)
	return slices.Contains(s.query, name) || value != "" && slices.Contains(secrets, value)
}

// segments are the parameters of a raw query, each after the separator before it. A
// semicolon separates as well: some upstreams see it so, and a key behind one must
// not reach them.
func segments(raw string) iter.Seq2[string, string] {
	return func(yield func(sep, seg string) bool) {
		sep := ""
		for {
			end := strings.IndexAny(raw, "&;")
			if end < 0 {
				yield(sep, raw)
				return
			}
			if !yield(sep, raw[:end]) {
				return
			}
			sep, raw = raw[end:end+1], raw[end+1:]
		}
	}
}

// decodeParameter is the name and the value of a raw parameter. A plus sign in a
// value stays one: keys contain no spaces, and clients forget to encode it.
func decodeParameter(seg string) (name, value string) {
	name, value, _ = strings.Cut(seg, "=")
	if s, err := url.QueryUnescape(name); err == nil {
		name = s
	}
	if s, err := url.PathUnescape(value); err == nil {
		value = s
	}
	return name, value
}
