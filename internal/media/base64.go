package media

// What a character of base64 is, if not a digit.
const (
	symSkip   = 0x80 + iota // white space
	symPad                  // padding
	symEscape               // the start of an escape in JSON
	symBad
)

// symbols are the values of the digits of both alphabets, or what else it is.
var symbols = func() (t [256]uint8) {
	for i := range t {
		t[i] = symBad
	}
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	for i := range len(digits) {
		t[digits[i]] = uint8(i)
	}
	t['+'], t['-'], t['/'], t['_'] = 62, 62, 63, 63
	t[' '], t['\t'], t['\r'], t['\n'] = symSkip, symSkip, symSkip, symSkip
	t['='], t['\\'] = symPad, symEscape
	return t
}()

// markEvery is how many digits lie between marks, a multiple of four.
const markEvery = 4 * window

// base64 is a file given as base64. It decodes a window at a time.
type base64 struct {
	text   []byte
	length int64 // decoded
	// marks are where every markEvery-th digit stands. There are none if all digits
	// lie side by side.
	marks []int

	have []byte // decoded
	from int64  // where it lies in the file
}

// A miss decodes bytes before it, too: who reads a frame looks at the one behind it in
// turn, which must not decode everything again and again.
const (
	decodeBehind = 2 * window
	decodeLength = 8 * window
)

func newBase64(text []byte) (*base64, bool) {
	s := &base64{text: text}
	digits := 0
	for digits < len(text) && symbols[text[digits]] < 64 {
		digits++
	}
	if rest := text[digits:]; len(rest) > 2 || len(rest) > 0 && rest[0] != '=' || len(rest) == 2 && rest[1] != '=' {
		var ok bool
		if digits, ok = s.mark(); !ok {
			return nil, false
		}
	}
	if digits%4 == 1 {
		return nil, false
	}
	s.length = int64(digits/4*3 + max(0, digits%4-1))
	return s, true
}

// mark counts the digits in a text that has other characters between them.
func (s *base64) mark() (digits int, ok bool) {
	pads := 0
	for i := 0; i < len(s.text); {
		v, next := s.symbol(i)
		switch {
		case v == symBad:
			return 0, false
		case v == symPad:
			pads++
		case v == symSkip:
		case pads > 0:
			return 0, false // a second text, which some read on and others do not
		default:
			if digits%markEvery == 0 {
				s.marks = append(s.marks, i)
			}
			digits++
		}
		i = next
	}
	return digits, pads <= 2
}

// symbol reads the character at i, which may be escaped.
func (s *base64) symbol(i int) (v uint8, next int) {
	v = symbols[s.text[i]]
	if v != symEscape {
		return v, i + 1
	}
	if i+1 >= len(s.text) {
		return symBad, i + 1
	}
	switch c := s.text[i+1]; c {
	case '/':
		return 63, i + 2
	case 'n', 'r', 't':
		return symSkip, i + 2
	case 'u':
		if i+6 > len(s.text) || s.text[i+2] != '0' || s.text[i+3] != '0' {
			return symBad, i + 2
		}
		hi, lo := unhex(s.text[i+4]), unhex(s.text[i+5])
		if hi > 7 || lo > 15 || symbols[hi<<4|lo] == symEscape {
			return symBad, i + 6
		}
		return symbols[hi<<4|lo], i + 6
	}
	return symBad, i + 2
}

func unhex(c byte) uint8 {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}

func (s *base64) size() int64 { return s.length }

func (s *base64) at(off int64, n int) []byte {
	if off < 0 || off >= s.length {
		return nil
	}
	n = int(min(int64(n), s.length-off))
	if off < s.from || off+int64(n) > s.from+int64(len(s.have)) {
		s.decode(max(0, off-decodeBehind) / 3)
	}
	return s.have[off-s.from:][:n]
}

// decode decodes from a group on, each of which is three bytes.
func (s *base64) decode(group int64) {
	i := int(group * 4)
	if s.marks != nil {
		skip := i % markEvery
		i = s.marks[i/markEvery]
		for skip > 0 {
			v, next := s.symbol(i)
			if v < 64 {
				skip--
			}
			i = next
		}
	}
	s.from = group * 3
	want := int(min(decodeLength, s.length-s.from))
	if cap(s.have) < want {
		s.have = make([]byte, 0, want)
	}
	s.have = s.have[:0]
	for len(s.have)+3 <= want && i+4 <= len(s.text) {
		q := s.text[i:][:4]
		v, w, x, y := symbols[q[0]], symbols[q[1]], symbols[q[2]], symbols[q[3]]
		if v|w|x|y >= 64 {
			break
		}
		s.have = append(s.have, v<<2|w>>4, w<<4|x>>2, x<<6|y)
		i += 4
	}
	held, bits := uint32(0), 0
	for len(s.have) < want {
		v := symbols[s.text[i]]
		next := i + 1
		if v >= 64 {
			v, next = s.symbol(i)
		}
		i = next
		if v >= 64 {
			continue
		}
		held, bits = held<<6|uint32(v), bits+6
		if bits >= 8 {
			bits -= 8
			s.have = append(s.have, byte(held>>bits))
		}
	}
}
