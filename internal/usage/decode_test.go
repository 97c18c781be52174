package usage

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/rand"
	"io"
	"net/http"
	"reflect"
	"runtime"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encoders write each content encoding.
var encoders = map[string]func(io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"x-gzip":  func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"bare": func(w io.Writer) io.WriteCloser {
		f, _ := flate.NewWriter(w, flate.DefaultCompression)
		return f
	},
	"br": func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		z, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		return z
	},
}

// encode applies encodings in order.
func encode(tb testing.TB, body []byte, encodings ...string) []byte {
	tb.Helper()
	for _, name := range encodings {
		var b bytes.Buffer
		w := encoders[name](&b)
		if _, err := w.Write(body); err != nil {
			tb.Fatal(err)
		}
		if err := w.Close(); err != nil {
			tb.Fatal(err)
		}
		body = b.Bytes()
	}
	return body
}

func encodedHeader(encodings ...string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "Content-Encoding": encodings}
}

func TestEncodingsAreDecoded(t *testing.T) {
	body := append(chatBody(3000), '\n')
	want := readAll(jsonHeader, http.StatusOK, body, 0)
	if !want.Found {
		t.Fatal("got nothing")
	}
	tests := []struct {
		name   string
		header []string
		apply  []string
	}{
		{"gzip", []string{"gzip"}, []string{"gzip"}},
		{"x-gzip", []string{"x-gzip"}, []string{"x-gzip"}},
		{"case and blanks", []string{" GZip , identity"}, []string{"gzip"}},
		{"deflate", []string{"deflate"}, []string{"deflate"}},
		{"deflate without zlib", []string{"deflate"}, []string{"bare"}},
		{"br", []string{"br"}, []string{"br"}},
		{"zstd", []string{"zstd"}, []string{"zstd"}},
		{"stacked", []string{"gzip, br"}, []string{"gzip", "br"}},
		{"stacked in two lines", []string{"deflate", "zstd"}, []string{"deflate", "zstd"}},
		{"identity", []string{"identity"}, nil},
		{"empty", []string{""}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			encoded := encode(t, body, test.apply...)
			for _, size := range []int{0, 1, 7, 100} {
				if got := readAll(encodedHeader(test.header...), http.StatusOK, encoded, size); !reflect.DeepEqual(got, want) {
					t.Errorf("in pieces of %d\ngot  %+v\nwant %+v", size, got, want)
				}
			}
		})
	}
}

func TestGzipMembersFollowOneAnother(t *testing.T) {
	body := []byte(chat(`{"prompt_tokens":10,"completion_tokens":2}`))
	encoded := append(encode(t, body[:20], "gzip"), encode(t, body[20:], "gzip")...)
	if got := readAll(encodedHeader("gzip"), http.StatusOK, encoded, 9); !got.Found || !got.Complete {
		t.Errorf("got %+v", got)
	}
}

func TestFlushedStreamIsReadWhileItPasses(t *testing.T) {
	for _, name := range []string{"gzip", "br", "zstd", "deflate"} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			w := encoders[name](&b)
			r := NewResponse()
			defer r.Release()
			r.Start(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}, "Content-Encoding": {name}})
			for _, event := range []string{word1, word1, counts} {
				io.WriteString(w, events(event))
				if err := w.(interface{ Flush() error }).Flush(); err != nil {
					t.Fatal(err)
				}
				r.Write(b.Bytes())
				b.Reset()
			}
			got := r.Close(false)
			if got.Usage != (Usage{Input: 10, Output: 2}) || got.Delivered != 10 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestUndecodableIsNotFound(t *testing.T) {
	body := chatBody(20 << 10)
	gz := encode(t, body, "gzip")
	damaged := bytes.Clone(gz)
	damaged[len(damaged)/2] ^= 0xFF
	tests := []struct {
		name, encoding string
		body           []byte
	}{
		{"unknown", "compress", body},
		{"one of two is unknown", "gzip, x-rot13", gz},
		{"too many", "gzip, gzip, gzip, gzip, gzip", gz},
		{"not encoded at all", "gzip", body},
		{"not encoded at all, br", "br", body},
		{"not encoded at all, zstd", "zstd", body},
		{"not encoded at all, deflate", "deflate", body},
		{"one byte", "deflate", body[:1]},
		{"cut", "gzip", gz[:len(gz)/2]},
		{"cut, br", "br", encode(t, body, "br")[:40]},
		{"cut, zstd", "zstd", encode(t, body, "zstd")[:40]},
		{"damaged", "gzip", damaged},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{0, 1, 50} {
				if got := readAll(encodedHeader(test.encoding), http.StatusOK, test.body, size); got.Found {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
}

func TestBodyWithoutItsEndKeepsWhatWasRead(t *testing.T) {
	gz := encode(t, []byte(chat(`{"prompt_tokens":10,"completion_tokens":2}`)), "gzip")
	got := readAll(encodedHeader("gzip"), http.StatusOK, gz[:len(gz)-8], 0)
	if !got.Found || got.Complete {
		t.Errorf("got %+v", got)
	}
}

func TestEncodingWithoutABody(t *testing.T) {
	for name := range openers {
		if got := readAll(encodedHeader(name), http.StatusOK, nil, 0); !reflect.DeepEqual(got, Report{Complete: true}) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestBombsStop(t *testing.T) {
	zeros := make([]byte, freeDecoded+8<<20)
	copy(zeros, `{"x":"`)
	for _, encodings := range [][]string{{"gzip"}, {"br"}, {"zstd"}, {"gzip", "gzip"}} {
		bomb := encode(t, zeros, encodings...)
		decoded := 0
		d := newDecoder(encodings, func(p []byte) { decoded += len(p) })
		d.feed(bomb)
		if d.close() {
			t.Errorf("%v: got no error", encodings)
		}
		if decoded > freeDecoded+1<<20 {
			t.Errorf("%v: got %d bytes decoded", encodings, decoded)
		}
	}
}

func TestIncompressibleIsNoBomb(t *testing.T) {
	noise := make([]byte, freeDecoded+1<<20)
	rand.Read(noise)
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(noise)
	w.Close()
	decoded := 0
	d := newDecoder([]string{"gzip"}, func(p []byte) { decoded += len(p) })
	d.feed(b.Bytes())
	if !d.close() || decoded != len(noise) {
		t.Errorf("got %d bytes, %v", decoded, d.err)
	}
}

func TestDecodersLeaveNothingRunning(t *testing.T) {
	before := runtime.NumGoroutine()
	body := encode(t, chatBody(3000), "gzip")
	for i := range 200 {
		r := NewResponse()
		r.Start(http.StatusOK, encodedHeader("gzip"))
		r.Write(body[:i%len(body)])
		r.Release() // without Close
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("got %d goroutines more", after-before)
	}
}

func TestPanicOfADecoderIsABrokenBody(t *testing.T) {
	d := newDecoder([]string{"gzip"}, func([]byte) { panic("bug") })
	d.feed(encode(t, []byte("x"), "gzip"))
	d.feed([]byte("more"))
	if d.close() {
		t.Error("got no error")
	}
}

func FuzzResponse(f *testing.F) {
	encodings := []string{"", "gzip", "deflate", "br", "zstd", "br, gzip", "unknown"}
	for _, s := range samples(f) {
		if len(s.body) < 4096 {
			f.Add(s.body, s.Type, uint8(5), uint8(0), true)
		}
	}
	for i, name := range encodings[:5] {
		if i > 0 {
			f.Add(encode(f, []byte(events(word1, counts)), name), "text/event-stream", uint8(5), uint8(i), false)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, kind string, size, encoding uint8, finished bool) {
		h := http.Header{"Content-Type": {kind}}
		intact := true
		if name := encodings[int(encoding)%len(encodings)]; name != "" {
			h.Set("Content-Encoding", name)
			if chain, ok := parseEncodings(name); ok {
				d := newDecoder(chain, func([]byte) {})
				d.feed(body)
				intact = d.close()
			}
		}
		want := readPieces(h, http.StatusOK, body, finished, whole)
		got := readPieces(h, http.StatusOK, body, finished, func(int) int { return int(size) })
		// How much a decoder makes of a broken body is its own affair.
		if intact && !reflect.DeepEqual(got, want) {
			t.Errorf("in pieces %+v\nwhole     %+v", got, want)
		}
		if got.Delivered < 0 || got.Terms.Cost < 0 || !got.Usage.consistent() {
			t.Errorf("got %+v", got)
		}
	})
}
