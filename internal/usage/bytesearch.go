package usage

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
	// window is how far a search for two bytes looks for the first one before it
	// looks for the second: it bounds what is read twice.
	window = 512
)

// zeros marks the high bit of the first zero byte of x, and maybe of later ones.
func zeros(x uint64) uint64 { return (x - ones) &^ x & highs }

// firstSpecial returns the index of the first quote or backslash among eight bytes, 8
// if there is none.
func firstSpecial(x uint64) int {
	return bits.TrailingZeros64(zeros(x^ones*'"')|zeros(x^ones*'\\')) / 8
}

// indexSpecial returns the index of the first quote or backslash, -1 if none. Most
// strings are a few bytes, for which a call of bytes.IndexByte is slow, and a few are
// megabytes, for which nothing is faster.
func indexSpecial(p []byte) int {
	i := 0
	for ; i+8 <= len(p) && i < 32; i += 8 {
		if n := firstSpecial(binary.LittleEndian.Uint64(p[i:])); n < 8 {
			return i + n
		}
	}
	for i < len(p) {
		w := p[i:min(i+window, len(p))]
		q := bytes.IndexByte(w, '"')
		if q >= 0 {
			w = w[:q]
		}
		if b := bytes.IndexByte(w, '\\'); b >= 0 {
			return i + b
		}
		if q >= 0 {
			return i + q
		}
		i += len(w)
	}
	return -1
}

// indexBracket returns the index of the first quote, bracket or brace, -1 if none.
func indexBracket(p []byte) int {
	i := 0
	for ; i+8 <= len(p); i += 8 {
		x := binary.LittleEndian.Uint64(p[i:])
		// Brackets and braces differ in this bit alone, and nothing else becomes one.
		y := x | ones*0x20
		if m := zeros(x^ones*'"') | zeros(y^ones*'{') | zeros(y^ones*'}'); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for ; i < len(p); i++ {
		if class[p[i]]&bracket != 0 {
			return i
		}
	}
	return -1
}

const (
	blank = 1 << iota
	scalar
	bracket
	escapable // one that follows a backslash and stands for one byte
)

// class and kinds classify bytes; kinds gives the type of the value they begin.
var class, kinds = func() (class, kinds [256]byte) {
	for _, c := range []byte(" \t\r\n") {
		class[c] |= blank
	}
	for _, c := range []byte("\"{}[]") {
		class[c] |= bracket
	}
	for _, c := range []byte(`"\/bfnrt`) {
		class[c] |= escapable
	}
	for c := range 256 {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if letter || c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' {
			class[c] |= scalar
		}
	}
	for _, c := range []byte("{[\"tfn") {
		kinds[c] = c
	}
	for _, c := range []byte("-0123456789") {
		kinds[c] = typeNumber
	}
	return class, kinds
}()
