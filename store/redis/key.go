package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// An entity is one hash. All of a consumer's, in whatever instance, are in one
// slot of a cluster; what all callers of an instance share is in a slot of its
// own:
//
//	<prefix>{<consumer>}<instance>
//	<prefix>{<instance>}
//
// Its fields are a counter each, named by the rule; the last batch of each replica
// ("q0", "q1" …); and where the key does not say it, the consumer's name ("n").

// plainMost is the longest part of a key that is written as it is, in bytes.
const plainMost = 64

// nameField is the field with the consumer's name.
const nameField = "n"

// key returns the key of an entity's hash.
func (s *Store) key(e store.Entity) string {
	if e.Consumer == "" {
		return s.prefix + "{" + part(e.Instance) + "}"
	}
	return s.prefix + "{" + part(e.Consumer) + "}" + part(e.Instance)
}

// part encodes a name so that it can stand beside others in a key. No two names
// are encoded alike, and none is empty: names that are long or have odd bytes are
// hashed to 128 bits, behind a character that no other begins with.
func part(name string) string {
	if plain(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "#" + base64.RawURLEncoding.EncodeToString(sum[:16])
}

func plain(name string) bool {
	if name == "" || len(name) > plainMost {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("-_.:/@+=,", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// ruleField returns the name of a rule's counter. It begins with a letter that no
// other field begins with.
func ruleField(id string) string {
	sum := sha256.Sum256([]byte(id))
	var b [13]byte
	b[0] = 'w'
	base64.RawURLEncoding.Encode(b[1:], sum[:9])
	return string(b[:])
}

// fieldNames remembers the names of counters, for as many rules as most gateways
// have. The zero value remembers none yet.
type fieldNames [256]atomic.Pointer[fieldName]

type fieldName struct{ id, field string }

// of is ruleField. The seed is any.
func (n *fieldNames) of(seed maphash.Seed, id string) string {
	at := &n[maphash.String(seed, id)%uint64(len(n))]
	if known := at.Load(); known != nil && known.id == id {
		return known.field
	}
	f := &fieldName{strings.Clone(id), ruleField(id)}
	at.Store(f)
	return f.field
}
