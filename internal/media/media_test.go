package media

import (
	"bytes"
	"testing"
)

type file struct {
	name  string
	bytes []byte
	want  Info
}

func sound(format string, ms int64) Info { return Info{Format: format, Audio: true, Millis: ms} }

func video(format string, ms int64) Info {
	return Info{Format: format, Audio: true, Video: true, Millis: ms}
}

// second is a second of the sound of pcm.
var second = noise(32000)

// honest are files that say what they hold.
func honest() []file {
	aac := track{handler: "soun", entry: aacEntry(), scale: 48000, length: 48000 * 8, n: 375, delta: 1024, sample: 300}
	film := track{handler: "vide", entry: soundEntry("avc1", 0), scale: 90000, length: 90000 * 9, n: 270, delta: 3000, sample: 1000}
	mdat := box("mdat", noise(5000))
	return []file{
		{"WAV", pcm(32000, second), sound("wav", 1000)},
		{"WAV with chunks before and behind", wavFile(chunk("LIST", 10, noise(10)), fmtChunk(1, 1, 16000, 16), chunk("data", 32000, second),
			chunk("LIST", 401, noise(401)), chunk("id3 ", 3000, noise(3000))), sound("wav", 1000)},
		{"WAV streamed with size 0", pcm(0, second), sound("wav", 1000)},
		{"WAV streamed with the largest size", pcm(0xffffffff, second), sound("wav", 1000)},
		{"WAV cut off", pcm(64000, second), sound("wav", 1000)},
		{"WAV of odd size", wavFile(fmtChunk(1, 1, 8000, 8), chunk("data", 8001, noise(8001)), chunk("LIST", 2, noise(2))), sound("wav", 1001)},
		{"WAV of floats in stereo", wavFile(fmtChunk(3, 2, 48000, 32), chunk("data", 384000, noise(384000))), sound("wav", 1000)},
		{"extensible WAV of 24 bits", wavFile(chunk("fmt ", 40, join(u16(0xfffe), u16(1), u32(1000), u32(3000), u16(3), u16(24), u16(22), u16(24), u32(4), u16(1), make([]byte, 14))),
			chunk("data", 3000, noise(3000))), sound("wav", 1000)},
		{"RF64", join([]byte("RF64\xff\xff\xff\xffWAVE"), chunk("ds64", 28, make([]byte, 28)), fmtChunk(1, 1, 16000, 16), chunk("data", 0xffffffff, second)), sound("wav", 1000)},
		{"WAV of µ-law", wavFile(fmtChunk(7, 1, 8000, 8), chunk("data", 4000, noise(4000))), sound("wav", 500)},
		{"WAV of IMA ADPCM", wavFile(chunk("fmt ", 20, join(u16(0x11), u16(1), u32(8000), u32(4055), u16(256), u16(4), u16(2), u16(505))),
			chunk("data", 2560, noise(2560))), sound("wav", 632)},
		{"WAV of MP3", wavFile(fmtChunk(0x55, 1, 48000, 0), chunk("data", 3840, mp3(10))), sound("wav", 240)},
		{"AIFF", join([]byte("FORM"), b32(0), []byte("AIFFCOMM"), b32(18), b16(1), b32(16000), b16(16), []byte{0x40, 0x0c, 0xfa, 0, 0, 0, 0, 0, 0, 0},
			[]byte("SSND"), b32(32008), make([]byte, 8), second), sound("aiff", 1000)},
		{"MP3", mp3(100), sound("mp3", 2400)},
		{"MP3 with tags and a table", join(id3(2000), xing(100), mp3(100), []byte("TAG"), make([]byte, 125)), sound("mp3", 2400)},
		{"MP3 behind two tags and zeros", join(id3(20), id3(300), make([]byte, 9000), mp3(100)), sound("mp3", 2400)},
		{"MP3 with APE tags", join(mp3(100), []byte("APETAGEX"), noise(30000)), sound("mp3", 2400)},
		{"MP3 with rubbish inside", join(mp3(50), noise(999), []byte{0xff, 0xfb}, mp3(50)), sound("mp3", 2400)},
		{"MP3 of free format", bytes.Repeat(join([]byte{0xff, 0xfb, 0x04, 0xc4}, noise(596)), 50), sound("mp3", 1200)},
		{"MPEG-2 layer 3", bytes.Repeat(join([]byte{0xff, 0xf3, 0x84, 0xc4}, noise(188)), 50), sound("mp3", 1200)},
		{"layer 1", bytes.Repeat(join([]byte{0xff, 0xff, 0x44, 0xc4}, noise(124)), 50), sound("mp3", 400)},
		{"AAC", adts(25), sound("aac", 1600)},
		{"AAC behind tags", join(id3(200), adts(25)), sound("aac", 1600)},
		{"AMR", join([]byte("#!AMR\n"), bytes.Repeat(join([]byte{7 << 3}, noise(31)), 50)), sound("amr", 1000)},
		{"AMR of wide band", join([]byte("#!AMR-WB\n"), bytes.Repeat(join([]byte{8 << 3}, noise(60)), 50)), sound("amr", 1000)},
		{"FLAC", flacFile(40960, 10), sound("flac", 2560)},
		{"FLAC whose last frame is short", flacFile(40000, 10), sound("flac", 2560-60)},
		{"FLAC of unknown length", flacFile(0, 10), sound("flac", 2560)},
		{"FLAC behind tags", join(id3(200), flacFile(0, 10)), sound("flac", 2560)},
		{"Opus", opusFile(1, 0, 500, asIs), sound("ogg", 9994)},
		{"Opus whose end is trimmed", opusFile(1, 0, 50, func(int) int { return 47000 }), sound("ogg", 973)},
		{"Opus out of a broadcast", opusFile(1, 1e9, 500, asIs), sound("ogg", 9994)},
		{"two joined files", join(opusFile(1, 0, 500, asIs), opusFile(1, 0, 50, asIs)), sound("ogg", 9994+994)},
		{"Vorbis", vorbisFile(101, asIs), sound("ogg", 2322)},
		{"FLAC in Ogg", join(page(2, 0, 3, join([]byte("\x7fFLAC\x01\x00\x00\x01fLaC\x00\x00\x00\x22"), streamInfo(0))), page(0, 0, 3, []byte{0x84, 0, 0, 0}),
			page(0, 8192, 3, flacFrame(0), flacFrame(1))), sound("ogg", 512)},
		{"Theora with Opus", join(page(2, 0, 9, join([]byte("\x80theora"), make([]byte, 15), b32(25), b32(1), make([]byte, 12))), opusFile(1, 0, 50, asIs)), video("ogg", 994)},
		{"M4A", join(ftyp(), movie(8000, nil, aac), mdat), sound("mp4", 8000)},
		{"M4A with the movie at the end", join(ftyp(), mdat, movie(8000, nil, aac)), sound("mp4", 8000)},
		{"M4A without padding in the movie", join(ftyp(), movie(7950, nil, aac), mdat), sound("mp4", 7950)},
		{"MP4 with samples of 64-bit size", join(ftyp(), b32(1), []byte("mdat"), b64(5016), noise(5000), movie(9000, nil, aac, film)), video("mp4", 9000)},
		{"fragmented MP4", join(ftyp(), movie(0, box("mvex", box("mehd", b32(0), b32(0)), box("trex", b32(0), b32(1), b32(1), b32(1024), b32(300), b32(0))), track{handler: "soun", entry: aacEntry(), scale: 48000}),
			bytes.Repeat(join(box("moof", box("traf", box("tfhd", b32(0), b32(1)), box("trun", b32(0), b32(75))))), 5), mdat), sound("mp4", 8000)},
		{"fragments whose samples tell their own length", join(ftyp(), movie(0, nil, track{handler: "soun", entry: soundEntry("Opus", 48000), scale: 1000}),
			box("moof", box("traf", box("tfhd", b32(8), b32(1), b32(7)), box("trun", b32(0x301), b32(2), b32(0), b32(700), b32(9), b32(800), b32(9))))), sound("mp4", 1500)},
		{"MP4 with an index of segments", join(ftyp(), movie(0, nil, track{handler: "soun", entry: aacEntry(), scale: 48000}),
			box("sidx", b32(0), b32(1), b32(1000), make([]byte, 8), b16(0), b16(2), b32(99), b32(2500), b32(0), b32(99), b32(1500), b32(0))), sound("mp4", 4000)},
		{"MOV of PCM", join(box("wide"), movie(1000, nil, track{handler: "soun", entry: soundEntry("sowt", 8000), scale: 8000, length: 8000, n: 8000, delta: 1, sample: 4}), box("mdat", noise(32000))), sound("mp4", 1000)},
		{"WebM", join(webmHead(), elem(mkvSegment, webmInfo(2000), webmTracks("A_OPUS"), cluster(0, 1, 100, 20, opusPacket()))), sound("webm", 2000)},
		{"recording of a browser", join(webmHead(), live(mkvSegment, webmInfo(0), webmTracks("A_OPUS"), cluster(0, 1, 50, 20, opusPacket()), cluster(1000, 1, 50, 20, opusPacket()))), sound("webm", 2000)},
		{"Matroska without a length", join(webmHead(), live(mkvSegment, webmInfo(0), webmTracks("V_VP9", "A_VORBIS"), cluster(0, 1, 30, 33, noise(500)),
			elem(mkvCluster, elem(mkvTime, b32(1000)), elem(mkvGroup, elem(mkvBlock, []byte{0x82, 0, 5, 0, 1}), elem(mkvDuration, []byte{15}))))), video("webm", 1020)},
	}
}

// lying are files that state less than what decoders get out of them.
func lying() []file {
	aac := track{handler: "soun", entry: aacEntry(), scale: 48000, length: 48000, n: 375, delta: 1, sample: 300}
	minute := func(int) int { return 48000 }
	return []file{
		{"WAV with sound behind the data", wavFile(fmtChunk(1, 1, 16000, 16), chunk("data", 32000, second), second), sound("wav", 2000)},
		{"WAV with a second data chunk", wavFile(fmtChunk(1, 1, 16000, 16), chunk("data", 32000, second), chunk("data", 32000, second)), sound("wav", 2000)},
		{"WAV with a rate of bytes that is not its own", wavFile(chunk("fmt ", 16, join(u16(1), u16(1), u32(16000), u32(1<<30), u16(4096), u16(16))), chunk("data", 32000, second)), sound("wav", 1000)},
		{"MP3 whose table says one frame", join(xing(1), mp3(100)), sound("mp3", 2400)},
		{"MP3 with rubbish between all frames", bytes.Repeat(join(mp3(1), noise(1)), 100), sound("mp3", 2400)},
		{"FLAC of one sample", flacFile(1, 10), sound("flac", 2560)},
		{"FLAC whose frames all have the number 0", join(flacFile(1, 0), bytes.Repeat(flacFrame(0), 10)), sound("flac", 2560)},
		{"Opus whose positions stand still", opusFile(1, 0, 500, minute), sound("ogg", 9994)},
		{"Opus whose first position is far", join(opusFile(1, 0, 500, func(n int) int { return 1 << 40 })), sound("ogg", 9994)},
		{"Vorbis whose positions stand still", vorbisFile(101, func(int) int { return 1 }), sound("ogg", 2322)},
		{"M4A whose samples last no time", join(ftyp(), movie(1, nil, aac), box("mdat", noise(375*300))), sound("mp4", 8000)},
		{"M4A played more than once", join(ftyp(), movie(1, nil, track{handler: "soun", entry: aacEntry(), scale: 48000, n: 375, delta: 1024, sample: 300, edit: 16000})), sound("mp4", 16000)},
		{"MP4 with a movie of 1 ms", join(ftyp(), movie(1, nil, track{handler: "vide", entry: soundEntry("avc1", 0), scale: 1000, length: 1, n: 90, delta: 100, sample: 9})), Info{"mp4", false, true, 9000}},
		{"WebM whose blocks stand still", join(webmHead(), elem(mkvSegment, webmInfo(1), webmTracks("A_OPUS"), cluster(0, 1, 100, 0, opusPacket()))), sound("webm", 2000)},
		{"WebM with rubbish between clusters", join(webmHead(), elem(mkvSegment, webmInfo(1), webmTracks("A_OPUS"), cluster(0, 1, 50, 0, opusPacket()), make([]byte, 99), cluster(0, 1, 50, 0, opusPacket()))), sound("webm", 2000)},
		{"sound of AAC that lasts no time in WebM", join(webmHead(), elem(mkvSegment, webmInfo(1), webmTracks("A_AAC"), cluster(0, 1, 96, 0, noise(2000-4)))), sound("webm", 1000)},
	}
}

func TestFilesTellTheirLength(t *testing.T) {
	for _, f := range honest() {
		t.Run(f.name, func(t *testing.T) {
			if got, ok := Probe(f.bytes); !ok || got != f.want {
				t.Errorf("got %+v, %t, want %+v", got, ok, f.want)
			}
		})
	}
}

func TestWhatAHeaderHidesIsCounted(t *testing.T) {
	for _, f := range lying() {
		t.Run(f.name, func(t *testing.T) {
			if got, ok := Probe(f.bytes); !ok || got != f.want {
				t.Errorf("got %+v, %t, want %+v", got, ok, f.want)
			}
		})
	}
}

func TestOtherFilesHaveNoLength(t *testing.T) {
	for _, f := range []file{
		{name: "nothing"},
		{name: "text", bytes: []byte("Hello, this is no recording at all.")},
		{name: "AVI", bytes: join([]byte("RIFF"), u32(99), []byte("AVI "), mp3(9))},
		{name: "WAV without sound", bytes: wavFile(fmtChunk(1, 1, 16000, 16))},
		{name: "WAV of no format", bytes: wavFile(chunk("data", 99, noise(99)))},
		{name: "WAV of an unknown codec", bytes: wavFile(fmtChunk(0x161, 1, 16000, 16), chunk("data", 99, noise(99)))},
		{name: "WAV of a rate that makes it short", bytes: wavFile(fmtChunk(1, 1, 1<<31, 16), chunk("data", 99, noise(99)))},
		{name: "WAV of a thousand channels", bytes: wavFile(fmtChunk(1, 1000, 16000, 16), chunk("data", 9999, noise(9999)))},
		{name: "mostly rubbish with a few frames", bytes: join(mp3(3), noise(9999))},
		{name: "Ogg of an unknown codec beside Opus", bytes: join(page(2, 0, 5, []byte("Mystery!")), opusFile(1, 0, 50, asIs))},
		{name: "MP4 of subtitles", bytes: join(ftyp(), movie(1000, nil, track{handler: "text", entry: soundEntry("tx3g", 0), scale: 1}))},
		{name: "MP4 without a movie", bytes: join(ftyp(), box("mdat", noise(99)))},
		{name: "WebM without tracks", bytes: join(webmHead(), elem(mkvSegment, webmInfo(2000)))},
	} {
		t.Run(f.name, func(t *testing.T) {
			if got, ok := Probe(f.bytes); ok {
				t.Errorf("got %+v", got)
			}
		})
	}
}
