package media

// maxStreams is how many tracks or logical streams a file may have side by side. More
// make it unknown.
const maxStreams = 64

// oggStream is a logical stream of an Ogg file, RFC 3533.
type oggStream struct {
	serial  uint32
	codec   oggCodec
	video   bool
	rate    uint64 // of samples, or frames of video
	skip    uint64 // samples before the first that is heard
	headers int    // packets still to come that hold no sound, or one of those below

	counted uint64 // samples of all packets so far
	first   uint64 // the position at which the stream began
	last    uint64 // the position behind its last packet that ended on a page
	began   bool
	size    uint64

	packet []byte // the start of a packet, as far as it is needed
	open   bool   // the next page goes on with the packet
}

// What a stream's first packet has not told, or told.
const (
	oggNew    = 0
	oggSilent = -1 // neither sound nor video
	oggOther  = -2 // nobody knows
)

// oggCodec counts the samples of one packet, given its first bytes.
type oggCodec interface{ samples(packet []byte) uint64 }

// oggFile adds up the links of a chain, which play one after the other.
type oggFile struct {
	s       source
	streams []*oggStream // of the current link
	data    bool         // the current link has pages other than the first ones
	total   int64
	audio   bool
	video   bool
	unknown bool // a stream of sound could not be read
}

func ogg(s source) (Info, bool) {
	f := oggFile{s: s}
	for off := int64(0); ; {
		if off = find(s, off, s.size(), "OggS"); off < 0 {
			break
		}
		next, ok := f.page(off)
		if !ok {
			return Info{}, false
		}
		off = next
	}
	f.link()
	return Info{Format: "ogg", Audio: f.audio, Video: f.video, Millis: f.total}, !f.unknown && (f.audio || f.video)
}

// page reads the page at off and returns where it ends.
func (f *oggFile) page(off int64) (next int64, ok bool) {
	const head = 27
	h := f.s.at(off, head+255)
	if len(h) < head || h[4] != 0 {
		return off + 4, true
	}
	n := int(h[26])
	if len(h) < head+n {
		return off + 4, true
	}
	kind, position, serial := h[5], le.Uint64(h[6:]), le.Uint32(h[14:])
	var lacing [255]byte
	copy(lacing[:], h[head:head+n])
	off += int64(head + n)

	var st *oggStream
	if kind&2 != 0 { // a stream begins
		if f.data {
			f.link()
		}
		if len(f.streams) == maxStreams {
			return 0, false
		}
		st = &oggStream{serial: serial}
		f.streams = append(f.streams, st)
	} else {
		f.data = true
		for _, o := range f.streams {
			if o.serial == serial {
				st = o
			}
		}
	}
	before := uint64(0)
	if st != nil {
		before = st.counted
		if kind&1 == 0 {
			st.open, st.packet = false, st.packet[:0]
		}
	}
	for _, l := range lacing[:n] {
		if st != nil {
			st.segment(f.s.at(off, int(l)), l < 255)
		}
		off += int64(l)
	}
	if st != nil {
		st.place(position, st.counted-before)
	}
	return off, true
}

// place takes the position of a page on which packets of so many samples ended.
func (o *oggStream) place(position, samples uint64) {
	if position > 1<<62 || position == 0 || o.headers > 0 || o.codec == nil {
		return // no packet ends here, or none with sound
	}
	if !o.began {
		o.began = true
		// A recording may begin in the middle of a broadcast; but where the last page
		// is the first one, its position may cut off what was only filled up.
		if position > samples && samples > 0 {
			o.first = position - samples
		}
	}
	o.last = max(o.last, position)
}

// oggKeep is how much of a packet is kept: the whole of the first headers, and the end
// of the one with the modes of Vorbis.
const oggKeep = 1 << 10

// segment takes a piece of a packet, and its end if ended is set.
func (o *oggStream) segment(b []byte, ended bool) {
	o.size += uint64(len(b))
	if !o.open {
		o.packet, o.open = o.packet[:0], true
	}
	switch setup := o.headers == 1 && o.wantsEnd(); {
	case setup:
		o.packet = append(o.packet, b...)
		if over := len(o.packet) - oggKeep; over > 0 {
			o.packet = append(o.packet[:0], o.packet[over:]...)
		}
	case len(o.packet) < oggKeep:
		o.packet = append(o.packet, b[:min(len(b), oggKeep-len(o.packet))]...)
	}
	if !ended {
		return
	}
	o.open = false
	switch {
	case o.codec == nil && o.headers == oggNew:
		o.begin()
	case o.headers > 0:
		if v, ok := o.codec.(*vorbis); ok && o.headers == 1 {
			v.readModes(o.packet)
		}
		o.headers--
	case o.codec != nil && len(o.packet) > 0:
		o.counted += o.codec.samples(o.packet)
	}
}

func (o *oggStream) wantsEnd() bool {
	_, ok := o.codec.(*vorbis)
	return ok
}

// link ends a link of the chain.
func (f *oggFile) link() {
	var longest int64
	for _, o := range f.streams {
		switch {
		case o.codec == nil:
			f.unknown = f.unknown || o.headers != oggSilent
			continue
		case o.video:
			f.video = true
		default:
			f.audio = true
		}
		longest = max(longest, o.millis())
	}
	f.total = min(maxMillis, f.total+longest)
	f.streams, f.data = nil, false
}

// millis is how long a stream lasts: as the positions say if its packets agree.
func (o *oggStream) millis() int64 {
	var declared uint64
	if o.last > o.first+o.skip {
		declared = o.last - o.first - o.skip
	}
	counted := o.counted - min(o.counted, o.skip)
	ms := longer(millis(declared, o.rate), millis(counted, o.rate))
	if v, ok := o.codec.(*vorbis); ok && v.modes == 0 {
		ms = max(ms, lossyFloor(o.size))
	}
	return ms
}
