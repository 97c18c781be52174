package media

import (
	"bytes"
	"math/bits"
)

// begin reads the first packet of a stream, which tells its codec.
func (o *oggStream) begin() {
	p := o.packet
	o.headers = oggOther
	switch {
	case bytes.HasPrefix(p, []byte("OpusHead")) && len(p) >= 19:
		o.codec, o.rate, o.headers = opus{}, opusRate, 1
		o.skip = uint64(le.Uint16(p[10:]))
	case bytes.HasPrefix(p, []byte("\x01vorbis")) && len(p) >= 29:
		v := &vorbis{}
		v.blocks = [2]uint64{1 << (p[28] & 15), 1 << (p[28] >> 4)}
		o.codec, o.rate, o.headers = v, uint64(le.Uint32(p[12:])), 2
	case bytes.HasPrefix(p, []byte("\x7fFLAC")) && len(p) >= 51:
		if f, ok := readFlacStream(p[17:]); ok {
			// Their number stands there, or 0; but blocks of metadata are no frames.
			o.codec, o.rate, o.headers = &f, f.rate, 0
		}
	case bytes.HasPrefix(p, []byte("Speex   ")) && len(p) >= 68:
		n := constant(min(uint64(le.Uint32(p[56:])), 1<<12) * min(uint64(max(1, le.Uint32(p[64:]))), 1<<8))
		o.codec, o.rate, o.headers = n, uint64(le.Uint32(p[36:])), 1
	case bytes.HasPrefix(p, []byte("\x80theora")) && len(p) >= 42:
		// A frame lasts the second number, in the first number's part of a second.
		o.codec, o.rate, o.headers, o.video = constant(be.Uint32(p[26:])), uint64(be.Uint32(p[22:])), 2, true
	case bytes.HasPrefix(p, []byte("fishead\x00")), bytes.HasPrefix(p, []byte("CMML")), bytes.HasPrefix(p, []byte("\x80kate")):
		o.headers = oggSilent
	}
	if o.codec != nil && (o.rate == 0 || o.rate > 1<<31) {
		o.codec, o.headers = nil, oggOther
	}
}

// samples is those of a frame of FLAC in Ogg.
func (f *flacStream) samples(p []byte) uint64 {
	n, _ := f.frame(p[:min(len(p), maxFlacHeader)])
	return n
}

// constant is packets that all last equally long.
type constant uint64

func (c constant) samples([]byte) uint64 { return uint64(c) }

const opusRate = 48000

// opus is Opus, RFC 6716: the first bytes of a packet tell how long it is.
type opus struct{}

func (opus) samples(p []byte) uint64 { return opusSamples(p) }

func opusSamples(p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	var frame uint64
	switch config := p[0] >> 3; {
	case config < 12: // SILK
		frame = [...]uint64{480, 960, 1920, 2880}[config&3]
	case config < 16: // both
		frame = [...]uint64{480, 960}[config&1]
	default: // CELT
		frame = [...]uint64{120, 240, 480, 960}[config&3]
	}
	switch p[0] & 3 {
	case 0:
		return frame
	case 1, 2:
		return 2 * frame
	}
	if len(p) < 2 {
		return 0
	}
	return frame * uint64(p[1]&63)
}

// vorbis is Vorbis I. A packet lasts half of its own block and the one before, which
// are short or long by its mode; the modes stand at the end of the third header.
type vorbis struct {
	blocks [2]uint64 // samples of a short and a long block
	modes  int       // 0 if they could not be read
	long   [64]bool
	before uint64
}

func (v *vorbis) samples(p []byte) uint64 {
	if v.modes == 0 || p[0]&1 != 0 {
		return 0
	}
	mode := int(p[0]>>1) & (1<<bits.Len(uint(v.modes-1)) - 1)
	if mode >= v.modes {
		return 0
	}
	block := v.blocks[0]
	if v.long[mode] {
		block = v.blocks[1]
	}
	before := v.before
	v.before = block
	if before == 0 {
		return 0 // the first one only starts
	}
	return (before + block) / 4
}

// readModes reads the modes from the end of a header backwards, since what stands
// before them is long and says nothing of time. A mode is 41 bits: whether it is long,
// 32 zeros and the number of its mapping. Before the first stands their number less
// one in 6 bits, behind the last a one.
func (v *vorbis) readModes(p []byte) {
	bit := func(i int) bool { return p[i/8]>>(i%8)&1 != 0 }
	end := len(p)*8 - 1
	for end >= 0 && !bit(end) {
		end--
	}
	field := func(at, n int) (x int) {
		for i := range n {
			if bit(at + i) {
				x |= 1 << i
			}
		}
		return x
	}
	var long []bool // from the last mode on
	for at := end - 41; at >= 6 && len(long) < len(v.long) && field(at+1, 32) == 0; at -= 41 {
		long = append(long, bit(at))
		if field(at-6, 6) == len(long)-1 {
			// The longest list that fits is the right one: what looks like a shorter
			// one is within a mode.
			v.modes = len(long)
			for i, l := range long {
				v.long[len(long)-1-i] = l
			}
		}
	}
}
