package usage

import "strconv"

// reqMaxDepth is how deep arrays and objects may nest.
const reqMaxDepth = 1000

// reqScanner walks a complete JSON document once and checks its grammar on the way.
// The first fault stays in bad; every method that can meet one returns false then.
type reqScanner struct {
	b   []byte
	i   int
	r   *Request
	bad *BadRequest

	seen    uint16 // control members met, by reqField
	capOf   [reqNControls]bool
	endless bool // a cap says: no end
	configs reqConfigSeen
	medium  reqMedia // of the media object of Bedrock that came last
	named   int      // decoded size of the last member name
	prompts int64
	chosen  bool // a config says how many answers are wanted
	remote  int  // references in a source whose block is not yet known
	filed   int  // uploaded files in such a source
	untold  int  // base64 in such a source that is no image by its own account
	fold    [reqLongestName]byte
}

// fail notes a break of the grammar.
func (s *reqScanner) fail(what string) bool {
	if s.bad == nil {
		s.bad = &BadRequest{Message: "the body is not valid JSON: " + what + " at byte " + strconv.Itoa(s.i), syntax: true}
	}
	return false
}

// next passes blanks and returns the byte behind them as peek does.
func (s *reqScanner) next() byte {
	s.i = pastBlanks(s.b, s.i)
	return s.peek()
}

// peek returns the next byte, 0 at the end; no grammar has a 0 in it.
func (s *reqScanner) peek() byte {
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// member reads up to the value of an object's next member and returns its name, raw.
// more is false at the object's end or a fault. The opening brace has been read.
func (s *reqScanner) member(first bool) (name []byte, more bool) {
	b := s.b
	i := pastBlanks(b, s.i)
	if i < len(b) && b[i] == '}' {
		s.i = i + 1
		return nil, false
	}
	if !first {
		if i >= len(b) || b[i] != ',' {
			s.i = i
			return nil, s.fail("a comma or brace is missing")
		}
		i = pastBlanks(b, i+1)
	}
	if i >= len(b) || b[i] != '"' {
		s.i = i
		return nil, s.fail("a member name is missing")
	}
	start := i + 1
	end, saved := s.strEnd(start)
	if end < 0 {
		return nil, false
	}
	s.named = end - start - saved
	if i = pastBlanks(b, end+1); i >= len(b) || b[i] != ':' {
		s.i = i
		return nil, s.fail("a colon is missing")
	}
	s.i = pastBlanks(b, i+1)
	return b[start:end], true
}

// element reads up to an array's next element; more is as for member.
func (s *reqScanner) element(first bool) (more bool) {
	switch c := s.next(); {
	case c == ']':
		// A comma has been read before this only by the case below.
		s.i++
		return false
	case first:
	case c == ',':
		s.i++
		if s.next() == ']' {
			return s.fail("a value is missing")
		}
	default:
		return s.fail("a comma or bracket is missing")
	}
	return true
}

// scalar reads a number or literal and returns it.
func (s *reqScanner) scalar() (lit []byte, ok bool) {
	start := s.i
	switch c := s.peek(); {
	case c == '-' || c >= '0' && c <= '9':
		if s.i, ok = validNumber(s.b, start); !ok {
			return nil, s.fail("a bad number")
		}
	case s.word("true"), s.word("false"), s.word("null"):
	default:
		return nil, s.fail("a value is missing")
	}
	return s.b[start:s.i], true
}

func (s *reqScanner) word(w string) bool {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return false
	}
	s.i += len(w)
	return true
}

// compact reads any value and returns its size without white space, strings decoded.
func (s *reqScanner) compact(depth int) (size int64, ok bool) {
	switch s.peek() {
	case '"':
		_, n, ok := s.str()
		return int64(n) + 2, ok
	case '{':
		if !s.enter(depth) {
			return 0, false
		}
		for first := true; ; first = false {
			_, more := s.member(first)
			if !more {
				return size + 2, s.bad == nil
			}
			size += int64(s.named) + 4
			n, ok := s.compact(depth + 1)
			if !ok {
				return 0, false
			}
			size += n
		}
	case '[':
		if !s.enter(depth) {
			return 0, false
		}
		for first := true; s.element(first); first = false {
			n, ok := s.compact(depth + 1)
			if !ok {
				return 0, false
			}
			size += n + 1
		}
		return size + 2, s.bad == nil
	}
	lit, ok := s.scalar()
	return int64(len(lit)), ok
}

// enter steps into an array or object at the given depth, the outermost being 1.
func (s *reqScanner) enter(depth int) bool {
	if depth > reqMaxDepth {
		return s.fail("nesting deeper than " + strconv.Itoa(reqMaxDepth))
	}
	s.i++
	return true
}
