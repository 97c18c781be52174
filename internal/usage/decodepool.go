package usage

import (
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// pooled reads with a decoder that the next response uses again: to make one takes more
// memory than the rest of a call. One that broke off is not trusted, and one that has read
// much not kept, for its buffers have grown with that.
type pooled struct {
	io.Reader
	keep  func() // gives the decoder to the next response
	n     int64
	whole bool
}

// maxPooled is how many bytes a decoder has decoded at most that is used again.
const maxPooled = 1 << 20

func (p *pooled) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	p.n += int64(n)
	p.whole = err == io.EOF
	return n, err
}

// Close implements io.Closer.
func (p *pooled) Close() error {
	if p.whole && p.n <= maxPooled {
		p.keep()
	}
	return nil
}

var (
	gzipReaders   = pool[gzip.Reader]{make: func() *gzip.Reader { return new(gzip.Reader) }}
	brotliReaders = pool[brotli.Reader]{make: func() *brotli.Reader { return new(brotli.Reader) }}
	zstdReaders   = pool[zstd.Decoder]{make: newZstd}
)

func openGzip(r io.Reader) (io.Reader, error) {
	g := gzipReaders.borrow()
	if err := g.Reset(r); err != nil {
		gzipReaders.giveBack(g)
		return nil, err
	}
	return &pooled{Reader: g, keep: func() { gzipReaders.giveBack(g) }}, nil
}

func openBrotli(r io.Reader) (io.Reader, error) {
	b := brotliReaders.borrow()
	if err := b.Reset(r); err != nil {
		return nil, err
	}
	return &pooled{Reader: b, keep: func() { brotliReaders.giveBack(b) }}, nil
}

func openZstd(r io.Reader) (io.Reader, error) {
	z := zstdReaders.borrow()
	if err := z.Reset(r); err != nil {
		return nil, err
	}
	return &pooled{Reader: z, keep: func() { zstdReaders.giveBack(z) }}, nil
}

// newZstd returns a decoder without goroutines of its own, which need not be closed.
func newZstd() *zstd.Decoder {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow))
	if err != nil {
		panic(err) // options that cannot be
	}
	return z
}
