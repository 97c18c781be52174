package usage

import (
	"fmt"
	"strings"
)

// capture says what of a value is kept.
type capture uint8

const (
	// mark keeps only the type of the value.
	mark capture = iota
	// word keeps a string or a scalar as raw JSON of at most maxWord bytes, and
	// only the type of anything longer or of a container.
	word
	// fragment keeps any value as raw JSON of at most maxFragment bytes, and only
	// the type of anything longer.
	fragment
	// text counts the decoded bytes of a string, or the raw bytes of a container
	// under which no position is followed. It keeps nothing.
	text
	// typedText is text that keeps the type of the value too: for a name that is
	// text in one API and an object in another.
	typedText
	// passage hands the raw JSON of a string to the scanner's sink, quotes and all,
	// in parts as they come. It keeps only the type.
	passage
)

// counts tells whether text is counted.
func (c capture) counts() bool { return c == text || c == typedText }

const (
	maxWord     = 256
	maxFragment = 64 << 10
	// maxDepth is the most containers a position lies in. It bounds the trees in
	// this package, not the documents: what lies beside or below a position is
	// skipped by counting brackets.
	maxDepth = 16
)

// position is a fixed place in a document: member names joined by ".", with "[]"
// behind a name for every element of the array there, as in
// "choices[].delta.content". A name cannot contain a dot. Several places that need not
// be told apart are separated by blanks.
type position struct {
	path string
	keep capture
}

// node is one step of the positions of a tree. It is small, and what is looked at first is
// close together: between two events of a slow stream nothing of it stays in the
// processor's cache.
type node struct {
	// first is by bucket the number, from 1, of a member that is followed, or 0. The
	// others in the same bucket hang on that.
	first   [memberBuckets]uint8
	list    []member
	element *node // of an array here; nil if none is followed
	slot    int32 // where values go, -1 if nothing is kept here
	keep    capture
	inArray bool
	// once is the node's number, from 1, among those whose second coming in one
	// document makes void what the first brought: 0 in arrays, where coming again is
	// normal.
	once  uint8
	below []int32 // the slots here and further down; nil if once is 0
}

type member struct {
	name string
	node *node
	next uint8 // in the same bucket, its number from 1; 0 if there is none
}

// memberBuckets is a power of two; a node has no more members than maxMembers.
const (
	memberBuckets = 32
	maxMembers    = 255
)

// maxOnce is the largest node.once.
const maxOnce = 255

// bucket spreads member names by what is cheap to look at: length, first and last.
func bucket[T string | []byte](name T) uint {
	n := len(name)
	if n == 0 {
		return 0
	}
	return (uint(n) + uint(name[0])<<1 + uint(name[n-1])) % memberBuckets
}

// member returns the node of the member, nil if it is not followed.
func (n *node) member(name []byte) *node {
	for i := n.first[bucket(name)]; i != 0; {
		m := &n.list[i-1]
		if m.name == string(name) {
			return m.node
		}
		i = m.next
	}
	return nil
}

// follows tells whether there are members.
func (n *node) follows() bool { return len(n.list) > 0 }

// tree is a set of positions, compiled for scanning.
type tree struct {
	root  *node
	slots int   // how many different positions
	nodes uint8 // with a number in node.once
}

func newTree() *tree {
	return &tree{root: &node{slot: -1}}
}

// add compiles positions and returns the slot of each. A position that stands in the
// tree already keeps its slot. It panics on a position that is deeper than maxDepth
// or was added in another way, and on too many members: all are mistakes in this package's
// tables.
func (t *tree) add(positions []position) []int32 {
	slots := make([]int32, len(positions))
	for i, p := range positions {
		slots[i] = -1
		for path := range strings.FieldsSeq(p.path) {
			n := t.find(path)
			if n.slot < 0 {
				if slots[i] < 0 {
					slots[i] = int32(t.slots)
					t.slots++
				}
				n.slot, n.keep = slots[i], p.keep
			}
			if n.keep != p.keep || slots[i] >= 0 && n.slot != slots[i] {
				panic(fmt.Sprintf("position %q is kept in two ways", path))
			}
			slots[i] = n.slot
		}
	}
	t.root.settle()
	return slots
}

// find returns the node of a path, new if need be.
func (t *tree) find(path string) *node {
	n := t.root
	depth := 1
	for name := range strings.SplitSeq(path, ".") {
		elements := strings.Count(name, "[]")
		if depth += 1 + elements; depth > maxDepth {
			panic(fmt.Sprintf("position %q is too deep", path))
		}
		n = t.step(n, strings.TrimRight(name, "[]"))
		for range elements {
			if n.element == nil {
				n.element = &node{slot: -1, inArray: true}
			}
			n = n.element
		}
	}
	return n
}

// step returns the node of a member of n, new if need be.
func (t *tree) step(n *node, name string) *node {
	if m := n.member([]byte(name)); m != nil {
		return m
	}
	m := &node{slot: -1, inArray: n.inArray}
	if !m.inArray && t.nodes < maxOnce {
		t.nodes++
		m.once = t.nodes
	}
	if len(n.list) == maxMembers {
		panic(fmt.Sprintf("position %q is one member too many", name))
	}
	b := bucket(name)
	n.list = append(n.list, member{name, m, n.first[b]})
	n.first[b] = uint8(len(n.list))
	return m
}

// settle computes below for n and everything under it, and returns n's slots.
func (n *node) settle() []int32 {
	var all []int32
	if n.slot >= 0 {
		all = append(all, n.slot)
	}
	for _, m := range n.list {
		all = append(all, m.node.settle()...)
	}
	if n.element != nil {
		all = append(all, n.element.settle()...)
	}
	if n.once != 0 {
		n.below = all
	}
	return all
}
