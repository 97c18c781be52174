package usage

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// reqNear is how many bytes of a run are tested in place before the rest of it is
// searched: most strings are short, and few runs without an escape are long.
const reqNear = 128

// str reads a string and returns what stands between its quotes and how many bytes
// that is when decoded.
func (s *reqScanner) str() (raw []byte, size int, ok bool) {
	start := s.i + 1
	end, saved := s.strEnd(start)
	if end < 0 {
		return nil, 0, false
	}
	s.i = end + 1
	return s.b[start:end], end - start - saved, true
}

// strEnd finds the quote that ends the string whose text begins at i, and how many bytes
// decoding saves. It is -1, and s.i where the fault is, if there is none.
func (s *reqScanner) strEnd(i int) (end, saved int) {
	b := s.b
	for near := i + reqNear; i+16 <= len(b) && i < near; {
		w := b[i : i+16]
		low := reqSpecial(binary.LittleEndian.Uint64(w)) & highs
		high := reqSpecial(binary.LittleEndian.Uint64(w[8:])) & highs
		switch {
		case low != 0:
			i += bits.TrailingZeros64(low) >> 3
		case high != 0:
			i += 8 + bits.TrailingZeros64(high)>>3
		default:
			i += 16
			continue
		}
		if b[i] == '"' {
			return i, saved
		}
		if b[i] != '\\' || i+1 == len(b) || class[b[i+1]]&escapable == 0 {
			break
		}
		i += 2
		saved++
		near = i + reqNear
	}
	return s.farEnd(i, saved)
}

// farEnd goes on with strEnd.
func (s *reqScanner) farEnd(i, savedBefore int) (end, saved int) {
	b := s.b
	saved = savedBefore
	quote := -1 // the next one, escaped or not, once it was searched
	for {
		near := min(len(b), i+reqNear)
		i = reqPlainRun(b, i, near)
		if i == near && near < len(b) {
			// The quote is kept, so that escapes do not make it searched again.
			if quote < i {
				if quote = bytes.IndexByte(b[i:], '"'); quote < 0 {
					s.i = len(b)
					s.fail("a string has no end")
					return -1, 0
				}
				quote += i
			}
			end := quote
			if e := bytes.IndexByte(b[i:quote], '\\'); e >= 0 {
				end = i + e
			}
			i = reqControlRun(b, i, end)
		}
		s.i = i
		switch {
		case i >= len(b):
			s.fail("a string has no end")
			return -1, 0
		case b[i] == '"':
			return i, saved
		case b[i] != '\\':
			s.fail("a control character in a string")
			return -1, 0
		}
		n, less := reqEscape(b[i:])
		if n == 0 {
			s.fail("a bad escape")
			return -1, 0
		}
		i += n
		saved += less
	}
}

// reqSpecial marks the high bit of the first byte of x that is a quote, a backslash or
// a control character, and maybe of later ones; lower bits have no meaning.
func reqSpecial(x uint64) uint64 {
	// That bit turned, a quote follows the control characters.
	y, e := x^ones*0x02, x^ones*'\\'
	return (y-ones*0x21)&^y | (e-ones)&^e
}

// reqPlainRun returns where, from i on, the first quote, backslash or control
// character stands, at most end. It tests sixteen bytes at a time.
func reqPlainRun(b []byte, i, end int) int {
	w := b[i:end]
	for len(w) >= 16 {
		low := reqSpecial(binary.LittleEndian.Uint64(w)) & highs
		high := reqSpecial(binary.LittleEndian.Uint64(w[8:])) & highs
		if low != 0 {
			return end - len(w) + bits.TrailingZeros64(low)>>3
		}
		if high != 0 {
			return end - len(w) + 8 + bits.TrailingZeros64(high)>>3
		}
		w = w[16:]
	}
	if len(w) >= 8 {
		if hit := reqSpecial(binary.LittleEndian.Uint64(w)) & highs; hit != 0 {
			return end - len(w) + bits.TrailingZeros64(hit)>>3
		}
		w = w[8:]
	}
	for j, c := range w {
		if c == '"' || c == '\\' || c < 0x20 {
			return end - len(w) + j
		}
	}
	return end
}

// reqControlRun is reqPlainRun where quotes and backslashes are known to be absent.
func reqControlRun(b []byte, i, end int) int {
	w := b[i:end]
	for len(w) >= 32 {
		x0, x1 := binary.LittleEndian.Uint64(w), binary.LittleEndian.Uint64(w[8:])
		x2, x3 := binary.LittleEndian.Uint64(w[16:]), binary.LittleEndian.Uint64(w[24:])
		if ((x0-0x20*ones)&^x0|(x1-0x20*ones)&^x1|(x2-0x20*ones)&^x2|(x3-0x20*ones)&^x3)&highs != 0 {
			break
		}
		w = w[32:]
	}
	return reqPlainRun(b, end-len(w), end)
}

// reqEscape returns how long the escape at the start of b is, 0 if it is none, and
// how many bytes decoding saves. A surrogate without its half decodes as U+FFFD.
func reqEscape(b []byte) (n, less int) {
	if len(b) > 1 && class[b[1]]&escapable != 0 {
		return 2, 1
	}
	r, n := reqRune(b)
	if n == 0 {
		return 0, 0
	}
	return n, n - utf8.RuneLen(r)
}

// reqRune decodes \uXXXX, or two that make a pair; n is 0 if b is no such escape.
func reqRune(b []byte) (r rune, n int) {
	if r = reqHex(b); r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if pair := utf16.DecodeRune(r, reqHex(b[6:])); pair != utf8.RuneError {
		return pair, 12
	}
	return utf8.RuneError, 6
}

// reqHex is the value of \uXXXX at the start of b, or -1.
func reqHex(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var v rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return v
}

// reqUnquote appends what raw means; its escapes have been checked by str.
func reqUnquote(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		switch c = raw[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := reqRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}
