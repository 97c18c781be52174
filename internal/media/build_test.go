package media

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
)

// The files of these tests are made here: headers as the formats want them, around
// bytes that nobody decodes.

func u16(v int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(v)) }
func u32(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }
func b16(v int) []byte { return binary.BigEndian.AppendUint16(nil, uint16(v)) }
func b32(v int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(v)) }
func b64(v int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(v)) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// noise is n bytes that look like no header of anything.
func noise(n int) []byte { return bytes.Repeat([]byte{0x55}, n) }

func chunk(name string, size int, data []byte) []byte {
	return join([]byte(name), u32(size), data, make([]byte, len(data)&1))
}

// fmtChunk is the format of codec with so many channels, bits and samples a second.
func fmtChunk(codec, channels, rate, bits int) []byte {
	align := channels * ((bits + 7) / 8)
	return chunk("fmt ", 16, join(u16(codec), u16(channels), u32(rate), u32(rate*align), u16(align), u16(bits)))
}

func wavFile(chunks ...[]byte) []byte {
	body := join(chunks...)
	return join([]byte("RIFF"), u32(len(body)+4), []byte("WAVE"), body)
}

// pcm is a WAV of 16 bits at 16 kHz, mono, whose data chunk states size.
func pcm(size int, data []byte) []byte {
	return wavFile(fmtChunk(1, 1, 16000, 16), chunk("data", size, data))
}

// mp3 is n frames of MPEG-1 layer 3 at 128 kbit/s and 48 kHz: 384 bytes and 24 ms each.
func mp3(n int) []byte { return bytes.Repeat(join([]byte{0xff, 0xfb, 0x94, 0xc4}, noise(380)), n) }

// xing is such a frame with a table of contents that says there are n frames.
func xing(n int) []byte {
	return join([]byte{0xff, 0xfb, 0x94, 0xc4}, make([]byte, 17), []byte("Xing"), b32(1), b32(n), make([]byte, 384-33))
}

func id3(size int) []byte {
	return join([]byte("ID3\x04\x00\x00"), []byte{byte(size >> 21), byte(size >> 14 & 127), byte(size >> 7 & 127), byte(size & 127)}, bytes.Repeat([]byte{0xff, 0xfb}, size/2))
}

// adts is n frames of AAC at 16 kHz, 64 ms each.
func adts(n int) []byte {
	return bytes.Repeat(join([]byte{0xff, 0xf1, 2<<6 - 0x40 | 8<<2, 0x40, 100 >> 3, 100&7<<5 | 0x1f, 0xfc}, noise(93)), n)
}

// flacHead is a FLAC's head at 16 kHz, which says it has so many samples.
func streamInfo(samples int) []byte {
	return join(b16(4096), b16(4096), make([]byte, 6), b64(16000<<44|0<<41|15<<36|samples), make([]byte, 16))
}

// flacFrame is a frame of 4096 samples.
func flacFrame(number byte) []byte {
	h := []byte{0xff, 0xf8, 12<<4 | 5, 4 << 1, number & 0x7f}
	return join(h, []byte{crc8(h)}, noise(200))
}

func flacFile(samples, frames int) []byte {
	out := join([]byte("fLaC"), []byte{0x80, 0, 0, 34}, streamInfo(samples))
	for i := range frames {
		out = append(out, flacFrame(byte(i))...)
	}
	return out
}

// page is a page of Ogg with whole packets, each shorter than 255 bytes.
func page(kind byte, position, serial int, packets ...[]byte) []byte {
	out := join([]byte("OggS\x00"), []byte{kind}, binary.LittleEndian.AppendUint64(nil, uint64(position)), u32(serial), u32(0), u32(0))
	out = append(out, byte(len(packets)))
	for _, p := range packets {
		out = append(out, byte(len(p)))
	}
	return append(out, bytes.Join(packets, nil)...)
}

// opusPacket is one frame of 20 ms.
func opusPacket() []byte { return join([]byte{0x78 | 0x80}, noise(40)) }

func opusHead(serial int) []byte {
	return join(page(2, 0, serial, join([]byte("OpusHead\x01\x01"), u16(312), u32(48000), make([]byte, 3))),
		page(0, 0, serial, []byte("OpusTags")))
}

// opusFile is n packets, 50 on a page, whose positions begin at first.
func opusFile(serial, first, n int, position func(int) int) []byte {
	out := opusHead(serial)
	for done := 0; done < n; {
		k := min(50, n-done)
		packets := make([][]byte, k)
		for i := range packets {
			packets[i] = opusPacket()
		}
		done += k
		out = append(out, page(0, first+position(done*960), serial, packets...)...)
	}
	return out
}

func asIs(n int) int { return n }

// vorbisFile is n packets of long blocks of 2048 samples at 44.1 kHz, one on a page.
func vorbisFile(n int, position func(int) int) []byte {
	ident := join([]byte("\x01vorbis"), u32(0), []byte{1}, u32(44100), make([]byte, 12), []byte{11<<4 | 8, 1})
	// The end of the setup: two modes, the second one long.
	var bits []bool
	put := func(v, n int) {
		for i := range n {
			bits = append(bits, v>>i&1 != 0)
		}
	}
	put(0x2bd, 10) // of what stands before
	put(1, 6)
	for mode := range 2 {
		put(mode, 1)
		put(0, 32)
		put(mode, 8)
	}
	put(1, 1)
	setup := append([]byte("\x05vorbis"), make([]byte, (len(bits)+7)/8)...)
	for i, b := range bits {
		if b {
			setup[7+i/8] |= 1 << (i % 8)
		}
	}
	out := join(page(2, 0, 7, ident), page(0, 0, 7, []byte("\x03vorbis"), setup))
	for i := range n {
		out = append(out, page(0, position(i*1024), 7, join([]byte{2}, noise(60)))...)
	}
	return out
}

func box(kind string, data ...[]byte) []byte {
	body := join(data...)
	return join(b32(len(body)+8), []byte(kind), body)
}

// track is one of MP4; its table gives every one of its n samples delta ticks, and
// length is what its header says.
type track struct {
	handler          string
	entry            []byte
	scale, length    int
	n, delta, sample int
	edit             int
}

func (t track) box(id int) []byte {
	stbl := box("stbl", box("stsd", b32(0), b32(1), t.entry),
		box("stts", b32(0), b32(1), b32(t.n), b32(t.delta)), box("stsz", b32(0), b32(t.sample), b32(t.n)))
	var edts []byte
	if t.edit > 0 {
		edts = box("edts", box("elst", b32(0), b32(1), b32(t.edit), b32(0), b32(1<<16)))
	}
	return box("trak", box("tkhd", make([]byte, 12), b32(id), make([]byte, 68)), edts,
		box("mdia", box("mdhd", make([]byte, 12), b32(t.scale), b32(t.length), b32(0)),
			box("hdlr", make([]byte, 8), []byte(t.handler), make([]byte, 13)),
			box("minf", box("hdlr", make([]byte, 8), []byte("alis"), make([]byte, 13)), stbl)))
}

// aacEntry describes AAC at 48 kHz.
func aacEntry() []byte {
	esds := box("esds", b32(0), []byte{3, 25, 0, 1, 0, 4, 17, 0x40, 0x15}, make([]byte, 11), []byte{5, 2, 2<<3 | 3>>1, 3&1<<7 | 1<<3})
	return box("mp4a", make([]byte, 6), b16(1), make([]byte, 8), b16(1), b16(16), b32(0), b32(48000<<16), esds)
}

func soundEntry(codec string, rate int) []byte {
	return box(codec, make([]byte, 6), b16(1), make([]byte, 8), b16(2), b16(16), b32(0), b32(rate<<16))
}

func movie(length int, more []byte, tracks ...track) []byte {
	parts := box("mvhd", make([]byte, 12), b32(1000), b32(length), make([]byte, 80))
	for i, t := range tracks {
		parts = append(parts, t.box(i+1)...)
	}
	return box("moov", parts, more)
}

func ftyp() []byte { return box("ftyp", []byte("isom"), b32(0)) }

// elem is an element of EBML with a size of 8 bytes.
func elem(id int, data ...[]byte) []byte {
	body := join(data...)
	return join(bytes.TrimLeft(b32(id), "\x00"), b64(1<<56|len(body)), body)
}

// live is an element of unknown size.
func live(id int, data ...[]byte) []byte {
	return join(b32(id), []byte{0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, join(data...))
}

func webmHead() []byte { return elem(0x1a45dfa3, elem(0x4282, []byte("webm"))) }

func webmInfo(millis float64) []byte {
	info := elem(mkvScale, b32(1_000_000))
	if millis > 0 {
		info = append(info, elem(mkvLength, b64(int(math.Float64bits(millis))))...)
	}
	return elem(mkvInfo, info)
}

func webmTracks(codecs ...string) []byte {
	var entries []byte
	for i, c := range codecs {
		kind := byte(1)
		if strings.HasPrefix(c, "A_") {
			kind = 2
		}
		entries = append(entries, elem(mkvEntry, elem(mkvNumber, []byte{byte(i + 1)}), elem(mkvKind, []byte{kind}), elem(mkvCodec, []byte(c)))...)
	}
	return elem(mkvTracks, entries)
}

// cluster begins at so many milliseconds and has n blocks of the track, step apart.
func cluster(at, trackNumber, n, step int, frame []byte) []byte {
	parts := elem(mkvTime, b32(at))
	for i := range n {
		parts = append(parts, elem(mkvSimple, []byte{0x80 | byte(trackNumber)}, b16(i*step), []byte{0}, frame)...)
	}
	return live(mkvCluster, parts)
}
