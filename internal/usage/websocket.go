package usage

import "encoding/binary"

// Opcodes of RFC 6455, section 5.2. Those from 8 on are of control frames.
const (
	wsContinuation = 0x0
	wsText         = 0x1
	wsBinary       = 0x2
	wsClose        = 0x8
	wsPing         = 0x9
	wsPong         = 0xA
)

// Bits of the first two bytes of a frame.
const (
	wsFinal      = 0x80
	wsCompressed = 0x40 // RSV1, which RFC 7692 uses
	wsReserved   = 0x30
	wsOpcode     = 0x0F
	wsMasked     = 0x80
	wsLength     = 0x7F
)

const (
	wsMaxHead = 14
	// wsMaxControl is the longest payload of a control frame, in bytes.
	wsMaxControl = 125
)

// wsFrame is where in a frame a stream of them stands. The zero value is between two.
type wsFrame struct {
	head [wsMaxHead]byte
	have int    // bytes of the head
	left uint64 // bytes of the payload still to come, once the head is whole
}

// size is how long the head is, as far as what there is of it tells; at least 2.
func (f *wsFrame) size() int {
	n := 2
	if f.have < n {
		return n
	}
	switch f.head[1] & wsLength {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&wsMasked != 0 {
		n += 4
	}
	return n
}

// begun tells whether the head is whole.
func (f *wsFrame) begun() bool { return f.have >= 2 && f.have == f.size() }

// begin takes bytes of the head and returns how many there were.
func (f *wsFrame) begin(p []byte) (n int) {
	for n < len(p) && !f.begun() {
		f.head[f.have] = p[n]
		f.have++
		n++
	}
	if f.begun() {
		switch size := f.head[1] & wsLength; size {
		case 126:
			f.left = uint64(binary.BigEndian.Uint16(f.head[2:]))
		case 127:
			f.left = binary.BigEndian.Uint64(f.head[2:])
		default:
			f.left = uint64(size)
		}
	}
	return n
}

// rest returns how many bytes of p belong to the frame, and whether it ends there.
func (f wsFrame) rest(p []byte) (n int, ends bool) {
	if f.have == 0 {
		return 0, true
	}
	if !f.begun() {
		if n = f.begin(p); !f.begun() {
			return n, false
		}
	}
	if f.left > uint64(len(p)-n) {
		return len(p), false
	}
	return n + int(f.left), true
}

func (f *wsFrame) opcode() byte  { return f.head[0] & wsOpcode }
func (f *wsFrame) control() bool { return f.opcode() >= wsClose }
func (f *wsFrame) final() bool   { return f.head[0]&wsFinal != 0 }
func (f *wsFrame) masked() bool  { return f.head[1]&wsMasked != 0 }

// webSocket reads one direction of a WebSocket (RFC 6455, with the compression of RFC
// 7692) while it passes, from pieces of any size. It keeps a few bytes, whatever the
// size of a message; where messages are compressed, the 32 KiB they may refer to.
type webSocket struct {
	data func([]byte) // called with the content of messages; may not keep it
	done func()       // called at the end of each

	frame  wsFrame
	within bool      // a message has begun and not ended
	packed bool      // it is compressed
	packer *inflater // nil where compression was not agreed upon
	offset int       // in the masking key
	plain  []byte    // what was masked

	closed bool // a close frame has come
	broken bool // what follows cannot be read
}

// feed reads the next piece. It changes nothing of p, and keeps nothing.
func (w *webSocket) feed(p []byte) {
	for len(p) > 0 && !w.broken {
		if !w.frame.begun() {
			p = p[w.frame.begin(p):]
			if !w.frame.begun() {
				return
			}
			if w.broken = !w.accept(); w.broken {
				return
			}
		}
		n := len(p)
		if w.frame.left < uint64(n) {
			n = int(w.frame.left)
		}
		if n > 0 && !w.frame.control() {
			if w.payload(p[:n]); w.broken {
				return
			}
		}
		p = p[n:]
		if w.frame.left -= uint64(n); w.frame.left == 0 {
			w.finish()
		}
	}
}

// accept takes the head of a frame. It reports false for one that breaks the rules.
func (w *webSocket) accept() bool {
	f := &w.frame
	w.offset = 0
	packed := f.head[0]&wsCompressed != 0
	if f.head[0]&wsReserved != 0 || f.left>>63 != 0 {
		return false
	}
	switch op := f.opcode(); op {
	case wsText, wsBinary:
		if w.within || packed && w.packer == nil {
			return false
		}
		w.within, w.packed = true, packed
	case wsContinuation:
		return w.within && !packed
	case wsClose, wsPing, wsPong:
		return f.final() && !packed && f.left <= wsMaxControl
	default:
		return false
	}
	return true
}

// payload takes a piece of a message.
func (w *webSocket) payload(p []byte) {
	if !w.frame.masked() {
		w.content(p)
		return
	}
	if w.plain == nil {
		w.plain = make([]byte, 4<<10)
	}
	key := w.frame.head[w.frame.have-4 : w.frame.have]
	for len(p) > 0 {
		n := min(len(p), len(w.plain))
		unmask(w.plain[:n], p[:n], key, w.offset)
		w.offset = (w.offset + n) % len(key)
		w.content(w.plain[:n])
		p = p[n:]
	}
}

// unmask writes to what is masked in from; offset is where in the key it begins.
func unmask(to, from, key []byte, offset int) {
	var wide [8]byte
	for i := range wide {
		wide[i] = key[(offset+i)%len(key)]
	}
	k := binary.NativeEndian.Uint64(wide[:])
	i := 0
	for ; i+8 <= len(from); i += 8 {
		binary.NativeEndian.PutUint64(to[i:], binary.NativeEndian.Uint64(from[i:])^k)
	}
	for ; i < len(from); i++ {
		to[i] = from[i] ^ wide[i%8]
	}
}

// content takes a piece of a message as it was before masking.
func (w *webSocket) content(p []byte) {
	if !w.packed {
		w.data(p)
		return
	}
	w.broken = !w.packer.feed(p) || w.broken
}

// finish takes the end of a frame.
func (w *webSocket) finish() {
	f := w.frame
	w.frame = wsFrame{}
	switch {
	case f.opcode() == wsClose:
		w.closed = true
	case !f.control() && f.final():
		if w.packed && !w.packer.end() {
			w.broken = true
			return
		}
		w.within, w.packed = false, false
		w.done()
	}
}

// close gives back what the reader holds.
func (w *webSocket) close() {
	if w.packer != nil {
		w.packer.close()
	}
}
