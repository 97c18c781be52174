package media

import (
	"bytes"
	stdbase64 "encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// asJSON writes base64 as some encoders of JSON do: the slash escaped, lines of 76.
func asJSON(b []byte, lines bool) []byte {
	s := stdbase64.StdEncoding.EncodeToString(b)
	if lines {
		var out strings.Builder
		for ; len(s) > 76; s = s[76:] {
			out.WriteString(s[:76] + `\r\n`)
		}
		s = out.String() + s
	}
	return []byte(strings.NewReplacer("/", `\/`, "+", `\u002B`).Replace(s))
}

func TestBase64IsReadAsItsFile(t *testing.T) {
	for _, f := range append(honest(), lying()...) {
		t.Run(f.name, func(t *testing.T) {
			for name, text := range map[string][]byte{
				"standard": []byte(stdbase64.StdEncoding.EncodeToString(f.bytes)),
				"URL":      []byte(stdbase64.RawURLEncoding.EncodeToString(f.bytes)),
				"escaped":  asJSON(f.bytes, false),
				"lines":    asJSON(f.bytes, true),
			} {
				if got, ok := ProbeBase64(text); !ok || got != f.want {
					t.Errorf("%s: got %+v, %t, want %+v", name, got, ok, f.want)
				}
			}
		})
	}
}

func TestWhatDecodersOfBase64DifferOnIsNotRead(t *testing.T) {
	text := stdbase64.StdEncoding.EncodeToString(pcm(32000, second))
	for name, bad := range map[string]string{
		"a stop":               text[:100] + "." + text[100:],
		"a byte beyond ASCII":  text[:100] + "é" + text[100:],
		"another text":         strings.TrimRight(text, "=") + "==" + text,
		"padding inside":       text[:100] + "=" + text[100:],
		"three signs of it":    text + "===",
		"one digit too many":   strings.TrimRight(text, "=")[:4*9+1],
		"a letter as escape":   text[:100] + `\u0141` + text[100:],
		"an escaped backslash": text[:100] + `\\` + text[100:],
		"half an escape":       text[:100] + `\`,
		"short escape":         text[:100] + `\u00`,
	} {
		if got, ok := ProbeBase64([]byte(bad)); ok {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestBase64GivesEveryByte reads pieces at random and compares.
func TestBase64GivesEveryByte(t *testing.T) {
	data := make([]byte, 300_001)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	for _, text := range [][]byte{[]byte(stdbase64.StdEncoding.EncodeToString(data)), asJSON(data, true)} {
		s, ok := newBase64(text)
		if !ok || s.size() != int64(len(data)) {
			t.Fatalf("got %d bytes, %t, want %d", s.size(), ok, len(data))
		}
		rapid.Check(t, func(t *rapid.T) {
			off := rapid.Int64Range(-1, int64(len(data))+1).Draw(t, "from")
			n := rapid.IntRange(0, window).Draw(t, "length")
			if got, want := s.at(off, n), plain(data).at(off, n); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes at %d differ: got %d bytes", n, off, len(got))
			}
		})
	}
}

// TestMoreSoundIsNeverShorter has WAV, whose length is that of its bytes.
func TestMoreSoundIsNeverShorter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := noise(rapid.IntRange(2, 20_000).Draw(t, "bytes"))
		size := rapid.SampledFrom([]int{0, 1, len(data) / 2, len(data), len(data) + 7, 0xffffffff}).Draw(t, "stated")
		before := int64(0)
		for range 4 {
			got, ok := Probe(pcm(size, data))
			if want := int64(len(data)+31) / 32; !ok || got.Millis > want+1 || got.Millis < before {
				t.Fatalf("%d bytes: got %+v, %t, %d before, want at most %d", len(data), got, ok, before, want+1)
			}
			if size == 0 || size >= len(data) {
				if want := (int64(len(data)) + 31) / 32; got.Millis != want {
					t.Fatalf("%d bytes: got %d ms, want %d", len(data), got.Millis, want)
				}
			}
			before = got.Millis
			data = append(data, noise(rapid.IntRange(0, 2000).Draw(t, "more"))...)
		}
	})
}

// sane checks what must hold of any bytes.
func sane(t interface{ Fatalf(string, ...any) }, b []byte) {
	got, ok := Probe(b)
	if !ok && got != (Info{}) || ok && (got.Millis <= 0 || got.Millis > maxMillis || !got.Audio && !got.Video) {
		t.Fatalf("got %+v, %t", got, ok)
	}
	again, same := ProbeBase64(asJSON(b, len(b)&1 != 0))
	if again != got || same != ok {
		t.Fatalf("got %+v, %t of the file, %+v, %t of its base64", got, ok, again, same)
	}
}

// TestFilesCutOffAreSane has every length of the start of every file.
func TestFilesCutOffAreSane(t *testing.T) {
	for _, f := range append(honest(), lying()...) {
		for n := range min(len(f.bytes), 600) {
			sane(t, f.bytes[:n:n])
		}
	}
}

// TestDamagedFilesAreSane has files with bytes changed, cut out and put twice.
func TestDamagedFilesAreSane(t *testing.T) {
	files := append(honest(), lying()...)
	rapid.Check(t, func(t *rapid.T) {
		b := append([]byte(nil), rapid.SampledFrom(files).Draw(t, "file").bytes...)
		for range rapid.IntRange(1, 8).Draw(t, "faults") {
			at := rapid.IntRange(0, min(len(b)-1, 700)).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "fault") {
			case 0:
				b[at] = rapid.Byte().Draw(t, "byte")
			case 1:
				b = append(b[:at:at], b[min(len(b), at+rapid.IntRange(1, 40).Draw(t, "cut")):]...)
			case 2:
				b = append(b[:at:at], b...)
			}
			if len(b) == 0 {
				return
			}
		}
		sane(t, b[:min(len(b), 20_000)])
	})
}

func FuzzProbe(f *testing.F) {
	for _, x := range append(honest(), lying()...) {
		f.Add(x.bytes[:min(len(x.bytes), 2000)])
		f.Add(x.bytes[:min(len(x.bytes), 6)])
	}
	f.Fuzz(func(t *testing.T, b []byte) { sane(t, b) })
}

func FuzzProbeBase64(f *testing.F) {
	f.Add([]byte(`UklG\/\u002b=`))
	f.Add(asJSON(pcm(0, noise(40)), true))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := newBase64(b)
		if !ok {
			return
		}
		if n := len(s.at(0, window)); int64(n) != min(s.size(), window) {
			t.Fatalf("got %d bytes of %d", n, s.size())
		}
		ProbeBase64(b)
	})
}

// hostile are files made to be slow to read: each is one megabyte.
func hostile() map[string][]byte {
	const size = 1 << 20
	fill := func(head []byte, piece ...byte) []byte {
		for len(head) < size {
			head = append(head, piece...)
		}
		return head[:size]
	}
	return map[string][]byte{
		"syncs":               fill(mp3(2), 0xff, 0xfb),
		"headers of 8 KiB":    fill(adts(2), 0xff, 0xf1, 0x4c, 0x43, 0xff, 0xff, 0xfc),
		"frames without end":  fill(mp3(2), 0xff, 0xfb, 0x04, 0xc4, 0xff, 0xfd, 0x04, 0xc4),
		"marks of Ogg":        fill(opusHead(1), []byte("OggS\x00")...),
		"marks of clusters":   fill(join(webmHead(), webmTracks("A_OPUS")), []byte(mkvClusterRaw+"\x00")...),
		"boxes of 8 bytes":    fill(ftyp(), box("free")...),
		"boxes in boxes":      fill(ftyp(), []byte("\x00\x10\x00\x00moov\x00\x10\x00\x00trak\x00\x10\x00\x00mdia")...),
		"frames of FLAC":      fill(flacFile(0, 1), 0xff, 0xf8, 0xc5, 8),
		"chunks of no bytes":  fill(wavFile(fmtChunk(1, 1, 16000, 16)), []byte("LIST\x00\x00\x00\x00")...),
		"tags of no bytes":    fill(nil, []byte("ID3\x04\x00\x00\x00\x00\x00\x00")...),
		"samples of fragment": fill(join(ftyp(), movie(0, nil, track{handler: "soun", entry: aacEntry(), scale: 1})), box("moof", box("traf", box("tfhd", b32(0), b32(1)), box("trun", b32(0x100), b32(1<<31-1), b32(1))))...),
	}
}

func BenchmarkProbe(b *testing.B) {
	files := hostile()
	files["WAV"] = pcm(0, noise(1<<20))
	files["MP3"] = mp3(1 << 20 / 384)
	files["FLAC"] = flacFile(0, 1<<20/206)
	files["Opus"] = opusFile(1, 0, 1<<20/42, asIs)
	for name, file := range files {
		text := []byte(stdbase64.StdEncoding.EncodeToString(file))
		for _, way := range []struct {
			name string
			run  func()
		}{{"bytes", func() { Probe(file) }}, {"base64", func() { ProbeBase64(text) }}} {
			b.Run(name+"/"+way.name, func(b *testing.B) {
				b.SetBytes(int64(len(file)))
				b.ReportAllocs()
				for b.Loop() {
					way.run()
				}
			})
		}
	}
}
