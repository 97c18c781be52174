package usage

import "bytes"

// shapeMaker makes a shape of an event, as the scanner follows it: what it would look at
// stays as it is, and what it would pass becomes a hole.
type shapeMaker struct {
	p     []byte
	at    int
	from  int // of what is not in the shape yet
	shape *shape
	texts int
	text  int64
}

// newShape returns the shape of p, which is an event or a line, and the bytes of its text,
// decoded. It returns nil where p has other fields than a name before the data, has data of
// several lines, other than one string of text, is too long, or may be taken out by a Hider:
// whether one does so depends on nothing that is in a hole.
func newShape(p []byte) (s *shape, text int64) {
	start := dataStart(p)
	if start < 0 {
		return nil, 0
	}
	m := shapeMaker{p: p, at: start, shape: &shape{}}
	if !m.object(responsePositions.root) || m.texts != 1 || bytes.ContainsAny(p[start:m.at], "\r\n") {
		return nil, 0
	}
	switch string(p[m.at:]) {
	case "\n\n", "\r\n\r\n", "\n", "\r\n":
	default:
		return nil, 0
	}
	if !m.keep(len(p)) || hides(p) {
		return nil, 0
	}
	return m.shape, m.text
}

// hides tells whether a Hider takes anything out of a stream that is nothing but p.
func hides(p []byte) bool {
	var h Hider
	return len(h.Flush(h.Filter(nil, p))) < len(p)
}

// dataStart returns where the object begins that is the document: at once, or on the line
// of data, behind at most one with the name of the event. It is -1 if there is none.
func dataStart(p []byte) int {
	i := 0
	if bytes.HasPrefix(p, []byte("event:")) {
		end := bytes.IndexByte(p, '\n')
		if end < 0 || bytes.IndexByte(p[:end-1], '\r') >= 0 {
			return -1
		}
		i = end + 1
	}
	if data := []byte("data:"); bytes.HasPrefix(p[i:], data) {
		i = skipSpaces(p, i+len(data))
	} else if i > 0 {
		return -1
	}
	if i == len(p) || p[i] != typeObject {
		return -1
	}
	return i
}

// object passes an object of whose members n knows. Like the others, it reports false if
// there is no shape.
func (m *shapeMaker) object(n *node) bool {
	m.at++
	if m.next() == '}' {
		m.at++
		return true
	}
	for {
		if m.next() != '"' {
			return false
		}
		end := plainEnd(m.p, m.at+1)
		if end < 0 {
			return false
		}
		name := m.p[m.at+1 : end]
		m.at = end + 1
		if m.next() != ':' {
			return false
		}
		m.at++
		if !m.value(n.member(name)) {
			return false
		}
		if more, ok := m.more('}'); !more {
			return ok
		}
	}
}

// array passes an array of whose elements n knows.
func (m *shapeMaker) array(n *node) bool {
	m.at++
	if m.next() == ']' {
		m.at++
		return true
	}
	for {
		if !m.value(n.element) {
			return false
		}
		if more, ok := m.more(']'); !more {
			return ok
		}
	}
}

// more passes the comma before another member or element, or the bracket that closes; ok is
// false if neither is there.
func (m *shapeMaker) more(closing byte) (more, ok bool) {
	c := m.next()
	if c != ',' && c != closing {
		return false, false
	}
	m.at++
	return c == ',', true
}

// value passes a value that belongs to n, which is nil if nobody looks at it.
func (m *shapeMaker) value(n *node) bool {
	c := m.next()
	if kinds[c] == typeAbsent {
		return false
	}
	switch {
	case c == typeObject && n != nil && n.follows():
		return m.object(n)
	case c == typeArray && n != nil && n.element != nil:
		return m.array(n)
	}
	start, end := m.at, validEnd(m.p, m.at)
	if end < 0 {
		return false
	}
	m.at = end
	switch {
	case c == typeObject, c == typeArray:
		return n == nil || n.slot < 0 || !n.keep.counts() // which counts, where there should be text
	case n == nil && c != typeString:
		return m.hole(holeScalar, start, end)
	case n == nil && plainEnd(m.p, start+1) == end-1:
		return m.hole(holeString, start+1, end-1)
	case n != nil && c == typeString && n.slot >= 0 && n.keep.counts() && end-start > len(`""`):
		quote, text := textEnd(m.p, start+1)
		m.texts++
		m.text = text
		return quote == end-1 && m.hole(holeText, start+1, quote)
	}
	return true
}

// hole makes a hole of a part of the event.
func (m *shapeMaker) hole(kind holeKind, start, end int) bool {
	s := m.shape
	if s.count == maxHoles || !m.keep(start) {
		return false
	}
	s.holes[s.count] = hole{s.size, kind}
	s.count++
	m.from = end
	return true
}

// keep takes what stands before end into the shape.
func (m *shapeMaker) keep(end int) bool {
	s, part := m.shape, m.p[m.from:end]
	if int(s.size)+len(part) > maxShape {
		return false
	}
	s.size += uint16(copy(s.literal[s.size:], part))
	return true
}

// next passes blanks within a line, and returns the byte behind them, 0 at the end.
func (m *shapeMaker) next() byte {
	if m.at = skipSpaces(m.p, m.at); m.at == len(m.p) {
		return 0
	}
	return m.p[m.at]
}
