// Package load puts servers under load and compares what it costs them.
//
// It speaks HTTP/1.1 by itself: requests are rendered beforehand, and each worker reads
// its answers on the spot. That takes a fraction of what net/http's client takes, which
// would compete with the servers for the processors.
package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// patience is how long a call may take; a server that is slower has stopped.
const patience = time.Minute

// Request is a POST to be sent many times. Consumer numbers stand in it as digits, in
// the place of a run of as many zeros.
type Request struct {
	raw    []byte
	digits int // where in raw the consumer's number stands; 0 if nowhere
	stream bool
}

// consumerDigits is how long consumer numbers are.
const consumerDigits = 7

// ConsumerZero is the number of the first consumer, and what other numbers take the
// place of in requests.
const ConsumerZero = "0000000"

// NewRequest renders a POST with the given header lines, `Name: value`. The first
// [ConsumerZero] of the header is where consumers' numbers go. stream says that the
// answer is one: its events are counted, and its first byte is what is timed.
func NewRequest(path string, header []string, body []byte, stream bool) *Request {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, len(body))
	for _, line := range header {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n")
	rq := &Request{stream: stream, digits: max(bytes.Index(b.Bytes(), []byte(ConsumerZero)), 0)}
	b.Write(body)
	rq.raw = b.Bytes()
	return rq
}

// conn is a worker's connection to one server.
type conn struct {
	addr    string
	request *Request
	raw     []byte // its own copy, where the request has consumers
	c       net.Conn
	br      *bufio.Reader
	buf     []byte
}

// answer is what came back.
type answer struct {
	first  time.Time // when the body began
	bytes  int64
	events int64
	reads  int64 // of a stream: how many pieces the events came in
}

var errStatus = errors.New("not answered with 200")

// do sends the request of one consumer and reads the answer whole.
func (cn *conn) do(consumer int) (answer, error) {
	fresh := cn.c == nil
	a, err := cn.try(consumer)
	if err != nil && !fresh && a.first.IsZero() && !errors.Is(err, errStatus) {
		a, err = cn.try(consumer) // an idle connection may be closed just as it is used
	}
	return a, err
}

func (cn *conn) try(consumer int) (a answer, err error) {
	if cn.c == nil {
		if err := cn.dial(); err != nil {
			return a, err
		}
	}
	defer func() {
		if err != nil {
			cn.close()
		}
	}()
	if err := cn.c.SetDeadline(time.Now().Add(patience)); err != nil {
		return a, err
	}
	raw := cn.request.raw
	if at := cn.request.digits; at > 0 {
		raw = cn.raw
		for i, n := consumerDigits-1, consumer; i >= 0; i, n = i-1, n/10 {
			raw[at+i] = byte('0' + n%10)
		}
	}
	if _, err := cn.c.Write(raw); err != nil {
		return a, err
	}
	length, err := cn.head()
	if err != nil {
		return a, err
	}
	return a, cn.body(&a, length)
}

func (cn *conn) dial() error {
	c, err := net.DialTimeout("tcp", cn.addr, patience)
	if err != nil {
		return err
	}
	cn.c = c
	if cn.br == nil {
		cn.br, cn.buf = bufio.NewReaderSize(c, 16<<10), make([]byte, 16<<10)
		cn.raw = bytes.Clone(cn.request.raw)
	}
	cn.br.Reset(c)
	return nil
}

func (cn *conn) close() {
	if cn.c != nil {
		_ = cn.c.Close()
		cn.c = nil
	}
}

// chunked is the length of a body whose length is not told.
const chunked = -1

// head reads status and header.
func (cn *conn) head() (length int64, err error) {
	length = chunked
	for first := true; ; first = false {
		line, err := cn.br.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch name, value, _ := bytes.Cut(line, []byte(":")); {
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")):
			return 0, fmt.Errorf("%w: %q", errStatus, line)
		case len(line) == 0:
			return length, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, fmt.Errorf("reading Content-Length: %w", err)
			}
		}
	}
}

// end of a stream.
var end = []byte("data: [DONE]\n\n")

func (cn *conn) body(a *answer, length int64) error {
	var r io.Reader = &io.LimitedReader{R: cn.br, N: length}
	if length == chunked {
		r = httputil.NewChunkedReader(cn.br)
	}
	var tail [16]byte // what the answer ended in
	var newlines int64
	for {
		n, err := r.Read(cn.buf)
		if p := cn.buf[:n]; n > 0 {
			if a.first.IsZero() {
				a.first = time.Now()
			}
			a.bytes += int64(n)
			a.reads++
			if cn.request.stream {
				newlines += int64(bytes.Count(p, []byte{'\n'}))
			}
			if n < len(tail) {
				copy(tail[:], tail[n:])
			}
			copy(tail[max(len(tail)-n, 0):], p[max(n-len(tail), 0):])
		}
		if errors.Is(err, io.EOF) {
			a.events = newlines / 2 // two end an event, and no read can split one of them
			break
		}
		if err != nil {
			return err
		}
	}
	switch {
	case cn.request.stream && !bytes.HasSuffix(tail[:], end):
		return fmt.Errorf("the stream ends in %q", tail[:])
	case !cn.request.stream && tail[len(tail)-1] != '}':
		return fmt.Errorf("the answer ends in %q", tail[:])
	case length == chunked:
		_, err := cn.br.Discard(len("\r\n")) // no trailers
		return err
	}
	return nil
}
