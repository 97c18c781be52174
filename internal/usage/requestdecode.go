package usage

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

var (
	// ErrBodyTooLarge is returned for a body that is longer than its limit, as sent or
	// at any stage of decoding. The answer to it is 413.
	ErrBodyTooLarge = errors.New("body too large")
	// ErrUnknownEncoding is returned, wrapped, for a Content-Encoding that cannot be
	// undone. The answer to it is 415.
	ErrUnknownEncoding = errors.New("unknown content encoding")
)

const (
	reqMaxEncodings = 3
	reqMaxWindow    = 8 << 20 // what RFC 9659 lets zstd senders on the web use
)

// DecodeBody undoes a Content-Encoding: gzip, deflate (zlib or raw), br and zstd,
// several of them separated by commas, in the order they were applied. It returns
// body itself where there is none. No stage may yield more than limit bytes. Errors
// are [ErrBodyTooLarge], [ErrUnknownEncoding] or, for bytes that are not what the
// encoding says, a [*BadRequest].
func DecodeBody(contentEncoding string, body []byte, limit int64) ([]byte, error) {
	if int64(len(body)) > limit {
		return nil, ErrBodyTooLarge
	}
	names := make([]string, 0, reqMaxEncodings)
	for name := range strings.SplitSeq(contentEncoding, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if name == "" || name == "identity" {
			continue
		}
		if len(names) == reqMaxEncodings {
			return nil, fmt.Errorf("%w: more than %d of them", ErrUnknownEncoding, reqMaxEncodings)
		}
		names = append(names, name)
	}
	for len(names) > 0 {
		name := names[len(names)-1]
		names = names[:len(names)-1]
		var err error
		if body, err = reqDecode(name, body, limit); err != nil {
			return nil, err
		}
	}
	return body, nil
}

func reqDecode(name string, body []byte, limit int64) ([]byte, error) {
	// Buffered, so that the decoders take no byte more than theirs.
	src := bufio.NewReader(bytes.NewReader(body))
	dec, err := reqDecoder(name, src)
	if errors.Is(err, ErrUnknownEncoding) {
		return nil, err
	}
	if err != nil {
		return nil, reqBadEncoding(name)
	}
	defer dec.Close()

	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(dec, limit+1))
	switch {
	case n > limit || errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, ErrBodyTooLarge
	case err != nil:
		return nil, reqBadEncoding(name)
	}
	// What a decoder leaves unread another one may read.
	if _, err := src.ReadByte(); err == nil {
		return nil, reqBadEncoding(name)
	}
	return out.Bytes(), nil
}

func reqDecoder(name string, src *bufio.Reader) (io.ReadCloser, error) {
	switch name {
	case "gzip", "x-gzip":
		return gzip.NewReader(src)
	case "deflate":
		// Named for zlib's format, but some clients send the bare one.
		if head, err := src.Peek(2); err == nil && head[0]&0x8f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			return zlib.NewReader(src)
		}
		return flate.NewReader(src), nil
	case "br":
		return io.NopCloser(brotli.NewReader(src)), nil
	case "zstd":
		dec, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(reqMaxWindow))
		if err != nil {
			return nil, err
		}
		return dec.IOReadCloser(), nil
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownEncoding, name)
}

func reqBadEncoding(name string) error {
	return &BadRequest{Message: "the body is not what its Content-Encoding says: " + name}
}
