package media

import "bytes"

// Rates of MPEG sound, ISO/IEC 11172-3 and 13818-3, in kbit/s: by version 1 or later,
// by layer.
var mpegRates = [2][3][15]int64{
	{
		{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
		{0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
		{0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
	},
	{
		{0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
		{0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160},
	},
}

// mpegHeader reads a frame of MPEG-1, 2 or 2.5, layer 1 to 3. What Xing's, LAME's or
// VBRI's table of contents says of the number of frames is not read: they are counted.
func mpegHeader(b []byte) (f frame, ok bool) {
	if len(b) < 4 || b[0] != 0xff || b[1]&0xe0 != 0xe0 {
		return f, false
	}
	version, layer := b[1]>>3&3, 4-int(b[1]>>1&3) // version 3 is MPEG-1, 2 is 2, 0 is 2.5
	rate, at := b[2]>>4, b[2]>>2&3
	if version == 1 || layer == 4 || rate == 15 || at == 3 || b[3]&3 == 2 {
		return f, false
	}
	later := 0
	f.rate = [...]uint64{44100, 48000, 32000}[at]
	if version != 3 {
		later = 1
		f.rate >>= 1
	}
	if version == 0 {
		f.rate >>= 1
	}
	switch {
	case layer == 1:
		f.samples = 384
	case layer == 3 && later == 1:
		f.samples = 576
	default:
		f.samples = 1152
	}
	f.key = uint32(b[1]&0xfe)<<8 | uint32(b[2]&0x0c)
	f.length = int64(f.samples) / 8 * mpegRates[later][layer-1][rate] * 1000 / int64(f.rate)
	switch pad := int64(b[2] >> 1 & 1); {
	case rate == 0: // free format
	case layer == 1:
		f.length = (f.length/4 + pad) * 4
	default:
		f.length += pad
	}
	f.silent = layer == 3 && mpegContents(b, later == 1, b[3]>>6 == 3)
	return f, true
}

// mpegContents finds the marks of a table of contents where they stand: behind the
// side information, or at 36.
func mpegContents(b []byte, later, mono bool) bool {
	at := 36
	switch {
	case later && mono:
		at = 13
	case later, mono:
		at = 21
	}
	if len(b) < at+4 {
		return false
	}
	mark := b[at : at+4]
	return bytes.Equal(mark, []byte("Xing")) || bytes.Equal(mark, []byte("Info")) ||
		len(b) >= 40 && bytes.Equal(b[36:40], []byte("VBRI"))
}

// adtsRates are the sample rates of MPEG-4, ISO/IEC 14496-3.
var adtsRates = [...]uint64{96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350}

// adtsHeader reads a frame of AAC in ADTS. Its sample rate is that of the core, which
// lasts as long as the wider band that may be built on it.
func adtsHeader(b []byte) (f frame, ok bool) {
	if len(b) < 7 || b[0] != 0xff || b[1]&0xf6 != 0xf0 {
		return f, false
	}
	at := int(b[2] >> 2 & 15)
	if at >= len(adtsRates) {
		return f, false
	}
	f.rate = adtsRates[at]
	f.samples = (uint64(b[6]&3) + 1) * 1024
	f.length = int64(b[3]&3)<<11 | int64(b[4])<<3 | int64(b[5])>>5
	f.key = uint32(b[1]&0xfe)<<16 | uint32(b[2]&0xfd)<<8
	return f, f.length >= 7
}

// amrSizes are the bytes of a frame by its type, 3GPP TS 26.101 and 26.201.
var amrSizes = [2][16]int64{
	{13, 14, 16, 18, 20, 21, 27, 32, 6, 6, 6, 6, 1, 1, 1, 1},
	{18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1},
}

// amr reads AMR in a file of its own, RFC 4867: frames of 20 ms.
func amr(s source) (Info, bool) {
	wide, off := 0, int64(6)
	switch head := string(s.at(0, 9)); {
	case head == "#!AMR-WB\n":
		wide, off = 1, 9
	case len(head) < 6 || head[:6] != "#!AMR\n":
		return Info{}, false
	}
	var n int64
	for ; off < s.size(); n++ {
		off += amrSizes[wide][s.at(off, 1)[0]>>3&15]
	}
	return Info{Format: "amr", Audio: true, Millis: min(n, maxMillis/20) * 20}, true
}
