package usage

import "bytes"

// scanner reads JSON documents from pieces of any size and follows the positions of
// a tree through them. It holds what those positions keep and no other byte,
// whatever the size of a document.
//
// Documents are objects that follow one another, with blanks between them or as the
// elements of an array. Other values are skipped. What lies off the positions is
// checked for no more than its brackets and quotes. A syntax error elsewhere ends
// the document with what was read of it, and what follows is ignored until the next
// call of end, or the next line where documents are lines.
type scanner struct {
	tree *tree
	done func(*document) // called with each document; it may not keep it
	sink func([]byte)    // called with the parts of a passage; it may not keep them
	doc  document

	course

	state scanState
	open  bool // within a document

	depth   int
	stack   [maxDepth]frame
	arrays  int   // of the frames
	element int32 // see value

	target *node // whose value is next or being read; nil if it is of no interest
	kind   byte  // of the value being read
	keep   bool  // the value goes into doc.kept
	tally  bool  // the value's text is counted
	off    int32 // where it begins in doc.kept
	limit  int

	escaped bool   // the last byte was a backslash
	hex     uint8  // digits of \uXXXX still to come
	code    uint32 // those that came
	quoted  bool   // in a string of a skipped container
	nest    int    // open brackets of a skipped container

	key     []byte // a member name in parts or with escapes, raw
	longKey bool   // longer than any name that is followed
}

// course is what a scanner knows between two documents.
type course struct {
	array bool // within a top-level array
	lines bool // one document a line: a syntax error ends with the line
	stray bool // something else than documents stood between documents

	trailed bool // something else than a document stood behind one on its line, ever
	broken  bool // the same anywhere outside arrays, or a syntax error, ever

	count int // documents begun since the last end
}

// end takes the end of the input, or of a part of it that holds whole documents. It
// reports whether an array was still open.
func (c *course) end() (cut bool) {
	cut = c.array
	c.array, c.stray, c.count = false, false, 0
	return cut
}

type frame struct {
	node  *node
	array bool
}

type scanState uint8

const (
	betweenDocuments scanState = iota
	beforeFirstMember
	beforeMember
	inName
	beforeColon
	beforeValue
	beforeFirstElement
	afterValue
	inString
	inScalar
	inContainer
	brokenDocument
)

// maxName bounds a member name in raw JSON; every followed one is shorter, even if
// each of its letters is written as \uXXXX.
const maxName = 256

func newScanner(t *tree, done func(*document)) scanner {
	return scanner{tree: t, done: done, doc: newDocument(t.slots), key: make([]byte, 0, 32)}
}

// feed reads the next piece.
func (s *scanner) feed(p []byte) {
	for i := 0; i < len(p); {
		switch s.state {
		case inName:
			i = s.readName(p, i)
		case inString:
			i = s.readString(p, i, i)
		case inScalar:
			i = s.readScalar(p, i)
		case inContainer:
			i = s.readContainer(p, i)
		case brokenDocument:
			i = s.skipLine(p, i)
		default:
			c := p[i]
			if class[c]&blank != 0 {
				// A line feed behind a whole document: these are lines.
				if c == '\n' && s.state == betweenDocuments && s.count > 0 && !s.array {
					s.lines = true
				}
				i++
				continue
			}
			i = s.structure(p, i)
		}
	}
}

// structure reads on at a byte outside strings, scalars and blanks.
func (s *scanner) structure(p []byte, i int) int {
	c := p[i]
	switch s.state {
	case beforeFirstMember, beforeMember:
		switch {
		case c == '"':
			return s.readMembers(p, i)
		case c == '}' && s.state == beforeFirstMember:
			s.pop()
		default:
			s.fail()
		}
	case beforeColon:
		if c != ':' {
			s.fail()
			break
		}
		s.state = beforeValue
	case beforeValue:
		return s.begin(p, i)
	case beforeFirstElement:
		if c != ']' {
			return s.begin(p, i)
		}
		s.pop()
	case afterValue:
		f := &s.stack[s.depth-1]
		switch {
		case c == ',' && f.array:
			s.target = f.node.element
			s.state = beforeValue
		case c == ',':
			s.state = beforeMember
		case c == '}' && !f.array, c == ']' && f.array:
			s.pop()
		default:
			s.fail()
		}
	case betweenDocuments:
		return s.top(p, i)
	}
	return i + 1
}

// top reads on between documents.
func (s *scanner) top(p []byte, i int) int {
	c := p[i]
	s.stray = s.stray || c != '{'
	switch {
	case c == '{':
		s.open = true
		s.count++
		s.element = 0
		s.push(s.tree.root, false)
	case c == '[' && !s.array:
		s.array = true
	case c == ']' && s.array:
		s.array = false
	case c == ',' && s.array:
	case c == 0xEF, c == 0xBB, c == 0xBF, c == 0x1E: // a byte order mark, a record separator
	default:
		s.trailed = s.trailed || s.count > 0 && !s.array && !s.lines
		s.broken = s.broken || !s.array
		s.target = nil
		return s.begin(p, i)
	}
	return i + 1
}

// begin reads a value from its first byte on.
func (s *scanner) begin(p []byte, i int) int {
	kind := kinds[p[i]]
	if kind == typeAbsent {
		s.fail()
		return i + 1
	}
	t := s.target
	if s.arrays == 1 && s.stack[s.depth-1].array {
		s.element++
	}
	s.kind, s.keep, s.tally = kind, false, false
	if t != nil {
		if t.once != 0 {
			seen, bit := &s.doc.once[t.once/64], uint64(1)<<(t.once%64)
			if *seen&bit != 0 {
				s.doc.drop(t.below)
			}
			*seen |= bit
		}
		follow := kind == typeObject && t.follows() || kind == typeArray && t.element != nil
		if t.slot >= 0 {
			s.want(t, follow)
		}
		if follow {
			s.push(t, kind == typeArray)
			return i + 1
		}
	}
	switch kind {
	case typeString:
		s.state = inString
		return s.readString(p, i, i+1)
	case typeObject, typeArray:
		s.nest = 0
		s.state = inContainer
		return s.readContainer(p, i)
	default:
		s.state = inScalar
		return s.readScalar(p, i)
	}
}

// want prepares for a value that belongs in a slot.
func (s *scanner) want(t *node, follow bool) {
	s.off = int32(len(s.doc.kept))
	switch t.keep {
	case text, typedText:
		s.doc.counted(t.slot)
		s.tally = !follow && (s.kind == typeString || s.kind == typeObject || s.kind == typeArray)
	case fragment:
		s.keep, s.limit = !follow, maxFragment
	case word:
		s.keep, s.limit = s.kind != typeObject && s.kind != typeArray, maxWord
	case passage:
		s.keep = s.kind == typeString
	}
	if !s.keep && t.keep != text {
		s.doc.put(t.slot, s.kind, s.element, s.off)
	}
}

// retain keeps bytes of the value being read, or, if they are too many, only its type.
func (s *scanner) retain(p []byte) {
	if !s.keep {
		return
	}
	if s.target.keep == passage {
		s.sink(p)
		return
	}
	if len(s.doc.kept)-int(s.off)+len(p) > s.limit || len(s.doc.kept)+len(p) > maxKept {
		s.doc.kept = s.doc.kept[:s.off]
		s.doc.put(s.target.slot, s.kind, s.element, s.off)
		s.keep = false
		return
	}
	s.doc.kept = append(s.doc.kept, p...)
}

// finish takes the end of a value.
func (s *scanner) finish() {
	if s.keep {
		s.doc.put(s.target.slot, s.kind, s.element, s.off)
		s.keep = false
	}
	s.tally = false
	if s.depth == 0 {
		s.state = betweenDocuments
		return
	}
	s.state = afterValue
}

func (s *scanner) push(n *node, array bool) {
	s.stack[s.depth] = frame{n, array}
	s.depth++
	if !array {
		s.state = beforeFirstMember
		return
	}
	if s.arrays++; s.arrays == 1 {
		s.element = 0
	}
	s.target = n.element
	s.state = beforeFirstElement
}

func (s *scanner) pop() {
	s.depth--
	if s.stack[s.depth].array {
		if s.arrays--; s.arrays == 0 {
			s.element = 0
		}
	}
	if s.depth == 0 {
		s.close()
		return
	}
	s.state = afterValue
}

// close hands over the document.
func (s *scanner) close() {
	s.done(&s.doc)
	s.doc.reset()
	s.open = false
	s.depth, s.arrays = 0, 0
	s.state = betweenDocuments
}

// fail takes a syntax error.
func (s *scanner) fail() {
	s.broken = true
	if s.open {
		s.close()
	}
	s.keep, s.tally = false, false
	s.state = brokenDocument
}

// end takes the end of the input, or of a part of it that holds whole documents. It
// reports whether a document or an array was still open; what was read of the
// document is handed over.
func (s *scanner) end() (cut bool) {
	cut = s.open
	if s.open {
		s.close()
	}
	s.state = betweenDocuments
	s.keep, s.tally, s.quoted, s.escaped = false, false, false, false
	s.longKey, s.key = false, s.key[:0]
	s.hex = 0
	return s.course.end() || cut
}

// idle tells whether all that s knows is in its course.
func (s *scanner) idle() bool { return s.state == betweenDocuments && !s.open }

// abandon ends the input like end, but forgets the document that was open.
func (s *scanner) abandon() {
	s.doc.reset()
	s.open = false
	s.depth, s.arrays = 0, 0
	s.end()
}

// skipLine passes what follows a syntax error.
func (s *scanner) skipLine(p []byte, i int) int {
	if !s.lines {
		return len(p)
	}
	j := bytes.IndexByte(p[i:], '\n')
	if j < 0 {
		return len(p)
	}
	s.end()
	return i + j + 1
}
