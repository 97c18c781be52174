package media

// mp4File is what the boxes of an MP4, M4A, 3GP or MOV file tell, ISO/IEC 14496-12.
type mp4File struct {
	s      source
	scale  uint64 // ticks a second of the whole movie
	movie  int64  // milliseconds, as the header says
	tracks []*mp4Track
	index  map[mp4Index]uint64
	usual  map[uint32]mp4Usual // by track
	broken bool

	track *mp4Track // the one that is read
	run   mp4Run
}

// mp4Index names the segment indexes of a track, whose ticks are added up.
type mp4Index struct{ track, scale uint32 }

// mp4Usual is what the samples of fragments have that do not say their own.
type mp4Usual struct{ ticks, bytes uint64 }

// mp4Run is the fragment of a track that is read.
type mp4Run struct {
	track *mp4Track
	usual mp4Usual
}

// mp4 reads the boxes wherever they stand, before or behind the samples. Of the
// movie's length, that of each track, the sum of its samples and that of its fragments
// the largest counts.
func mp4(s source) (Info, bool) {
	f := mp4File{s: s, index: map[mp4Index]uint64{}, usual: map[uint32]mp4Usual{}}
	f.boxes(0, s.size(), 0)
	i := Info{Format: "mp4"}
	declared := f.movie
	for of, ticks := range f.index {
		declared = max(declared, millis(ticks, uint64(of.scale)))
	}
	var counted int64
	for _, t := range f.tracks {
		switch t.handler {
		case "soun":
			i.Audio = true
		case "vide":
			i.Video = true
		default:
			continue // subtitles, chapters
		}
		counted = max(counted, t.millis(), millis(t.edits, f.scale))
	}
	i.Millis = longer(declared, counted)
	return i, !f.broken && (i.Audio || i.Video)
}

// maxBoxDepth is how deep boxes lie that are read: moov, trak, mdia, minf, stbl, stts.
const maxBoxDepth = 6

// boxes reads the boxes from off to end.
func (f *mp4File) boxes(off, end int64, depth int) {
	for off+8 <= end && !f.broken {
		h := f.s.at(off, 16)
		if len(h) < 8 {
			return
		}
		size, head, kind := int64(be.Uint32(h)), int64(8), string(h[4:8])
		switch size {
		case 0: // up to the end
			size = end - off
		case 1:
			if len(h) < 16 || be.Uint64(h[8:]) > 1<<62 {
				return
			}
			size, head = int64(be.Uint64(h[8:])), 16
		}
		if size < head {
			return
		}
		size = min(size, end-off)
		f.box(kind, off+head, off+size, depth)
		off += size
	}
}

// box reads one box, whose content lies from off to end.
func (f *mp4File) box(kind string, off, end int64, depth int) {
	switch kind {
	case "trak":
		if len(f.tracks) == maxStreams {
			f.broken = true
			return
		}
		f.track = &mp4Track{}
		f.tracks = append(f.tracks, f.track)
	case "traf":
		f.run = mp4Run{}
	case "moov", "mdia", "minf", "stbl", "edts", "mvex", "moof":
	default:
		f.leaf(kind, off, end)
		return
	}
	if depth < maxBoxDepth {
		f.boxes(off, end, depth+1)
	}
	if kind == "trak" {
		f.track = nil
	}
}

// leaf reads a box that holds no others.
func (f *mp4File) leaf(kind string, off, end int64) {
	b := f.s.at(off, int(min(end-off, 64)))
	if len(b) < 8 {
		return
	}
	switch kind {
	case "mvhd":
		var ticks uint64
		if f.scale, ticks = scaleAndTicks(b); f.scale > 0 {
			f.movie = max(f.movie, millis(ticks, f.scale))
		}
	case "mehd":
		f.movie = max(f.movie, millis(number(b[0], b[4:]), f.scale))
	case "sidx":
		f.segments(off, end)
	case "trex":
		if len(b) >= 20 {
			f.usual[be.Uint32(b[4:])] = mp4Usual{uint64(be.Uint32(b[12:])), uint64(be.Uint32(b[16:]))}
			f.broken = f.broken || len(f.usual) > maxStreams
		}
	case "tfhd":
		f.fragment(b)
	case "trun":
		f.samples(off, end)
	default:
		if f.track != nil {
			f.track.leaf(f.s, kind, b, off, end)
		}
	}
}

// scaleAndTicks reads the time scale and length of mvhd or mdhd.
func scaleAndTicks(b []byte) (scale, ticks uint64) {
	switch {
	case b[0] == 1 && len(b) >= 32:
		scale, ticks = uint64(be.Uint32(b[20:])), number(1, b[24:])
	case b[0] != 1 && len(b) >= 20:
		scale, ticks = uint64(be.Uint32(b[12:])), number(0, b[16:])
	}
	return scale, ticks
}

// number reads ticks, 8 bytes in version 1 of a box and 4 in version 0. All ones mean
// that they are not known.
func number(version byte, b []byte) uint64 {
	switch {
	case version == 1 && len(b) >= 8:
		if n := be.Uint64(b); n <= 1<<62 {
			return n
		}
	case version != 1 && len(b) >= 4:
		if n := be.Uint32(b); n != 1<<32-1 {
			return uint64(n)
		}
	}
	return 0
}

// segments reads an index of segments.
func (f *mp4File) segments(off, end int64) {
	b := f.s.at(off, 32)
	at := 24
	if len(b) > 0 && b[0] == 1 {
		at = 32
	}
	if len(b) < at {
		return
	}
	of, n := mp4Index{be.Uint32(b[4:]), be.Uint32(b[8:])}, int64(be.Uint16(b[at-2:]))
	off += int64(at)
	for ; n > 0 && off+12 <= end; n-- {
		e := f.s.at(off, 12)
		if len(e) < 12 {
			return
		}
		if e[0]&0x80 == 0 { // it is media and no further index
			f.index[of] = sum(f.index[of], uint64(be.Uint32(e[4:])))
		}
		off += 12
	}
	f.broken = f.broken || len(f.index) > maxStreams
}

// fragment reads the head of a track's fragment.
func (f *mp4File) fragment(b []byte) {
	flags, id, at := be.Uint32(b)&0xffffff, be.Uint32(b[4:]), 8
	f.run = mp4Run{usual: f.usual[id]}
	for _, t := range f.tracks {
		if t.id == id {
			f.run.track = t
		}
	}
	for _, m := range [...]struct {
		flag uint32
		size int
		to   *uint64
	}{{1, 8, nil}, {2, 4, nil}, {8, 4, &f.run.usual.ticks}, {16, 4, &f.run.usual.bytes}} {
		if flags&m.flag == 0 {
			continue
		}
		if at+m.size > len(b) {
			return
		}
		if m.to != nil {
			*m.to = uint64(be.Uint32(b[at:]))
		}
		at += m.size
	}
}

// samples reads a run of samples of a fragment.
func (f *mp4File) samples(off, end int64) {
	b, t := f.s.at(off, 8), f.run.track
	if len(b) < 8 || t == nil {
		return
	}
	flags, n := be.Uint32(b)&0xffffff, uint64(be.Uint32(b[4:]))
	off += 8
	for _, flag := range [...]uint32{1, 4} {
		if flags&flag != 0 {
			off += 4
		}
	}
	var each int64
	for flag := uint32(0x100); flag <= 0x800; flag <<= 1 {
		if flags&flag != 0 {
			each += 4
		}
	}
	usual := f.run.usual
	if flags&0x300 == 0 {
		t.add(n, usual.ticks, usual.bytes)
		return
	}
	for ; n > 0 && off+each <= end; n-- {
		e, one := f.s.at(off, int(each)), usual
		if len(e) < int(each) {
			return
		}
		if flags&0x100 != 0 {
			one.ticks, e = uint64(be.Uint32(e)), e[4:]
		}
		if flags&0x200 != 0 {
			one.bytes = uint64(be.Uint32(e))
		}
		t.add(1, one.ticks, one.bytes)
		off += each
	}
}

// sum adds without overflow.
func sum(a, b uint64) uint64 { return min(a, 1<<62) + min(b, 1<<62) }
