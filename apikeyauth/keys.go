package apikeyauth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
)

// Key is an API key as the configuration and the keys file state it. The key
// itself is never written down, only its hash.
type Key struct {
	// ID is the public name of the key: what logs show and {http.auth.user.id}
	// holds. Unique among all keys, at most 256 bytes; required.
	ID string `json:"id,omitempty"`

	// Hash is "sha256:" and the 64 hex digits of the key's SHA-256, as
	// `printf %s "$KEY" | sha256sum` prints them; required. In the configuration
	// it may be a placeholder such as {env.KEY_HASH} or {file./run/secrets/hash},
	// replaced at load; in the keys file it may not.
	Hash string `json:"hash,omitempty"`

	// Application is the consumer that use of the key counts for. Default: none;
	// limiters then count the call under "default", a name no application may have.
	Application string `json:"application,omitempty"`

	// Group is the consumer's group, which limiters may give rules of its own.
	// Default: none.
	Group string `json:"group,omitempty"`

	// Models are the models the key may use. Default: all.
	Models Models `json:"models,omitzero"`

	// Expires is when the key stops working: a date (00:00 UTC of that day) or an
	// RFC 3339 time. Default: never.
	Expires string `json:"expires,omitempty"`

	// Disabled turns the key off without forgetting it. Default: false.
	Disabled bool `json:"disabled,omitempty"`

	// Previous is the secret the key had before it was rotated. Default: none.
	Previous *Previous `json:"previous,omitempty"`
}

// Previous is a rotated key's former secret, good for a time of grace.
type Previous struct {
	// Hash is the former secret's hash, written as [Key.Hash]; required.
	Hash string `json:"hash,omitempty"`

	// Until is when it stops working, written as [Key.Expires]; required.
	Until string `json:"until,omitempty"`
}

// digest is the SHA-256 of a key.
type digest = [sha256.Size]byte

// grant is what a key entitles to; nothing changes it once it is in an index.
// The names are boxed already, so that a request sets its variables without
// allocating.
type grant struct {
	id, application, group any // strings
	models                 *allowlist
	expires                time.Time // zero: never
	disabled               bool
}

// credential is a secret that leads to a grant.
type credential struct {
	*grant
	until time.Time // end of a former secret's grace; zero: the current one
}

// index finds credentials by the digest of the secret.
type index struct {
	secrets map[digest]credential
	ids     map[string]origin
}

// Reasons for which a key is refused; for the log, the client does not learn them.
var (
	errNoKey     = errors.New("no key")
	errTwoKeys   = errors.New("two different keys")
	errMalformed = errors.New("not a possible key")
	errUnknown   = errors.New("unknown key")
	errDisabled  = errors.New("key is disabled")
	errExpired   = errors.New("key has expired")
	errRotated   = errors.New("key was rotated and its time of grace is over")
	errTwice     = errors.New("id of the stored key is also that of another in the configuration or the keys file")
	errAway      = errors.New("the store of keys cannot be reached")
)

// find is the grant a secret leads to at the given time. With an error the grant
// is the one the secret would have led to, nil if there is none.
func (x *index) find(secret string, now time.Time) (*grant, error) {
	d, err := digestOf(secret)
	if err != nil {
		return nil, err
	}
	return x.get(d, now)
}

// digestOf is by what a secret is known, if it can be one.
func digestOf(secret string) (digest, error) {
	if !wellFormed(secret) {
		return digest{}, errMalformed
	}
	var room [128]byte // keys fit, as a rule; spares an allocation for each request
	return sha256.Sum256(append(room[:0], secret...)), nil
}

// get is find by the digest.
func (x *index) get(d digest, now time.Time) (*grant, error) {
	c, ok := x.secrets[d]
	if !ok {
		return nil, errUnknown
	}
	return c.check(now)
}

// check returns the grant, and an error if the credential does not work at the time.
func (c credential) check(now time.Time) (*grant, error) {
	switch {
	case c.disabled:
		return c.grant, errDisabled
	case !c.expires.IsZero() && !now.Before(c.expires):
		return c.grant, errExpired
	case !c.until.IsZero() && !now.Before(c.until):
		return c.grant, errRotated
	}
	return c.grant, nil
}

// maxKeyLen bounds in bytes what is hashed for a client we know nothing of.
const maxKeyLen = 4 << 10

// wellFormed tells whether a secret can be a key: visible ASCII of bounded length.
func wellFormed(secret string) bool {
	if secret == "" || len(secret) > maxKeyLen {
		return false
	}
	for i := range len(secret) {
		if secret[i] < '!' || secret[i] > '~' {
			return false
		}
	}
	return true
}

// origin is where a key was stated.
type origin struct {
	file bool // the keys file, else the configuration
	pos  int
}

func (o origin) String() string {
	if o.file {
		return fmt.Sprintf("keys[%d] of the keys file", o.pos)
	}
	return fmt.Sprintf("keys[%d] of the configuration", o.pos)
}

// indexer builds an index and refuses keys that no index may hold together.
type indexer struct {
	index index
	seen  map[digest]origin
}

func newIndexer(n int) *indexer {
	return &indexer{index{make(map[digest]credential, n), make(map[string]origin, n)}, make(map[digest]origin, n)}
}

// add checks the keys and takes them in. Errors name position, id and rule, never
// a hash or what stands in its place.
func (x *indexer) add(keys []Key, file bool) error {
	for i := range keys {
		if err := x.addKey(&keys[i], origin{file, i}); err != nil {
			if errors.Is(err, errPublicID) || checkName("id", keys[i].ID) != nil {
				return fmt.Errorf("keys[%d]: %w", i, err)
			}
			return fmt.Errorf("keys[%d] (id %q): %w", i, keys[i].ID, err)
		}
	}
	return nil
}

func (x *indexer) addKey(k *Key, o origin) error {
	g, hashes, err := k.compile()
	if err != nil {
		return err
	}
	if err := x.addID(k.ID, o); err != nil {
		return err
	}
	for _, h := range hashes {
		if at, ok := x.seen[h.digest]; ok {
			return fmt.Errorf("hash is already that of %v", at)
		}
		x.seen[h.digest] = o
		x.index.secrets[h.digest] = credential{g, h.until}
	}
	return nil
}

// addLiteral is addKey for a key whose hash may be a placeholder still: then only its
// id can be checked.
func (x *indexer) addLiteral(k *Key, o origin) error {
	if !strings.Contains(k.Hash, "{") {
		return x.addKey(k, o)
	}
	if err := checkName("id", k.ID); err != nil {
		return err
	}
	return x.addID(k.ID, o)
}

func (x *indexer) addID(id string, o origin) error {
	if at, ok := x.index.ids[id]; ok {
		return fmt.Errorf("id is already that of %v", at)
	}
	x.index.ids[id] = o
	return nil
}

// hashUntil is a digest and how long it leads to its grant; zero: no end.
type hashUntil struct {
	digest digest
	until  time.Time
}

// errPublicID keeps its value to itself: it has just been found to be a secret.
var errPublicID = errors.New("id is the key itself, but ids are public: choose another id and another key")

// compile checks everything a key says about itself.
func (k *Key) compile() (*grant, []hashUntil, error) {
	if err := checkName("id", k.ID); err != nil {
		return nil, nil, err
	}
	current, err := parseHash(k.Hash)
	if err != nil {
		return nil, nil, err
	}
	if sha256.Sum256([]byte(k.ID)) == current {
		return nil, nil, errPublicID
	}
	if err := checkApplication(k.Application); err != nil {
		return nil, nil, err
	}
	if err := checkOptionalName("group", k.Group); err != nil {
		return nil, nil, err
	}
	g := &grant{id: k.ID, application: k.Application, group: k.Group, disabled: k.Disabled}
	if g.models, err = k.Models.compile(); err != nil {
		return nil, nil, err
	}
	if k.Expires != "" {
		if g.expires, err = parseTime("expires", k.Expires); err != nil {
			return nil, nil, err
		}
	}
	hashes := []hashUntil{{digest: current}}
	if k.Previous != nil {
		former, err := k.Previous.compile()
		if err != nil {
			return nil, nil, fmt.Errorf("previous: %w", err)
		}
		hashes = append(hashes, former)
	}
	return g, hashes, nil
}

func (p *Previous) compile() (hashUntil, error) {
	d, err := parseHash(p.Hash)
	if err != nil {
		return hashUntil{}, err
	}
	until, err := parseTime("until", p.Until)
	if err != nil {
		return hashUntil{}, err
	}
	return hashUntil{d, until}, nil
}

var (
	errHash      = errors.New(`hash must be "sha256:" followed by 64 hex digits, which this prints: printf %s "$KEY" | sha256sum`)
	errEmptyHash = errors.New(`hash is that of an empty key: was $KEY set when it was made?`)
)

const hashPrefix = "sha256:"

// parseHash reads "sha256:<64 hex>". No error of it shows the value: it may well be
// a key that somebody took for its hash.
func parseHash(s string) (d digest, err error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	if !ok || len(digits) != hex.EncodedLen(len(d)) {
		return d, errHash
	}
	if _, err := hex.Decode(d[:], []byte(digits)); err != nil {
		return digest{}, errHash
	}
	if d == sha256.Sum256(nil) {
		return digest{}, errEmptyHash
	}
	return d, nil
}

// resolveHash replaces the placeholders of a configured hash.
func resolveHash(repl *caddy.Replacer, s string) (string, error) {
	if !strings.Contains(s, "{") {
		return s, nil
	}
	out, err := repl.ReplaceOrErr(s, true, true)
	if err != nil {
		// not wrapped: the replacer quotes its input
		return "", errors.New("hash: a placeholder is unknown or empty")
	}
	return strings.TrimSpace(out), nil
}

// parseTime reads a date, meaning 00:00 UTC, or an RFC 3339 time.
func parseTime(field, s string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s must be a date (2026-12-31) or an RFC 3339 time (2026-12-31T18:00:00Z), not %q", field, s)
	}
	return t, nil
}

// maxNameLen bounds ids, applications and groups, in bytes.
const maxNameLen = 256

// checkName holds ids, applications and groups to one form. They end up in logs,
// headers and counter keys, and may not look like a path or a matcher.
func checkName(field, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s must not be empty", field)
	case len(s) > maxNameLen:
		return fmt.Errorf("%s must be at most %d bytes long", field, maxNameLen)
	case apikey.Looks(s):
		return fmt.Errorf("%s holds an API key, but is public", field)
	case s[0] == '/' || s[0] == '@':
		return fmt.Errorf("%s must not start with %q", field, s[:1])
	case strings.HasPrefix(s, hashPrefix):
		return fmt.Errorf("%s must not start with %q: the id comes first, then the hash", field, hashPrefix)
	case !utf8.ValidString(s) || strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%s must be printable and without spaces at its ends", field)
	}
	return nil
}

// checkOptionalName is checkName for names that may be absent.
func checkOptionalName(field, s string) error {
	if s == "" {
		return nil
	}
	return checkName(field, s)
}

// defaultApplication is what calls without an application count under.
const defaultApplication = "default"

func checkApplication(s string) error {
	if s == defaultApplication {
		return fmt.Errorf("application %q is reserved for calls without one", s)
	}
	return checkOptionalName("application", s)
}
