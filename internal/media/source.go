package media

import (
	"bytes"
	"encoding/binary"
)

// window is how many bytes a source gives at once, at most.
const window = 8 << 10

// source is the bytes of a file.
type source interface {
	// size is how many there are.
	size() int64
	// at returns n bytes from off on, at most window, and fewer where the file ends
	// before. They are valid until the next call.
	at(off int64, n int) []byte
}

// plain is a file in memory.
type plain []byte

func (p plain) size() int64 { return int64(len(p)) }

func (p plain) at(off int64, n int) []byte {
	if off < 0 || off >= int64(len(p)) {
		return nil
	}
	return p[off:min(off+int64(n), int64(len(p)))]
}

// find returns where mark stands first from off on, before end; -1 if nowhere.
func find(s source, off, end int64, mark string) int64 {
	for off+int64(len(mark)) <= end {
		b := s.at(off, int(min(window, end-off)))
		if i := bytes.Index(b, []byte(mark)); i >= 0 {
			return off + int64(i)
		}
		if len(b) < len(mark) {
			break
		}
		// The end of this piece may be the start of a mark.
		off += int64(len(b) - len(mark) + 1)
	}
	return -1
}

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)
