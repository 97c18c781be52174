package usage

import (
	"bytes"
	"encoding/binary"

	"github.com/tidwall/gjson"
)

// readMembers reads members of an object from the quote of a name on. It is a short
// cut: whatever is in parts, escaped or spaced out in unusual ways is left to the states.
func (s *scanner) readMembers(p []byte, i int) int {
	for {
		s.state = inName
		name := p[i+1:]
		n := 8
		if len(name) >= 8 {
			n = firstSpecial(binary.LittleEndian.Uint64(name))
		}
		if n == 8 {
			n = indexSpecial(name)
		}
		at := i + n + 3 // behind the colon
		if n < 0 || at >= len(p) || name[n] != '"' || p[at-1] != ':' {
			return i + 1
		}
		if at = pastBlanks(p, at); at == len(p) {
			return i + 1
		}
		s.target = s.stack[s.depth-1].node.member(name[:n])
		if end := s.passed(p, at); end > 0 {
			s.state = afterValue
			i = end
		} else {
			s.state = beforeValue
			i = s.begin(p, at)
		}
		if s.state != afterValue || i >= len(p) || p[i] != ',' {
			return i
		}
		s.state = beforeMember
		if i = pastBlanks(p, i+1); i == len(p) || p[i] != '"' {
			return i
		}
	}
}

// passed returns where the value at p[i] ends if it is of no interest and a string or
// scalar, 0 if it is anything else, has escapes, or may go on behind p.
func (s *scanner) passed(p []byte, i int) int {
	if s.target != nil {
		return 0
	}
	switch kinds[p[i]] {
	case typeAbsent, typeObject, typeArray:
		return 0
	case typeString:
		i++
		n := indexSpecial(p[i:])
		if n < 0 || p[i+n] != '"' {
			return 0
		}
		return i + n + 1
	}
	for i++; i < len(p); i++ {
		if class[p[i]]&scalar == 0 {
			return i
		}
	}
	return 0
}

// readName reads on in a member name.
func (s *scanner) readName(p []byte, i int) int {
	for i < len(p) {
		start := i
		if s.escaped {
			s.escaped = false
			i++
			s.addName(p[start:i])
			continue
		}
		j := indexSpecial(p[i:])
		if j < 0 {
			s.addName(p[i:])
			return len(p)
		}
		i += j + 1
		if p[i-1] == '\\' {
			s.escaped = true
			s.addName(p[start:i])
			continue
		}
		name := p[start : i-1]
		if len(s.key) > 0 || s.longKey {
			s.addName(name)
			name = decodeName(s.key, s.longKey)
			s.key, s.longKey = s.key[:0], false
		}
		s.target = s.stack[s.depth-1].node.member(name)
		s.state = beforeColon
		return i
	}
	return i
}

func (s *scanner) addName(p []byte) {
	if s.longKey || len(s.key)+len(p) > maxName {
		s.longKey = true
		return
	}
	s.key = append(s.key, p...)
}

// decodeName decodes the escapes of a member name; one that is too long has no name.
func decodeName(raw []byte, long bool) []byte {
	if long {
		return nil
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return []byte(gjson.Parse(`"` + string(raw) + `"`).String())
}

// readString reads on in a string value, whose raw JSON begins at start in p.
func (s *scanner) readString(p []byte, start, i int) int {
	for i < len(p) {
		if s.hex > 0 || s.escaped {
			s.escape(p[i])
			i++
			continue
		}
		end, less := textRun(p, i, s.tally)
		s.addText(int64(end - i - less))
		switch {
		case end == len(p):
			i = end
		case p[end] == '"':
			s.retain(p[start : end+1])
			s.finish()
			return end + 1
		default:
			i = end + 1
			s.escaped = true
		}
	}
	s.retain(p[start:i])
	return i
}

func (s *scanner) addText(n int64) {
	if s.tally {
		s.doc.text[s.target.slot] += n
	}
}

// escape takes a byte of an escape sequence that is in parts, behind the backslash.
func (s *scanner) escape(c byte) {
	if s.escaped {
		s.escaped = false
		if c != 'u' {
			s.addText(1)
			return
		}
		// The digits are read for the sake of the count alone.
		if s.tally {
			s.hex, s.code = 4, 0
		}
		return
	}
	s.code = s.code<<4 | hexDigit(c)
	if s.hex--; s.hex == 0 {
		s.addText(int64(sizeOfCode(s.code)))
	}
}

// sizeOfCode returns how many bytes \uXXXX stands for. A surrogate pair makes four bytes,
// so each half counts two.
func sizeOfCode(code uint32) int {
	switch {
	case code < 0x80:
		return 1
	case code < 0x800, code >= 0xD800 && code < 0xE000:
		return 2
	}
	return 3
}

// hexDigit returns the digit's value; what is no digit counts as some digit.
func hexDigit(c byte) uint32 {
	if c >= '0' && c <= '9' {
		return uint32(c - '0')
	}
	return uint32(c|0x20-'a'+10) & 0xF
}

// readScalar reads on in a number or a literal.
func (s *scanner) readScalar(p []byte, i int) int {
	start := i
	for i < len(p) && class[p[i]]&scalar != 0 {
		i++
	}
	s.retain(p[start:i])
	if i < len(p) {
		s.finish()
	}
	return i
}

// readContainer reads on in an object or an array that is not followed.
func (s *scanner) readContainer(p []byte, i int) int {
	start := i
	for i < len(p) {
		if s.escaped {
			s.escaped = false
			i++
			continue
		}
		if s.quoted {
			j := indexSpecial(p[i:])
			if j < 0 {
				i = len(p)
				break
			}
			i += j + 1
			s.escaped = p[i-1] == '\\'
			s.quoted = s.escaped
			continue
		}
		j := indexBracket(p[i:])
		if j < 0 {
			i = len(p)
			break
		}
		i += j + 1
		switch p[i-1] {
		case '"':
			s.quoted = true
		case '{', '[':
			s.nest++
		default:
			if s.nest--; s.nest == 0 {
				s.retain(p[start:i])
				s.addText(int64(i - start))
				s.finish()
				return i
			}
		}
	}
	s.retain(p[start:i])
	s.addText(int64(i - start))
	return i
}
