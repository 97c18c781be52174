package media

import "math"

// mkvTrack is one track of a Matroska or WebM file, RFC 9559.
type mkvTrack struct {
	number  uint64
	kind    uint64 // 1 is video, 2 sound
	opus    bool
	lossy   bool
	usual   uint64 // nanoseconds of a frame, 0 if not told
	last    uint64 // ticks at which the last block begins
	samples uint64 // of Opus, by its packets
	bytes   uint64
}

// mkvFile is what the elements of a file tell.
type mkvFile struct {
	s      source
	scale  uint64  // nanoseconds a tick
	length float64 // ticks, as the header says
	tracks []*mkvTrack
	time   uint64 // ticks, of the current cluster
	end    uint64 // ticks at which the last block ends that says how long it is
	block  uint64 // ticks at which the last block begins
}

// Elements that are read; the first ones hold others.
const (
	mkvSegment    = 0x18538067
	mkvInfo       = 0x1549a966
	mkvTracks     = 0x1654ae6b
	mkvEntry      = 0xae
	mkvCluster    = 0x1f43b675
	mkvGroup      = 0xa0
	mkvScale      = 0x2ad7b1
	mkvLength     = 0x4489
	mkvNumber     = 0xd7
	mkvKind       = 0x83
	mkvCodec      = 0x86
	mkvUsual      = 0x23e383
	mkvTime       = 0xe7
	mkvSimple     = 0xa3
	mkvBlock      = 0xa1
	mkvDuration   = 0x9b
	mkvClusterRaw = "\x1f\x43\xb6\x75"
)

// matroska reads the header, and the time of all blocks: recordings of browsers and
// broadcasts have no length in the header.
func matroska(s source) (Info, bool) {
	f := mkvFile{s: s, scale: 1_000_000}
	for off := int64(0); off < s.size(); {
		next, ok := f.element(off)
		if ok {
			off = next
			continue
		}
		// Decoders go on with the next cluster, too.
		if off = find(s, off+1, s.size(), mkvClusterRaw); off < 0 {
			break
		}
	}
	i := Info{Format: "webm", Millis: f.millis()}
	for _, t := range f.tracks {
		i.Audio, i.Video = i.Audio || t.kind == 2, i.Video || t.kind == 1
	}
	return i, (i.Audio || i.Video) && len(f.tracks) < maxStreams
}

// element reads the element at off and returns where the next begins, which for one
// that holds others is within it.
func (f *mkvFile) element(off int64) (next int64, ok bool) {
	h := f.s.at(off, 12)
	id, n := ebml(h, true)
	if n == 0 || n > 4 {
		return 0, false
	}
	size, m := ebml(h[n:], false)
	if m == 0 {
		return 0, false
	}
	off += int64(n + m)
	switch id {
	case mkvEntry:
		if len(f.tracks) == maxStreams {
			return 0, false
		}
		f.tracks = append(f.tracks, &mkvTrack{})
		return off, true
	case mkvSegment, mkvInfo, mkvTracks, mkvCluster, mkvGroup:
		return off, true
	}
	rest := f.s.size() - off
	if size > uint64(rest) {
		if id == mkvSimple || id == mkvBlock {
			f.read(uint32(id), off, rest) // cut off
		}
		return 0, false
	}
	f.read(uint32(id), off, int64(size))
	return off + int64(size), true
}

// ebml reads a number of variable length, RFC 8794, section 4; an identifier keeps the
// bit that marks its length. n is 0 if there is none.
func ebml(b []byte, id bool) (v uint64, n int) {
	if len(b) == 0 || b[0] == 0 {
		return 0, 0
	}
	n = 1
	for mark := byte(0x80); b[0]&mark == 0; mark >>= 1 {
		n++
	}
	if len(b) < n {
		return 0, 0
	}
	v = uint64(b[0])
	if !id {
		v &= 1<<(8-n) - 1
	}
	for _, c := range b[1:n] {
		v = v<<8 | uint64(c)
	}
	return v, n
}

// read reads an element that holds no others.
func (f *mkvFile) read(id uint32, off, size int64) {
	b := f.s.at(off, int(min(size, 512)))
	var t *mkvTrack
	if len(f.tracks) > 0 {
		t = f.tracks[len(f.tracks)-1]
	}
	switch id {
	case mkvScale:
		f.scale = uintOf(b)
	case mkvLength:
		f.length = max(f.length, floatOf(b))
	case mkvTime:
		f.time = uintOf(b)
	case mkvSimple, mkvBlock:
		f.blockAt(b, size)
	case mkvDuration:
		f.end = max(f.end, sum(f.block, uintOf(b)))
	}
	if t == nil {
		return
	}
	switch id {
	case mkvNumber:
		t.number = uintOf(b)
	case mkvKind:
		t.kind = uintOf(b)
	case mkvCodec:
		switch codec := string(b); {
		case codec == "A_OPUS":
			t.opus = true
		case len(codec) >= 5 && (codec[:5] == "A_AAC" || codec[:5] == "A_VOR" || codec[:5] == "A_MPE"):
			t.lossy = true
		}
	case mkvUsual:
		t.usual = uintOf(b)
	}
}

// blockAt reads the head of a block: its track, its time from that of the cluster on,
// flags; then frames, several of them by one of three ways of lacing.
func (f *mkvFile) blockAt(b []byte, size int64) {
	number, n := ebml(b, false)
	if n == 0 || len(b) < n+3 {
		return
	}
	f.block = f.time + uint64(int64(int16(be.Uint16(b[n:]))))
	if f.block > 1<<62 {
		f.block = 0 // before the start
	}
	for _, t := range f.tracks {
		if t.number != number {
			continue
		}
		t.last = max(t.last, f.block)
		t.bytes = sum(t.bytes, uint64(size))
		if frame := b[n+3:]; t.opus && b[n+2]&6 == 0 {
			t.samples = sum(t.samples, opusSamples(frame))
		} else if t.opus && len(frame) > 0 {
			t.samples = sum(t.samples, laced(frame, b[n+2]>>1&3))
		}
		return
	}
}

// laced is the least number of samples of several packets of Opus in one block, all as
// long as the first.
func laced(b []byte, lacing byte) uint64 {
	frames, sizes := uint64(b[0])+1, b[1:]
	switch lacing {
	case 1: // sizes in runs of 255, but for the last frame's
		for n := frames - 1; n > 0 && len(sizes) > 0; sizes = sizes[1:] {
			if sizes[0] != 255 {
				n--
			}
		}
	case 3: // one size, then differences
		for n := frames - 1; n > 0; n-- {
			_, m := ebml(sizes, false)
			if m == 0 {
				return 0
			}
			sizes = sizes[m:]
		}
	}
	return frames * opusSamples(sizes)
}

// millis is the longest of what the header says, what the blocks say of their time,
// and what Opus says of itself.
func (f *mkvFile) millis() int64 {
	if f.scale == 0 || f.scale > 1<<40 {
		return 0
	}
	declared := int64(0)
	if ms := f.length * float64(f.scale) / 1e6; ms > 0 {
		declared = int64(min(math.Ceil(ms-1e-6), maxMillis))
	}
	counted := millis(times(f.end, f.scale), 1e9)
	for _, t := range f.tracks {
		ms := millis(sum(times(t.last, f.scale), t.usual), 1e9)
		switch {
		case t.opus:
			ms = max(ms, millis(t.samples, opusRate))
		case t.lossy && t.kind == 2:
			ms = max(ms, lossyFloor(t.bytes))
		}
		counted = max(counted, ms)
	}
	return longer(declared, counted)
}

func uintOf(b []byte) (v uint64) {
	if len(b) > 8 {
		return 0
	}
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// floatOf reads a floating-point number of 4 or 8 bytes, 0 if it is neither or none.
func floatOf(b []byte) (v float64) {
	switch len(b) {
	case 4:
		v = float64(math.Float32frombits(be.Uint32(b)))
	case 8:
		v = math.Float64frombits(be.Uint64(b))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
