package usage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/klauspost/compress/flate"
)

// wsCompression is what the two sides of a WebSocket agreed upon: whether each message
// is compressed by itself, or refers to those before it.
type wsCompression struct {
	agreed                   bool
	serverAlone, clientAlone bool
}

// parseExtensions reads the Sec-WebSocket-Extensions of the answer to a handshake (RFC
// 7692, section 7.1). It reports false if there are any that this package cannot read.
func parseExtensions(values []string) (c wsCompression, ok bool) {
	for extension := range strings.SplitSeq(strings.ToLower(strings.Join(values, ",")), ",") {
		name, params, _ := strings.Cut(extension, ";")
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if name != "permessage-deflate" || c.agreed {
			return c, false
		}
		c.agreed = true
		for param := range strings.SplitSeq(params, ";") {
			param, _, _ = strings.Cut(param, "=")
			switch strings.TrimSpace(param) {
			case "server_no_context_takeover":
				c.serverAlone = true
			case "client_no_context_takeover":
				c.clientAlone = true
			case "", "server_max_window_bits", "client_max_window_bits":
				// a smaller window needs nothing that the largest does not have
			default:
				return c, false
			}
		}
	}
	return c, true
}

const (
	// wsWindow is how far back compressed data may refer, in bytes.
	wsWindow = 32 << 10
	// wsTail stands behind each message: what its sender left out, and an empty block
	// that is the last.
	wsTail = "\x00\x00\xff\xff\x01\x00\x00\xff\xff"
)

var errInflated = errors.New("message decompresses to more than is believed")

// inflater decompresses the messages of one direction while they pass. Like decoder it
// runs in a coroutine that stops where it has used up what there is.
type inflater struct {
	sink  func([]byte) // may not keep what it gets
	alone bool         // no message refers to one before it

	in     []byte // the part of the piece that is not read yet
	tail   string // what is to follow the message's last piece
	ended  bool   // that piece has come
	taken  int64  // bytes of the message so far
	window []byte // what was decompressed last; twice the size, so that it moves seldom

	failed bool
	yield  func(struct{}) bool
	resume func() (struct{}, bool) // nil before the first message
	stop   func()
}

// feed decompresses the next piece of a message. It reports false where that cannot be
// done; so do all calls that follow.
func (d *inflater) feed(p []byte) bool {
	d.in = p
	d.taken += int64(len(p))
	d.step()
	d.in = nil
	return !d.failed
}

// end takes the end of a message. One of no bytes at all is empty.
func (d *inflater) end() bool {
	if d.taken == 0 {
		return !d.failed
	}
	d.ended, d.tail = true, wsTail
	d.step()
	d.ended, d.taken = false, 0
	return !d.failed
}

// close ends the inflater.
func (d *inflater) close() {
	d.failed = true
	if d.resume != nil {
		d.stop()
	}
}

// step runs the coroutine until it wants more.
func (d *inflater) step() {
	if d.failed {
		return
	}
	if d.resume == nil {
		d.resume, d.stop = iter.Pull(func(yield func(struct{}) bool) {
			d.yield = yield
			d.failed = d.run() != nil || d.failed
		})
	}
	if _, more := d.resume(); !more {
		d.failed = true
	}
}

// errStopped means that no more messages come.
var errStopped = errors.New("stopped")

// run decompresses message after message. A bug in the decompressor is as good as
// broken data: it must not take the connection down.
func (d *inflater) run() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decompressing: %v", v)
		}
	}()
	in := bufio.NewReaderSize(d, 1<<10)
	z := flate.NewReader(in)
	defer z.Close()
	buf := decodeBuffers.borrow()
	defer decodeBuffers.giveBack(buf)
	for {
		for len(d.in) == 0 && !d.ended {
			if !d.yield(struct{}{}) {
				return errStopped
			}
		}
		if err := d.message(in, z, buf[:]); err != nil {
			return err
		}
		// The end of the message has been asked for, and is waited for.
		if !d.yield(struct{}{}) {
			return errStopped
		}
	}
}

// message decompresses one message. It is a stream of its own for the decompressor,
// with what came before as its dictionary; should a sender mark a block as the last, it
// is several.
func (d *inflater) message(in *bufio.Reader, z io.ReadCloser, buf []byte) error {
	in.Reset(d)
	var given int64
	for first := true; first || !d.ended || d.tail != "" || in.Buffered() > 0; first = false {
		if err := z.(flate.Resetter).Reset(in, d.dictionary()); err != nil {
			return fmt.Errorf("decompressing: %w", err)
		}
		for {
			n, err := z.Read(buf)
			if given += int64(n); given > freeDecoded && given/maxRatio > d.taken {
				return errInflated
			}
			d.remember(buf[:n])
			d.sink(buf[:n])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("decompressing: %w", err)
			}
		}
	}
	if d.alone {
		d.window = d.window[:0]
	}
	return nil
}

// Read gives the decompressor what there is of the message.
func (d *inflater) Read(b []byte) (int, error) {
	for len(d.in) == 0 {
		if d.ended {
			n := copy(b, d.tail)
			if d.tail = d.tail[n:]; n == 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		if !d.yield(struct{}{}) {
			return 0, errStopped
		}
	}
	n := copy(b, d.in)
	d.in = d.in[n:]
	return n, nil
}

// dictionary is what the next data may refer to.
func (d *inflater) dictionary() []byte {
	return d.window[max(0, len(d.window)-wsWindow):]
}

// remember keeps what was decompressed, as far as it may be referred to.
func (d *inflater) remember(p []byte) {
	p = p[max(0, len(p)-wsWindow):]
	if d.window == nil {
		d.window = make([]byte, 0, 2*wsWindow)
	}
	if len(d.window)+len(p) > cap(d.window) {
		d.window = d.window[:copy(d.window, d.dictionary())]
	}
	d.window = append(d.window, p...)
}
