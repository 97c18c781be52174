package media

import "math/bits"

// mp4Track is one track of an MP4 file.
type mp4Track struct {
	id      uint32
	handler string // soun, vide or another
	scale   uint64 // ticks a second
	ticks   uint64 // as the header says
	edits   uint64 // ticks of the movie that the track's edits last

	tabled uint64 // ticks of all samples in the table of times
	listed uint64 // how many samples the table of sizes has
	sized  uint64 // their bytes
	runs   uint64 // ticks of all samples in fragments
	number uint64 // how many those are
	bytes  uint64 // of those

	codec    string
	rate     uint64 // of samples of sound, of the core where a codec has two
	perFrame uint64 // samples of sound in one sample of the file; 0 if it varies
	pcm      uint64 // bytes of a sample in all channels; 0 if it is no PCM
}

// add takes n samples of a fragment.
func (t *mp4Track) add(n, ticks, bytes uint64) {
	t.number = sum(t.number, n)
	t.runs = sum(t.runs, times(n, ticks))
	t.bytes = sum(t.bytes, times(n, bytes))
}

// times multiplies without overflow.
func times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi > 0 || lo > 1<<62 {
		return 1 << 62
	}
	return lo
}

// millis is how long the track lasts: by its time stamps, or by its sound where that
// can be counted without them.
func (t *mp4Track) millis() int64 {
	ms := millis(max(t.ticks, sum(t.tabled, t.runs)), t.scale)
	if t.handler != "soun" {
		return ms
	}
	bytes := sum(t.sized, t.bytes)
	switch {
	case t.pcm > 0:
		return longer(ms, millis(bytes/t.pcm, t.rate))
	case t.perFrame > 0:
		return longer(ms, millis(times(sum(t.listed, t.number), t.perFrame), t.rate))
	case t.codec == "alac", t.codec == "fLaC":
		return ms
	default:
		return max(ms, lossyFloor(bytes))
	}
}

// leaf reads a box of the track; b is its start.
func (t *mp4Track) leaf(s source, kind string, b []byte, off, end int64) {
	switch kind {
	case "tkhd":
		at := 12
		if b[0] == 1 {
			at = 20
		}
		if len(b) >= at+4 {
			t.id = be.Uint32(b[at:])
		}
	case "mdhd":
		t.scale, t.ticks = scaleAndTicks(b)
	case "hdlr":
		// QuickTime has a second one, for how data is found.
		if len(b) >= 12 && t.handler != "soun" && t.handler != "vide" {
			t.handler = string(b[8:12])
		}
	case "stsd":
		t.describe(s, off, end)
	case "stts":
		t.table(s, be.Uint32(b[4:]), off+8, end, 8, func(e []byte) {
			t.tabled = sum(t.tabled, times(uint64(be.Uint32(e)), uint64(be.Uint32(e[4:]))))
		})
	case "elst":
		size := int64(12)
		if b[0] == 1 {
			size = 20
		}
		t.table(s, be.Uint32(b[4:]), off+8, end, size, func(e []byte) { t.edits = sum(t.edits, number(b[0], e)) })
	case "stsz", "stz2":
		if len(b) >= 12 {
			t.sizes(s, kind == "stz2", be.Uint32(b[4:]), be.Uint32(b[8:]), off+12, end)
		}
	}
}

// table reads n entries of so many bytes, or as many as there are.
func (*mp4Track) table(s source, n uint32, off, end, size int64, entry func([]byte)) {
	for ; n > 0 && off+size <= end; n-- {
		e := s.at(off, int(size))
		if len(e) < int(size) {
			return
		}
		entry(e)
		off += size
	}
}

// sizes reads the table of sizes. The number of samples of one size is not bounded by
// the table, but by the file.
func (t *mp4Track) sizes(s source, compact bool, size, n uint32, off, end int64) {
	width := int64(32)
	switch {
	case compact:
		width = int64(size & 0xff)
	case size > 0:
		t.listed = sum(t.listed, min(uint64(n), uint64(s.size())/uint64(size)+1))
		t.sized = sum(t.sized, min(times(uint64(n), uint64(size)), uint64(s.size())))
		return
	}
	if width == 0 {
		return
	}
	t.listed = sum(t.listed, min(uint64(n), uint64(end-off)*8/uint64(width)))
	if width == 32 {
		t.table(s, n, off, end, 4, func(e []byte) { t.sized = sum(t.sized, uint64(be.Uint32(e))) })
	}
}

// describe reads the description of the samples, of which the first counts.
func (t *mp4Track) describe(s source, off, end int64) {
	e := s.at(off+8, int(min(36, end-off-8)))
	if len(e) < 36 || t.codec != "" {
		return
	}
	t.codec = string(e[4:8])
	channels, depth := uint64(be.Uint16(e[24:])), uint64(be.Uint16(e[26:]))
	t.rate = uint64(be.Uint16(e[32:])) // a fraction of 16 bits follows
	version, entry := be.Uint16(e[16:]), off+8
	switch t.codec {
	case "raw ", "sowt", "twos", "ipcm", "fpcm":
		t.pcm = channels * ((depth + 7) / 8)
	case "ulaw", "alaw":
		t.pcm = channels
	case "in24":
		t.pcm = channels * 3
	case "in32", "fl32":
		t.pcm = channels * 4
	case "lpcm":
		if v := s.at(entry+36, 36); version == 2 && len(v) == 36 {
			// The size of the entry's fixed part, the rate as a double, the channels.
			t.pcm = uint64(be.Uint32(v[12:])) * ((uint64(be.Uint32(v[20:])) + 7) / 8)
			t.rate = uint64(min(max(0, floatOf(v[4:12])), maxRate))
		}
	case "ac-3":
		t.perFrame = 1536
	case ".mp3":
		t.perFrame = 576
	case "samr":
		t.perFrame, t.rate = 160, 8000
	case "sawb":
		t.perFrame, t.rate = 320, 16000
	case "mp4a":
		if at := find(s, entry+36, min(end, entry+36+window), "esds"); at >= 0 {
			t.elementary(s.at(at+8, 64))
		}
	}
}

// elementary reads the descriptor of an elementary stream, ISO/IEC 14496-1, section
// 7.2.6: a stream that holds a decoder's description that holds AAC's own.
func (t *mp4Track) elementary(b []byte) {
	b, ok := descriptor(b, 3)
	if !ok || len(b) < 3 || b[2]&0xe0 != 0 {
		return
	}
	b, ok = descriptor(b[3:], 4)
	if !ok || len(b) < 13 {
		return
	}
	switch b[0] {
	case 0x69: // MP3 with the lower sample rates
		t.perFrame = 576
	case 0x6b:
		t.perFrame = 1152
	case 0x40, 0x66, 0x67, 0x68:
		if b, ok = descriptor(b[13:], 5); ok {
			t.aac(b)
		}
	}
}

// descriptor returns what a descriptor of the kind at the start of b holds.
func descriptor(b []byte, kind byte) ([]byte, bool) {
	if len(b) < 2 || b[0] != kind {
		return nil, false
	}
	for i := 1; i < len(b) && i <= 4; i++ {
		if b[i]&0x80 == 0 {
			return b[i+1:], true
		}
	}
	return nil, false
}

// aac reads AAC's configuration, ISO/IEC 14496-3, section 1.6.2.1, for the profiles
// whose frames have a known length.
func (t *mp4Track) aac(b []byte) {
	if len(b) < 2 {
		return
	}
	profile, at := b[0]>>3, int(b[0]&7)<<1|int(b[1]>>7)
	if at >= len(adtsRates) {
		return
	}
	switch profile {
	case 1, 2, 4: // main, low complexity, long-term prediction
		t.perFrame = 1024
		if b[1]&4 != 0 {
			t.perFrame = 960
		}
	case 5, 29: // with a wider band, or two channels out of one
		t.perFrame = 1024
	default:
		return
	}
	t.rate = adtsRates[at]
}
