package usage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"
)

const (
	// maxEncodings bounds a stack of encodings; a server has no reason for two.
	maxEncodings = 4
	// maxDecoded is how many bytes each layer of a response may decode to.
	maxDecoded = 1 << 30
	// maxRatio is how many bytes each layer may decode to for every one it read, once
	// it has decoded freeDecoded. JSON and streams stay well under 100.
	maxRatio    = 500
	freeDecoded = 16 << 20
	// maxZstdWindow is the largest window that RFC 9659 allows for HTTP.
	maxZstdWindow = 8 << 20

	decodeBuffer = 16 << 10
)

var errBomb = errors.New("content decodes to more than is believed")

// openers open the decoders of the content encodings of RFC 9110 and of its registry.
var openers = map[string]func(io.Reader) (io.Reader, error){
	"gzip":    openGzip,
	"x-gzip":  openGzip,
	"deflate": openDeflate,
	"br":      openBrotli,
	"zstd":    openZstd,
}

// parseEncodings splits a Content-Encoding, in the order in which the encodings were
// applied. It reports false if one is unknown or there are too many.
func parseEncodings(header string) (chain []string, ok bool) {
	for name := range strings.SplitSeq(strings.ToLower(header), ",") {
		name = strings.TrimSpace(name)
		if name == "" || name == "identity" {
			continue
		}
		if openers[name] == nil || len(chain) == maxEncodings {
			return nil, false
		}
		chain = append(chain, name)
	}
	return chain, true
}

// decoder decodes a body while it passes. The decoders that exist want to read, not to
// be written to; so they run in a coroutine that stops where it has used up what there
// is, and goes on with the next piece. Nothing runs at the same time, nothing waits.
type decoder struct {
	chain  []string
	sink   func([]byte)
	in     []byte // the part of the piece that is not read yet
	last   bool   // no more pieces come
	err    error
	ended  bool
	yield  func(struct{}) bool
	resume func() (struct{}, bool)
	stop   func()
}

// newDecoder returns a decoder that hands decoded bytes to sink, which may not keep
// them. It must be closed.
func newDecoder(chain []string, sink func([]byte)) *decoder {
	d := &decoder{chain: chain, sink: sink}
	d.resume, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		d.yield = yield
		d.err = d.run()
	})
	return d
}

// feed decodes the next piece. What follows an error is ignored.
func (d *decoder) feed(p []byte) {
	if d.ended || len(p) == 0 {
		return
	}
	d.in = p
	d.step()
	d.in = nil
}

// close ends the decoder and reports whether the body was whole and well-formed.
func (d *decoder) close() bool {
	d.last = true
	for !d.ended {
		d.step()
	}
	d.stop()
	return d.err == nil
}

// step runs the coroutine until it wants more.
func (d *decoder) step() {
	if _, more := d.resume(); !more {
		d.ended = true
	}
}

// run decodes to the end of the body. A decoder's bug is as good as a broken body: it
// must not take the response down.
func (d *decoder) run() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decoding: %v", v)
		}
	}()
	if len(d.in) == 0 {
		return nil // a response without a body
	}
	var r io.Reader = pieces{d}
	for i := len(d.chain) - 1; i >= 0; i-- {
		from := &counted{r: r}
		opened, err := openers[d.chain[i]](from)
		if err != nil {
			return fmt.Errorf("opening %q: %w", d.chain[i], err)
		}
		if c, ok := opened.(io.Closer); ok {
			defer c.Close() //nolint:gocritic // few, and all are needed to the end
		}
		r = &bounded{r: opened, from: from}
	}
	buf := decodeBuffers.borrow()
	defer decodeBuffers.giveBack(buf)
	for {
		n, err := r.Read(buf[:])
		d.sink(buf[:n])
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decoding: %w", err)
		}
	}
}

// pieces reads what a decoder is fed.
type pieces struct{ d *decoder }

func (p pieces) Read(b []byte) (int, error) {
	d := p.d
	for len(d.in) == 0 {
		if d.last {
			return 0, io.EOF
		}
		if !d.yield(struct{}{}) {
			return 0, io.ErrUnexpectedEOF
		}
	}
	n := copy(b, d.in)
	d.in = d.in[n:]
	return n, nil
}

// counted counts what a layer reads.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	return n, err
}

// bounded stops a layer that decodes to too much.
type bounded struct {
	r    io.Reader
	from *counted
	n    int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	if b.n > maxDecoded || b.n > freeDecoded && b.n/maxRatio > b.from.n {
		return 0, errBomb
	}
	return n, err
}

var decodeBuffers = pool[[decodeBuffer]byte]{make: func() *[decodeBuffer]byte { return new([decodeBuffer]byte) }}

// openDeflate opens zlib, which "deflate" means, or the bare deflate that some servers
// send instead.
func openDeflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 512)
	head, err := b.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0F == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}
