package memory

import (
	"bytes"
	"crypto/rand"
)

// A file has marks of the processes that have written it: each begins what it writes
// with its own, once it has taken in all that is in the file. So a process tells its own
// past from news. A directory that it has had before, or a copy of that, has nothing new
// up to where another process goes on: what it says and the process does not, was given
// back, cleared or taken away meanwhile, and is not to come back.
//
// A mark is the two empty texts with which no other record begins, and 16 bytes.

const markSize = 2 + 16

// newMark returns one that is no other's.
func newMark() []byte {
	mark := make([]byte, markSize)
	rand.Read(mark[2:])
	return mark
}

// isMark tells whether a record is one.
func isMark(record []byte) bool {
	return len(record) == markSize && record[0] == 0 && record[1] == 0
}

// mark takes a mark in: before that of this process is nothing new, and behind it only
// what another has written.
func (l *loading) mark(record []byte) {
	if l.own = bytes.Equal(record, l.s.mark); l.own {
		l.known = true
		l.shards, l.found = new([shards]shard), Restored{}
	}
}
