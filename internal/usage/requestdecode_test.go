package usage

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// encodeBody applies one encoding.
func encodeBody(tb testing.TB, encoding string, body []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	var err error
	switch encoding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&out)
	case "deflate":
		w = zlib.NewWriter(&out)
	case "raw":
		w, err = flate.NewWriter(&out, flate.BestCompression)
	case "br":
		w = brotli.NewWriter(&out)
	case "zstd":
		w, err = zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	}
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(body); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

var encodings = []string{"gzip", "x-gzip", "deflate", "raw", "br", "zstd"}

// headerName is how an encoding is named in a header: raw deflate has no name.
func headerName(encoding string) string {
	if encoding == "raw" {
		return "deflate"
	}
	return encoding
}

func TestDecodeBodyUndoesEncodings(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"content":"` + strings.Repeat("hello ", 5000) + `"}]}`)
	for _, e := range encodings {
		t.Run(e, func(t *testing.T) {
			sent := encodeBody(t, e, body)
			got, err := DecodeBody(" "+strings.ToUpper(headerName(e))+" ", sent, int64(len(body)))
			if err != nil || !bytes.Equal(got, body) {
				t.Fatalf("got %d bytes, %v", len(got), err)
			}
			if _, err := DecodeBody(headerName(e), sent, int64(len(body))-1); !errors.Is(err, ErrBodyTooLarge) {
				t.Errorf("a byte over the limit: %v", err)
			}
			var bad *BadRequest
			if _, err := DecodeBody(headerName(e), sent[:len(sent)-2], 1<<20); !errors.As(err, &bad) {
				t.Errorf("cut short: %v", err)
			}
			if _, err := DecodeBody(headerName(e), append(bytes.Clone(sent), "more"...), 1<<20); !errors.As(err, &bad) {
				t.Errorf("more behind: %v", err)
			}
			if _, err := DecodeBody(headerName(e), []byte(`{"model":"m"}`), 1<<20); !errors.As(err, &bad) {
				t.Errorf("plain bytes: %v", err)
			}
			if _, err := DecodeBody(headerName(e), nil, 1<<20); !errors.As(err, &bad) && e != "zstd" {
				t.Errorf("nothing: %v", err)
			}
		})
	}
}

func TestDecodeBodyUndoesStacks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "body")
		stack := rapid.SliceOfN(rapid.SampledFrom(append([]string{"identity", ""}, encodings...)), 0, reqMaxEncodings).Draw(rt, "stack")
		sent, names := body, make([]string, 0, len(stack))
		for _, e := range stack {
			if e != "identity" && e != "" {
				sent = encodeBody(t, e, sent)
			}
			names = append(names, headerName(e))
		}
		got, err := DecodeBody(strings.Join(names, " , "), sent, 1<<20)
		if err != nil || !bytes.Equal(got, body) {
			rt.Fatalf("%q: got %x, %v, want %x", names, got, err, body)
		}
	})
}

func TestDecodeBodyBounds(t *testing.T) {
	t.Run("a bomb", func(t *testing.T) {
		for _, e := range encodings {
			bomb := encodeBody(t, e, make([]byte, 2<<20))
			if got, err := DecodeBody(headerName(e), bomb, 1<<16); !errors.Is(err, ErrBodyTooLarge) {
				t.Errorf("%s: %d bytes, %v", e, len(got), err)
			}
		}
	})
	t.Run("a bomb that unfolds in the middle", func(t *testing.T) {
		bomb := encodeBody(t, "gzip", encodeBody(t, "gzip", make([]byte, 8<<20)))
		if _, err := DecodeBody("gzip, gzip", bomb, 1<<20); !errors.Is(err, ErrBodyTooLarge) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("plain", func(t *testing.T) {
		if _, err := DecodeBody("", []byte("abc"), 2); !errors.Is(err, ErrBodyTooLarge) {
			t.Errorf("got %v", err)
		}
		if got, err := DecodeBody("identity", []byte("abc"), 3); err != nil || string(got) != "abc" {
			t.Errorf("got %q, %v", got, err)
		}
	})
	for _, e := range []string{"compress", "dcb", "gzip;q=1", "x", "gzip, lzma", "gzip,gzip,gzip,gzip"} {
		t.Run("unknown "+e, func(t *testing.T) {
			sent := encodeBody(t, "gzip", encodeBody(t, "gzip", []byte("{}")))
			if _, err := DecodeBody(e, sent, 1<<20); !errors.Is(err, ErrUnknownEncoding) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzDecodeBody(f *testing.F) {
	for _, e := range encodings {
		f.Add(headerName(e), encodeBody(f, e, []byte(`{"model":"m"}`)))
	}
	f.Fuzz(func(t *testing.T, encoding string, body []byte) {
		const limit = 1 << 16
		if got, err := DecodeBody(encoding, body, limit); err == nil && len(got) > limit {
			t.Errorf("%d bytes", len(got))
		}
	})
}
