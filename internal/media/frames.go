package media

import "bytes"

// frame is what the header of one frame of sound tells.
type frame struct {
	length  int64 // in bytes, with the header; 0 if it is not told
	samples uint64
	rate    uint64
	key     uint32 // what all frames of a file have in common
	silent  bool   // it holds a table of contents, no sound
}

// header reads the header at the start of b, which has up to headerSize bytes.
type header func(b []byte) (frame, bool)

const headerSize = 192 // up to behind the mark of a table of contents

// frames reads files that are nothing but frames: MP3 and AAC in ADTS, or FLAC behind
// the tags of MP3.
func frames(s source) (Info, bool) {
	off := skipTags(s)
	b := s.at(off, headerSize)
	if len(b) < 4 {
		return Info{}, false
	}
	if string(b[:4]) == "fLaC" {
		return flac(s, off)
	}
	// Frames are not sought: whatever holds some is no file of them.
	if _, ok := adtsHeader(b); ok {
		i, ok := walkFrames(s, off, s.size(), adtsHeader)
		i.Format = "aac"
		return i, ok
	}
	if _, ok := mpegHeader(b); ok {
		i, ok := walkFrames(s, off, s.size(), mpegHeader)
		i.Format = "mp3"
		return i, ok
	}
	return Info{}, false
}

// skipTags returns where the first frame is: behind ID3v2 tags, and zeros that fill up.
func skipTags(s source) (off int64) {
	for {
		h := s.at(off, 10)
		if len(h) < 10 || string(h[:3]) != "ID3" {
			break
		}
		size := int64(h[6]&0x7f)<<21 | int64(h[7]&0x7f)<<14 | int64(h[8]&0x7f)<<7 | int64(h[9]&0x7f)
		off += 10 + size
		if h[5]&0x10 != 0 {
			off += 10 // a footer
		}
	}
	for {
		b := s.at(off, window)
		n := len(b) - len(bytes.TrimLeft(b, "\x00"))
		off += int64(n)
		if n < window {
			return off
		}
	}
}

// walkFrames adds up the frames between off and end. Tags and damage between them are
// passed over, but a file that is mostly something else is not measured.
func walkFrames(s source, off, end int64, read header) (Info, bool) {
	w := walker{s: s, end: end, read: read}
	for off < end {
		f, ok := w.next(&off)
		if !ok {
			break
		}
		if !f.silent {
			w.add(f)
		}
		w.known += uint64(min(f.length, end-off))
		off += f.length
	}
	if w.lost > w.known {
		return Info{}, false
	}
	return Info{Audio: true, Millis: w.total + millis(w.samples, w.rate)}, true
}

type walker struct {
	s      source
	end    int64
	read   header
	key    uint32 // of the frames so far, 0 before the first
	free   int64  // the length of frames that do not tell theirs, once known
	sought int    // how often it was sought

	samples, rate uint64 // since the rate changed
	total         int64  // milliseconds before that
	known, lost   uint64 // bytes
}

func (w *walker) add(f frame) {
	if f.rate != w.rate {
		w.total += millis(w.samples, w.rate)
		w.samples, w.rate = 0, f.rate
	}
	w.samples += f.samples
}

// next returns the frame that begins at off, or the next one, to which it moves off.
func (w *walker) next(off *int64) (frame, bool) {
	if f, ok := w.frameAt(*off); ok && (w.key == 0 || f.key == w.key || w.follows(*off, f)) {
		w.key = f.key
		return f, true
	}
	start := *off
	for at := start; ; at++ {
		if at = find(w.s, at, w.end, "\xff"); at < 0 {
			w.lost += uint64(w.tagless(start, w.end))
			return frame{}, false
		}
		// Whoever joins frames with rubbish between them is still understood by
		// decoders, so one that is like those before needs no other behind it.
		if w.lost+uint64(at-start) > w.known+maxRubbish {
			w.lost += uint64(at - start)
			return frame{}, false
		}
		f, ok := w.frameAt(at)
		if !ok || f.key != w.key && !w.follows(at, f) {
			continue
		}
		w.lost += uint64(w.tagless(start, at))
		w.key, *off = f.key, at
		return f, true
	}
}

// maxRubbish is how many bytes more may be passed over than frames have been found in.
// Bytes that look like headers are slow to look at.
const maxRubbish = 1 << 20

// tagless is how many bytes from start to end are no tag at the end of a file.
func (w *walker) tagless(start, end int64) int64 {
	switch b := w.s.at(start, 8); {
	case len(b) >= 3 && string(b[:3]) == "TAG" && end-start <= 128+227,
		string(b) == "APETAGEX", string(b) == "LYRICSBE":
		return 0
	}
	return end - start
}

func (w *walker) frameAt(off int64) (frame, bool) {
	f, ok := w.read(w.s.at(off, int(min(headerSize, w.end-off))))
	if !ok {
		return f, false
	}
	if f.length == 0 {
		if w.free == 0 && w.sought < maxSought {
			w.sought++
			w.free = w.distance(off, f.key)
		}
		f.length = w.free
	}
	return f, f.length > 0
}

// follows reports whether the frame at off ends where another begins, or the file ends.
func (w *walker) follows(off int64, f frame) bool {
	next := off + f.length
	if next >= w.end {
		return false
	}
	g, ok := w.read(w.s.at(next, int(min(headerSize, w.end-next))))
	return ok && g.key == f.key
}

// maxFree is the longest frame of MPEG sound that does not tell its length, maxSought
// how often such a length is sought.
const (
	maxFree   = 8 << 10
	maxSought = 16
)

// distance is how far from off the next header of the same key is, 0 if there is none.
func (w *walker) distance(off int64, key uint32) int64 {
	end := min(w.end, off+maxFree)
	for at := off + 4; ; at++ {
		if at = find(w.s, at, end, "\xff"); at < 0 {
			return 0
		}
		if g, ok := w.read(w.s.at(at, int(min(headerSize, w.end-at)))); ok && g.key == key && g.length == 0 {
			return at - off
		}
	}
}
