package media

// flacStream is what the block STREAMINFO says, RFC 9639, section 8.2.
type flacStream struct {
	rate  uint64
	total uint64 // samples, 0 if not known
	bits  byte   // of a sample
}

// readFlacStream reads the 34 bytes of a STREAMINFO.
func readFlacStream(b []byte) (f flacStream, ok bool) {
	if len(b) < 34 {
		return f, false
	}
	f.rate = uint64(be.Uint32(b[10:])) >> 12
	f.bits = b[12]&1<<4 | b[13]>>4 + 1
	f.total = be.Uint64(b[10:]) & (1<<36 - 1)
	return f, f.rate > 0
}

// flac reads a FLAC file that begins at off. Its frames are counted: what STREAMINFO
// says of their number binds no decoder, and is 0 in streams.
func flac(s source, off int64) (Info, bool) {
	b := s.at(off+4, 38)
	if len(b) < 38 || b[0]&0x7f != 0 {
		return Info{}, false
	}
	f, ok := readFlacStream(b[4:])
	if !ok {
		return Info{}, false
	}
	off += 4
	for last := false; !last; {
		h := s.at(off, 4)
		if len(h) < 4 {
			return Info{}, false
		}
		last = h[0]&0x80 != 0
		off += 4 + int64(be.Uint32(h)&0xffffff)
	}
	var counted uint64
	for off < s.size() {
		if off = find(s, off, s.size(), "\xff"); off < 0 {
			break
		}
		n, ok := f.frame(s.at(off, maxFlacHeader))
		if !ok {
			off++
			continue
		}
		counted += n
		off += minFlacFrame
	}
	return Info{Format: "flac", Audio: true, Millis: longer(millis(f.total, f.rate), millis(counted, f.rate))}, true
}

const (
	maxFlacHeader = 16
	minFlacFrame  = 10 // a header, a subframe of a constant, the checksum
)

// frame reads the header of a frame, RFC 9639, section 9.1, and returns its samples.
// The checksum and what must be as in STREAMINFO tell it from the bytes of sound.
func (f *flacStream) frame(b []byte) (samples uint64, ok bool) {
	if len(b) < 6 || b[0] != 0xff || b[1]&0xfe != 0xf8 || b[3]&1 != 0 {
		return 0, false
	}
	size, rate, bits := b[2]>>4, b[2]&15, b[3]>>1&7
	if size == 0 || rate == 15 || bits == 3 || b[3]>>4 > 10 {
		return 0, false
	}
	if want := [...]byte{0, 8, 12, 0, 16, 20, 24, 32}[bits]; want != 0 && want != f.bits {
		return 0, false
	}
	at := 4 + codedLength(b[4])
	if at == 4 {
		return 0, false
	}
	switch {
	case size == 1:
		samples = 192
	case size <= 5:
		samples = 144 << size
	case size == 6 && at < len(b):
		samples = uint64(b[at]) + 1
		at++
	case size == 7 && at+1 < len(b):
		samples = uint64(be.Uint16(b[at:])) + 1
		at += 2
	default:
		samples = 1 << size
	}
	switch rate {
	case 12:
		at++
	case 13, 14:
		at += 2
	}
	if at >= len(b) || crc8(b[:at]) != b[at] {
		return 0, false
	}
	return samples, true
}

// codedLength is how many bytes a number takes that is written in the manner of UTF-8,
// 0 if c cannot begin one.
func codedLength(c byte) int {
	switch {
	case c < 0x80:
		return 1
	case c < 0xc0, c == 0xff:
		return 0
	}
	n := 0
	for ; c&0x80 != 0; c <<= 1 {
		n++
	}
	return n
}

var crc8Table = func() (t [256]byte) {
	for i := range t {
		c := byte(i)
		for range 8 {
			if c&0x80 != 0 {
				c = c<<1 ^ 7
			} else {
				c <<= 1
			}
		}
		t[i] = c
	}
	return t
}()

func crc8(b []byte) (c byte) {
	for _, v := range b {
		c = crc8Table[c^v]
	}
	return c
}
