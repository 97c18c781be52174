package usage

import (
	"encoding/binary"
	"hash/crc32"
)

// frameReader splits an event stream in AWS's binary framing
// (application/vnd.amazon.eventstream) into the payloads of its messages, from pieces
// of any size:
//
//	total length      uint32, big-endian as all numbers are
//	headers length    uint32
//	prelude checksum  uint32, CRC-32 of the 8 bytes before
//	headers           name length uint8, name, type uint8, value; see frameValueSizes
//	payload
//	checksum          uint32, CRC-32 of all bytes before
//
// A payload is handed on before its checksum has come; frameEnd tells that it is right.
type frameReader struct {
	state   frameState
	have    int // bytes of fixed
	fixed   [framePrelude]byte
	sum     uint32
	headers uint32 // bytes to come
	payload uint32 // bytes to come
	frames  int    // whole ones

	part    framePart
	left    int // bytes of the part to come
	size    int // of the header's value
	text    bool
	nameLen int
	name    [16]byte // longer than any name that is looked for
	valLen  int
	value   [16]byte

	kind  frameKind
	chunk bool // a part of another API's answer, wrapped into JSON as base64
}

const (
	framePrelude  = 12 // bytes
	frameChecksum = 4  // bytes
	// maxFrameHeaders is what the format allows headers to be, in bytes.
	maxFrameHeaders = 128 << 10
	// maxFrameLead is the first byte of the longest message, of some 17 MiB.
	maxFrameLead = 1
)

// frameToken is what next found.
type frameToken uint8

const (
	frameNothing frameToken = iota // the piece is used up
	frameData                      // a part of a payload
	frameEnd                       // the message is whole and its checksum is right
	frameBroken                    // what follows cannot be read; told once
)

type frameState uint8

const (
	inPrelude frameState = iota
	inHeaders
	inPayload
	inChecksum
	inRuins
)

// frameKind is what a message is about.
type frameKind uint8

const (
	frameEvent   frameKind = iota
	frameFailure           // an exception that the API models, or an error
)

type framePart uint8

const (
	frameNameLength framePart = iota
	frameName
	frameType
	frameValueLength
	frameValue
)

// frameValueSizes are the sizes of values by type: true, false, byte, short, integer,
// long, bytes, string, timestamp and UUID. Bytes and strings have a uint16 before them
// that tells their size.
var frameValueSizes = [...]int{0, 0, 1, 2, 4, 8, -1, -1, 8, 16}

const frameString = 7

// next reads from p until there is something to tell. It returns how many bytes it
// read and, with frameData, the part of the payload among them.
func (r *frameReader) next(p []byte) (token frameToken, n int, data []byte) {
	for n < len(p) {
		switch r.state {
		case inPrelude:
			if n += r.collect(p[n:], framePrelude); r.have < framePrelude {
				return frameNothing, n, nil
			}
			if !r.begin() {
				return r.fail(n)
			}
		case inHeaders:
			part := p[n:min(len(p), n+int(r.headers))]
			n += len(part)
			r.headers -= uint32(len(part))
			r.sum = crc32.Update(r.sum, crc32.IEEETable, part)
			if !r.readHeaders(part) {
				return r.fail(n)
			}
			if r.headers > 0 {
				return frameNothing, n, nil
			}
			if r.part != frameNameLength {
				return r.fail(n)
			}
			r.state = inPayload
		case inPayload:
			if r.payload == 0 {
				r.state = inChecksum
				continue
			}
			part := p[n:min(uint64(len(p)), uint64(n)+uint64(r.payload))]
			r.payload -= uint32(len(part))
			r.sum = crc32.Update(r.sum, crc32.IEEETable, part)
			return frameData, n + len(part), part
		case inChecksum:
			if n += r.collect(p[n:], frameChecksum); r.have < frameChecksum {
				return frameNothing, n, nil
			}
			if binary.BigEndian.Uint32(r.fixed[:]) != r.sum {
				return r.fail(n)
			}
			r.have, r.state = 0, inPrelude
			r.frames++
			return frameEnd, n, nil
		case inRuins:
			return frameNothing, len(p), nil
		}
	}
	return frameNothing, n, nil
}

// whole reports whether the stream ends between two messages.
func (r *frameReader) whole() bool { return r.state == inPrelude && r.have == 0 }

// collect fills fixed up to size bytes and returns how many it took.
func (r *frameReader) collect(p []byte, size int) int {
	n := copy(r.fixed[r.have:size], p)
	r.have += n
	return n
}

func (r *frameReader) fail(n int) (frameToken, int, []byte) {
	r.state = inRuins
	return frameBroken, n, nil
}

// begin takes the prelude of a message and reports whether it is one.
func (r *frameReader) begin() bool {
	total := binary.BigEndian.Uint32(r.fixed[:])
	headers := binary.BigEndian.Uint32(r.fixed[4:])
	if headers > maxFrameHeaders || total < framePrelude+headers+frameChecksum ||
		binary.BigEndian.Uint32(r.fixed[8:]) != crc32.ChecksumIEEE(r.fixed[:8]) {
		return false
	}
	r.sum = crc32.ChecksumIEEE(r.fixed[:])
	r.headers, r.payload = headers, total-headers-framePrelude-frameChecksum
	r.part, r.kind, r.chunk = frameNameLength, frameEvent, false
	r.have, r.state = 0, inHeaders
	if headers == 0 {
		r.state = inPayload
	}
	return true
}

// readHeaders reads on in the headers. It reports false if they break the format.
func (r *frameReader) readHeaders(p []byte) bool {
	for len(p) > 0 {
		c := p[0]
		switch r.part {
		case frameNameLength:
			if c == 0 {
				return false
			}
			r.part, r.left, r.nameLen = frameName, int(c), 0
			p = p[1:]
		case frameName:
			part := p[:min(len(p), r.left)]
			r.nameLen += copy(r.name[r.nameLen:], part)
			if r.left -= len(part); r.left == 0 {
				r.part = frameType
			}
			p = p[len(part):]
		case frameType:
			if int(c) >= len(frameValueSizes) {
				return false
			}
			r.text, r.valLen, r.size = c == frameString, 0, 0
			r.part, r.left = frameValueLength, 2
			if size := frameValueSizes[c]; size >= 0 {
				r.beginValue(size)
			}
			p = p[1:]
		case frameValueLength:
			r.size = r.size<<8 | int(c)
			if r.left--; r.left == 0 {
				r.beginValue(r.size)
			}
			p = p[1:]
		case frameValue:
			part := p[:min(len(p), r.left)]
			r.valLen += copy(r.value[r.valLen:], part)
			if r.left -= len(part); r.left == 0 {
				r.endHeader()
			}
			p = p[len(part):]
		}
	}
	return true
}

func (r *frameReader) beginValue(size int) {
	r.part, r.left = frameValue, size
	if size == 0 {
		r.endHeader()
	}
}

// endHeader takes a whole header. One that is no string means nothing here.
func (r *frameReader) endHeader() {
	r.part = frameNameLength
	if !r.text {
		return
	}
	value := string(r.value[:r.valLen])
	switch string(r.name[:r.nameLen]) {
	case ":message-type":
		if value == "exception" || value == "error" {
			r.kind = frameFailure
		}
	case ":event-type":
		r.chunk = value == "chunk"
	}
}
