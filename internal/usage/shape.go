package usage

import (
	"bytes"
	"sync/atomic"
)

// shape is an event of a stream, or a line of one, that adds a piece of text to the answer
// and says nothing else that was not said before: with holes for its text, and for ids and
// the like, which nobody looks at. Nearly all events of a stream have the shape of the one
// before, whatever stream it is of, so that to compare them is to read them.
//
// Whatever a shape does not match is read in full, and so is the first event of each
// shape in a stream.
//
// No event of a shape is one that a Hider takes out.
type shape struct {
	count   uint16      // of holes
	size    uint16      // of literal
	shared  atomic.Bool // among shapes
	holes   [maxHoles]hole
	literal [maxShape]byte
}

// hole is what differs among the events of a shape, behind the first at bytes of literal.
type hole struct {
	at   uint16
	kind holeKind
}

type holeKind uint8

const (
	holeString holeKind = iota // a string without escapes, without its quotes
	holeScalar                 // a number or a literal
	holeText                   // a string that is text, not empty
)

const (
	maxHoles = 24
	maxShape = 1 << 10 // bytes, without what is in the holes
	// maxShaped is of how many bytes an event may be to look for its shape.
	maxShaped = 4 << 10
	// maxShapes is how many shapes are kept for all streams, and maxUnshaped after how many
	// events at most another one is looked for in a stream that seems to have none.
	maxShapes   = 16
	maxUnshaped = 64
)

// match returns how many bytes the event takes that p begins with, and those of its text,
// decoded; 0 if p does not begin with an event of the shape.
func (s *shape) match(p []byte) (n int, text int64) {
	from := 0
	for _, h := range s.holes[:s.count] {
		part := s.literal[from:h.at]
		from = int(h.at)
		if len(p)-n <= len(part) || !bytes.HasPrefix(p[n:], part) {
			return 0, 0
		}
		n += len(part)
		end := -1
		switch h.kind {
		case holeString:
			end = plainEnd(p, n)
		case holeScalar:
			end = scalarEnd(p, n)
		case holeText:
			end, text = textEnd(p, n)
			if text == 0 {
				return 0, 0
			}
		}
		if end < 0 {
			return 0, 0
		}
		n = end
	}
	part := s.literal[from:s.size]
	if !bytes.HasPrefix(p[n:], part) {
		return 0, 0
	}
	return n + len(part), text
}

// textEnd is plainEnd for a string that may have escapes, and counts its bytes, decoded.
func textEnd(p []byte, i int) (end int, text int64) {
	first := i
	for {
		if i = reqPlainRun(p, i, len(p)); i == len(p) {
			return -1, 0
		}
		switch p[i] {
		case '"':
			return i, text + int64(i-first)
		case '\\':
			size := 2
			if i+1 == len(p) || class[p[i+1]]&escapable == 0 {
				code := reqHex(p[i:])
				if code < 0 {
					return -1, 0
				}
				size = 6
				text += int64(sizeOfCode(uint32(code))) - 1
			}
			i += size
			text -= int64(size - 1)
		default:
			return -1, 0
		}
	}
}

// scalarEnd returns where the number or literal ends that begins at p[i], -1 if there is
// none, or it may go on behind p.
func scalarEnd(p []byte, i int) int {
	switch kinds[p[i]] {
	case typeAbsent, typeObject, typeArray, typeString:
		return -1
	}
	for i++; i < len(p); i++ {
		if class[p[i]]&scalar == 0 {
			return i
		}
	}
	return -1
}

// shapes are those that were met last, of all streams, each more than once. None changes
// once it is made.
var (
	shapes       [maxShapes]atomic.Pointer[shape]
	shapesShared atomic.Uint32
)

// shapeOf returns the shape of an event that has text of n bytes, nil if it has none.
func shapeOf(p []byte, n int64) *shape {
	for i := range shapes {
		if s := shapes[i].Load(); s != nil {
			if size, text := s.match(p); size == len(p) && text == n {
				return s
			}
		}
	}
	if s, text := newShape(p); text == n {
		return s
	}
	return nil
}

// share makes s known to all streams.
func (s *shape) share() {
	if !s.shared.Swap(true) {
		shapes[shapesShared.Add(1)%maxShapes].Store(s)
	}
}

// readShaped reads the events that p begins with and that have the shape of the one before,
// and returns what is left of p.
func (r *Response) readShaped(p []byte) []byte {
	s, t := r.shape, &r.tally
	for len(p) > 0 {
		n, text := s.match(p)
		if n == 0 {
			r.shape = nil
			break
		}
		t.repeat(1, text)
		if r.unshaped > 0 {
			r.unshaped = 0
			s.share()
		}
		p = p[n:]
	}
	return p
}

// said is what the answer has said before an event.
type said struct{ read, streamed int64 }

func (r *Response) said() said { return said{r.tally.read, r.tally.streamed} }

// takeShape looks for the shape of an event that was read in full, with nothing open
// before it nor behind. Streams that never repeat one are asked less and less often.
func (r *Response) takeShape(p []byte, before said) {
	t := &r.tally
	n := t.streamed - before.streamed
	if n == 0 || !t.piece || t.read != before.read+1 || len(r.fields) > 0 || len(p) > maxShaped {
		return
	}
	if r.unshaped++; r.unshaped&(r.unshaped-1) != 0 && r.unshaped%maxUnshaped != 0 {
		return
	}
	r.shape = shapeOf(p, n)
}
