// Package media tells how long a recording or a video plays, from the bytes of its
// file alone. It decodes nothing and believes no size that the file states beyond the
// bytes that are there: work and memory are bounded by the length of the file.
//
// The result meters what others will decode, so a header that understates is no
// bypass. Where a format lets the sound be counted it is counted, frame by frame, and
// what is declared only serves to leave out the padding of encoders. Where it does
// not, a bound by size holds; see lossyFloor. Of video only the time stamps tell.
package media

import "math/bits"

// Info is what a file says of itself.
type Info struct {
	// Format is the container or, of bare frames, the coding: wav, aiff, mp3, aac,
	// amr, flac, ogg, mp4 or webm. Matroska counts as webm, QuickTime as mp4.
	Format string
	// Audio and Video tell which kinds of tracks there are. Pictures of a cover are no
	// video.
	Audio, Video bool
	// Millis is how long it plays, in milliseconds, rounded up. Of several tracks the
	// longest counts, of files that were joined the sum.
	Millis int64
}

// Probe reads a file. It is not ok where the format is unknown or damaged, or where the
// file holds nothing that plays: its length is then not zero but unknown.
func Probe(b []byte) (Info, bool) { return probe(plain(b)) }

// ProbeBase64 reads a file that is given as base64 in a JSON string: text is what
// stands between the quotes. Both alphabets, padding or none, escapes and white space
// are taken. Characters that decoders do not agree on make it not ok. Of the file no
// more than a few kilobytes are held decoded.
func ProbeBase64(text []byte) (Info, bool) {
	s, ok := newBase64(text)
	if !ok {
		return Info{}, false
	}
	return probe(s)
}

// maxMillis is the longest that is told, some 30,000 years: sums of a few of them do
// not overflow.
const maxMillis = 1 << 50

func probe(s source) (Info, bool) {
	i, ok := sniff(s)
	if !ok || i.Millis <= 0 {
		return Info{}, false
	}
	return i, true
}

// sniff tells formats by their first bytes, as decoders do; names and MIME types are
// the client's word only.
func sniff(s source) (Info, bool) {
	head := s.at(0, 12)
	if len(head) < 8 {
		return Info{}, false
	}
	switch string(head[:4]) {
	case "RIFF", "RF64", "BW64":
		if len(head) == 12 && string(head[8:]) == "WAVE" {
			return wav(s)
		}
		return Info{}, false
	case "FORM":
		if len(head) == 12 && (string(head[8:]) == "AIFF" || string(head[8:]) == "AIFC") {
			return aiff(s)
		}
		return Info{}, false
	case "fLaC":
		return flac(s, 0)
	case "OggS":
		return ogg(s)
	case "\x1a\x45\xdf\xa3":
		return matroska(s)
	case "#!AM":
		return amr(s)
	}
	switch string(head[4:8]) {
	case "ftyp", "moov", "moof", "mdat", "styp", "wide", "free", "skip", "pnot", "sidx":
		return mp4(s)
	}
	return frames(s)
}

// millis is how long n samples last at rate per second, rounded up.
func millis(n, rate uint64) int64 {
	if rate == 0 {
		return 0
	}
	hi, lo := bits.Mul64(n, 1000)
	lo, carry := bits.Add64(lo, rate-1, 0)
	if hi += carry; hi >= rate {
		return maxMillis
	}
	q, _ := bits.Div64(hi, lo, rate)
	return int64(min(q, maxMillis))
}

// padding is by how much the sound in a file may exceed what it declares, in
// milliseconds: encoders fill up their first and last frames.
const padding = 150

// longer is the larger of what a file declares and what was counted in it, but for
// padding.
func longer(declared, counted int64) int64 {
	if counted-declared <= padding && declared > 0 {
		return declared
	}
	return max(declared, counted)
}

// lossyRate is more than any lossy coding of sound takes, in bytes a second: that of
// two channels of 16 bits at 48 kHz, which it is there to save.
const lossyRate = 192_000

// lossyFloor is the least that size bytes of lossy sound can last. It bounds what a
// file with invented time stamps can save where its packets do not tell their length:
// at 128 kbit/s a twelfth is still counted.
func lossyFloor(size uint64) int64 { return millis(size, lossyRate) }
