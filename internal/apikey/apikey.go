// Package apikey makes API keys, in a form by which people and secret scanners know
// them:
//
//	llmk_<43 letters or digits><6 letters or digits>
//
// The 43 are random, 256 bits; the 6 are the CRC-32 (IEEE) of all before them, in base
// 62 with the digits 0-9A-Za-z. So a key that was mistyped, cut off or made up is told
// from a real one without asking anybody. This matches keys:
//
//	\bllmk_[0-9A-Za-z]{49}\b
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"hash/crc32"
	"strings"
)

const (
	// Prefix begins all keys.
	Prefix = "llmk_"

	random = 43 // digits; 62^43 is more than 2^256
	check  = 6  // digits; 62^6 is more than 2^32
	length = len(Prefix) + random + check

	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	base   = len(digits)
)

// New returns a new key.
func New() string {
	b := make([]byte, 0, length)
	b = append(b, Prefix...)
	var room [64]byte
	for len(b) < len(Prefix)+random {
		rand.Read(room[:])
		for _, c := range room {
			// bytes above the last multiple of the base would make some digits likelier
			if int(c) < 256/base*base && len(b) < len(Prefix)+random {
				b = append(b, digits[int(c)%base])
			}
		}
	}
	return string(appendCheck(b))
}

func appendCheck(b []byte) []byte {
	sum := crc32.ChecksumIEEE(b)
	var tail [check]byte
	for i := check - 1; i >= 0; i-- {
		tail[i] = digits[sum%uint32(base)]
		sum /= uint32(base)
	}
	return append(b, tail[:]...)
}

// Valid tells whether s can be a key that New has made.
func Valid(s string) bool {
	if len(s) != length || !strings.HasPrefix(s, Prefix) {
		return false
	}
	var room [length]byte
	return string(appendCheck(append(room[:0], s[:length-check]...))) == s
}

// Looks tells whether s may be a key or a part of one, so that it should not be shown.
func Looks(s string) bool { return strings.Contains(s, Prefix) }

// Hash is by what a key is known.
func Hash(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }

// ids are lower-case letters and digits that nobody takes for each other.
var ids = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// NewID returns a public name for a key, which says nothing of the key.
func NewID() string {
	var b [10]byte
	rand.Read(b[:])
	return "key-" + ids.EncodeToString(b[:])
}
