package usage

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
	// near is how far a search for two bytes tests sixteen at a time, before it looks
	// for one after the other: few strings, and few runs between two escapes, are longer.
	near = 128
	// window is how far such a search looks for the first one before it looks for the
	// second: it bounds what is read twice.
	window = 2048
)

// special marks the high bit of the first quote or backslash among eight bytes, and maybe
// of later ones: what is equal is zero in their difference, and a borrow out of a zero
// byte is all that can mark another one.
func special(x uint64) uint64 {
	q, e := x^ones*'"', x^ones*'\\'
	return ((q-ones)&^q | (e-ones)&^e) & highs
}

// firstSpecial returns the index of the first quote or backslash among eight bytes, 8
// if there is none.
func firstSpecial(x uint64) int { return bits.TrailingZeros64(special(x)) / 8 }

// indexSpecial returns the index of the first quote or backslash, -1 if none. Most
// strings are a few bytes, for which a call of bytes.IndexByte is slow, and a few are
// megabytes, for which nothing is faster.
func indexSpecial(p []byte) int {
	i := 0
	for ; i+16 <= len(p) && i < near; i += 16 {
		w := p[i : i+16]
		low, high := special(binary.LittleEndian.Uint64(w)), special(binary.LittleEndian.Uint64(w[8:]))
		if low != 0 {
			return i + bits.TrailingZeros64(low)/8
		}
		if high != 0 {
			return i + 8 + bits.TrailingZeros64(high)/8
		}
	}
	if n := farSpecial(p[i:]); n >= 0 {
		return i + n
	}
	return -1
}

// farSpecial is indexSpecial where little is left of p, or the string is a long one.
func farSpecial(p []byte) int {
	if len(p) < 16 {
		for i, c := range p {
			if c == '"' || c == '\\' {
				return i
			}
		}
		return -1
	}
	for i := 0; i < len(p); {
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

// textRun returns where, from p[i] within a string on, the string ends, or an escape begins
// that is not whole in p, or p ends; and how many bytes less it is when decoded. Where that
// is not to be counted, an escape is two bytes.
func textRun(p []byte, i int, count bool) (end, less int) {
	far := i + near
	for {
		if i+16 <= len(p) && i < far {
			w := p[i : i+16]
			low, high := special(binary.LittleEndian.Uint64(w)), special(binary.LittleEndian.Uint64(w[8:]))
			switch {
			case low != 0:
				i += bits.TrailingZeros64(low) / 8
			case high != 0:
				i += 8 + bits.TrailingZeros64(high)/8
			default:
				i += 16
				continue
			}
		} else {
			n := farSpecial(p[i:])
			if n < 0 {
				return len(p), less
			}
			i += n
		}
		size := 2
		switch {
		case p[i] == '"', i+size > len(p):
			return i, less
		case p[i+1] == 'u' && count:
			if size = 6; i+size > len(p) {
				return i, less
			}
			code := uint32(0)
			for _, c := range p[i+2 : i+6] {
				code = code<<4 | hexDigit(c)
			}
			less += size - sizeOfCode(code)
		default:
			less++
		}
		i += size
		far = i + near
	}
}

// brackets marks the high bit of the first quote, bracket or brace among eight bytes, and
// maybe of later ones.
func brackets(x uint64) uint64 {
	// Brackets and braces differ in this bit alone, and nothing else becomes one.
	y := x | ones*0x20
	q, o, c := x^ones*'"', y^ones*'{', y^ones*'}'
	return ((q-ones)&^q | (o-ones)&^o | (c-ones)&^c) & highs
}

// indexBracket returns the index of the first quote, bracket or brace, -1 if none.
func indexBracket(p []byte) int {
	i := 0
	for ; i+16 <= len(p); i += 16 {
		w := p[i : i+16]
		low, high := brackets(binary.LittleEndian.Uint64(w)), brackets(binary.LittleEndian.Uint64(w[8:]))
		if low != 0 {
			return i + bits.TrailingZeros64(low)/8
		}
		if high != 0 {
			return i + 8 + bits.TrailingZeros64(high)/8
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
	folding   // one by which a name may stand for another one: capital, escape or not ASCII
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
		if c >= 'A' && c <= 'Z' || c == '\\' || c >= utf8.RuneSelf {
			class[c] |= folding
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
