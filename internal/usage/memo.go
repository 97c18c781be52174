package usage

// maxMemo bounds the beginning of a document that is remembered.
const maxMemo = 512

// maxMisses is how many documents are read at most before another beginning is remembered.
const maxMisses = 64

// memo remembers how the last document began, up to its first text, and what the
// scanner knew there. The events of a stream repeat an id, a model and the like before
// each piece of text, which is most of what there is to read in them; one that begins
// with the same bytes is read on from there, whatever stream it is of.
type memo struct {
	prefix []byte
	misses uint // documents with a text since one began like the prefix

	state   scanState
	depth   int
	stack   [maxDepth]frame
	arrays  int
	element int32
	target  *node
	values  []value
	kept    []byte
	once    [maxOnce/64 + 1]uint64
}

// due reports whether to remember another beginning. Streams that number their events
// never repeat one, nor do many that take turns, so tries become rare; but they do not end,
// for other streams come.
func (m *memo) due() bool {
	m.misses++
	return m.misses&(m.misses-1) == 0 || m.misses%maxMisses == 0
}

// save remembers the beginning of the document that s is in, just before a value.
func (m *memo) save(s *scanner, prefix []byte) {
	d := &s.doc
	if d.dropped {
		m.prefix = m.prefix[:0]
		return
	}
	m.prefix = append(m.prefix[:0], prefix...)
	m.state, m.target = s.state, s.target
	m.depth, m.arrays, m.element = s.depth, s.arrays, s.element
	copy(m.stack[:s.depth], s.stack[:s.depth])
	m.values, m.kept, m.once = append(m.values[:0], d.values...), append(m.kept[:0], d.kept...), d.once
}

// load puts s, which is at the beginning of a document, where save was called.
func (m *memo) load(s *scanner) {
	m.misses = 0
	s.state, s.target = m.state, m.target
	s.depth, s.arrays, s.element = m.depth, m.arrays, m.element
	copy(s.stack[:m.depth], m.stack[:m.depth])
	d := &s.doc
	d.values, d.kept, d.once = append(d.values, m.values...), append(d.kept, m.kept...), m.once
	for i := range d.values {
		d.last[d.values[i].slot] = int32(i) + 1
	}
}
