package media

// riff reads what WAV and AIFF have in common: chunks with a name of four letters and
// a size. The size of the chunk with the sound is believed only where what follows it
// is known not to be sound: streams are sent with 0 or the largest number for it, some
// readers ignore it, others play a second such chunk.
type riff struct {
	s      source
	sound  string // the name of the chunk with sound
	format string // the name of the chunk with its format
	order  func([]byte) uint32
	chunk  func(b []byte) // reads the start of the latter, up to 40 bytes
	first  int64          // where sound begins, -1 before it was found
	amount uint64         // bytes of sound
}

// aside are chunks that may follow the sound.
var aside = map[string]bool{
	"LIST": true, "id3 ": true, "ID3 ": true, "bext": true, "iXML": true, "fact": true, "cue ": true, "smpl": true,
	"inst": true, "JUNK": true, "junk": true, "PAD ": true, "FLLR": true, "axml": true, "_PMX": true, "cart": true,
	"PEAK": true, "afsp": true, "plst": true, "NAME": true, "AUTH": true, "ANNO": true, "COMT": true, "APPL": true,
	"MARK": true, "INST": true, "(c) ": true,
}

// maxAside is how many bytes behind the sound may be something else: tags with a
// picture, but no recording of any length.
const maxAside = 1 << 20

func (r *riff) walk() {
	r.first = -1
	off, end, skipped := int64(12), r.s.size(), int64(0)
	for {
		h := r.s.at(off, 8)
		if len(h) < 8 {
			if r.first >= 0 {
				r.amount += uint64(len(h))
			}
			return
		}
		sound, format, other := string(h[:4]) == r.sound, string(h[:4]) == r.format, aside[string(h[:4])]
		size := int64(r.order(h[4:]))
		off += 8
		rest := end - off
		switch {
		case sound && r.first < 0:
			r.first = off
			if size == 0 || size > rest {
				size = rest
			}
			r.amount += uint64(size)
		case r.first < 0, other && size <= rest && skipped+size <= maxAside:
			if size > rest {
				return
			}
			if r.first >= 0 {
				skipped += size
			}
			if format {
				r.chunk(r.s.at(off, int(min(size, 40))))
			}
		default:
			r.amount += uint64(rest) // more sound, whatever it is called
			if !sound {
				r.amount += 8
			}
			return
		}
		off += size + size&1
	}
}

// wave is the format of a WAV file, from its chunk "fmt ".
type wave struct {
	codec, channels, bits, align, perBlock uint64
	rate                                   uint64
	known                                  bool
}

// maxRate is the highest sample rate that is believed, maxChannels and maxBits
// likewise: more of them make a second take more bytes, and sound shorter.
const (
	maxRate     = 768_000
	maxChannels = 64
	maxBits     = 64
)

func wav(s source) (Info, bool) {
	var f wave
	r := riff{s: s, sound: "data", format: "fmt ", order: le.Uint32}
	r.chunk = func(b []byte) {
		if len(b) >= 16 && !f.known {
			f.read(b)
		}
	}
	r.walk()
	ms, ok := f.millis(s, &r)
	return Info{Format: "wav", Audio: true, Millis: ms}, ok && r.first >= 0
}

func (f *wave) read(b []byte) {
	f.codec, f.channels = uint64(le.Uint16(b)), uint64(le.Uint16(b[2:]))
	f.rate, f.align, f.bits = uint64(le.Uint32(b[4:])), uint64(le.Uint16(b[12:])), uint64(le.Uint16(b[14:]))
	if len(b) >= 20 {
		f.perBlock = uint64(le.Uint16(b[18:]))
	}
	if f.codec == 0xfffe && len(b) >= 26 { // the codec stands at the start of a GUID
		f.codec = uint64(le.Uint16(b[24:]))
	}
	f.known = f.rate > 0 && f.rate <= maxRate && f.channels > 0 && f.channels <= maxChannels && f.bits <= maxBits
}

// millis is how long the sound lasts. The rate of bytes that the file states is not
// used: it only repeats what the other fields say, or contradicts them.
func (f *wave) millis(s source, r *riff) (int64, bool) {
	if !f.known {
		return 0, false
	}
	switch f.codec {
	case 1, 3: // whole numbers, floating point
		bytes := f.channels * ((f.bits + 7) / 8)
		if bytes == 0 {
			return 0, false
		}
		return millis(r.amount, f.rate*bytes), true
	case 6, 7: // A-law, µ-law
		return millis(r.amount, f.rate*f.channels), true
	case 0x02, 0x11: // ADPCM of Microsoft, of IMA
		// A nibble a sample but for the head of each block.
		most := f.align * 2 / f.channels
		if f.align == 0 || f.perBlock == 0 || f.perBlock > most {
			return 0, false
		}
		return millis((r.amount+f.align-1)/f.align*f.perBlock, f.rate), true
	case 0x31: // GSM 6.10
		if f.align == 0 || f.align > 65 {
			return 0, false
		}
		return millis((r.amount+f.align-1)/f.align*320, f.rate), true
	case 0x50, 0x55: // MPEG
		i, ok := walkFrames(s, r.first, r.first+int64(r.amount), mpegHeader)
		return i.Millis, ok
	}
	return 0, false
}

// aiff reads Apple's cousin of WAV, in the other order of bytes.
func aiff(s source) (Info, bool) {
	var rate, bytes uint64
	r := riff{s: s, sound: "SSND", format: "COMM", order: be.Uint32}
	r.chunk = func(b []byte) {
		if len(b) < 18 {
			return
		}
		rate = extended(b[8:])
		bytes = uint64(be.Uint16(b)) * ((uint64(be.Uint16(b[6:])) + 7) / 8)
		if len(b) >= 22 { // AIFC
			switch string(b[18:22]) {
			case "NONE", "twos", "sowt", "in24", "in32", "fl32", "FL32", "fl64", "FL64", "raw ":
			case "ulaw", "ULAW", "alaw", "ALAW":
				bytes = uint64(be.Uint16(b))
			default:
				rate = 0
			}
		}
	}
	r.walk()
	ok := rate > 0 && rate <= maxRate && bytes > 0 && bytes <= maxChannels*maxBits/8 && r.first >= 0 && r.amount > 8
	if !ok {
		return Info{}, false
	}
	// The chunk begins with two numbers of four bytes.
	return Info{Format: "aiff", Audio: true, Millis: millis(r.amount-8, rate*bytes)}, true
}

// extended is the whole part of a floating-point number of 80 bits, 0 if it is none
// that a sample rate can be.
func extended(b []byte) uint64 {
	exp, mantissa := int(be.Uint16(b))-16383, be.Uint64(b[2:])
	if exp < 0 || exp > 31 {
		return 0
	}
	return mantissa >> (63 - exp)
}
