package meter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

var (
	// ErrTooLarge means that a request body that must be read is over the limit.
	ErrTooLarge = errors.New("request body too large")
	// ErrBusy means that the bodies being held at this moment leave no room.
	ErrBusy = errors.New("too many request bodies in memory")
)

const (
	// firstRead is the room that a body of unknown or large size starts with, in bytes.
	firstRead = 32 << 10
	// usualRatio is how many times larger than compressed a body may be before room
	// for the largest is needed. Prompts shrink to a third or so.
	usualRatio = 20
	// believed is how many bytes of an announced length each byte that has arrived stands
	// for: a prompt of a megabyte gets its room at once when the first part of it is here.
	believed = 32
)

// budget bounds the memory of all request bodies that are held at one time, in bytes,
// and of those of one caller, so that no caller's slow uploads shut out the others.
type budget struct {
	max   atomic.Int64
	share atomic.Int64 // what one caller may take
	used  atomic.Int64

	mu sync.Mutex
	by map[string]int64 // what is taken by each caller at work
}

// take takes n bytes for a caller, or nothing where they are not left.
func (b *budget) take(who string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used.Load()+n > b.max.Load() || who != "" && b.by[who]+n > b.share.Load() {
		return false
	}
	b.add(who, n)
	return true
}

// force takes n bytes that are in use whatever is left.
func (b *budget) force(who string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(who, n)
}

func (b *budget) release(who string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(who, -n)
}

func (b *budget) add(who string, n int64) {
	b.used.Add(n)
	left := b.by[who] + n
	if left == 0 {
		delete(b.by, who)
		return
	}
	if b.by == nil {
		b.by = make(map[string]int64)
	}
	b.by[who] = left
}

// caller is whose share of the budget a request takes: that of its key. Those without
// one are not told apart, and may take it all: behind a load balancer they would all be
// one address.
func caller(r *http.Request) string { return Var(r, VarKeyID) }

// readBody reads a body whole. It returns what the budget was charged, which the
// caller gives back when the call has ended, in every case.
func (m *Meter) readBody(r *http.Request, who string) (body []byte, held int64, err error) {
	most := m.maxBody.Load()
	if r.ContentLength > most {
		return nil, 0, ErrTooLarge
	}
	// Memory follows what has arrived, and what was announced only so far: a length
	// alone must not use up what others need. One byte more than needed lets the end be seen
	// without growing.
	held = firstRead
	if n := r.ContentLength; n >= 0 {
		held = min(n+1, firstRead)
	}
	held = min(held, most+1)
	if round, _ := roomSize(held); round <= most+1 {
		held = round
	}
	if !m.bodies.take(who, held) {
		return nil, 0, ErrBusy
	}
	body = newRoom(held)[:0]

	// read to the end, never just to the length announced: net/http starts to watch
	// for a client that hangs up only when the body has ended
	for {
		if len(body) == cap(body) {
			size := m.grown(int64(len(body)), r.ContentLength)
			if !m.bodies.take(who, size) { // both live while one is copied to the other
				return nil, held, ErrBusy
			}
			larger := newRoom(size)
			body = larger[:copy(larger, body)]
			m.bodies.release(who, held)
			held = size
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > most {
			return nil, held, ErrTooLarge
		}
		if errors.Is(err, io.EOF) {
			if int64(len(body)) < r.ContentLength {
				// somebody has read it before
				return nil, held, badBody(io.ErrUnexpectedEOF)
			}
			return body, held, nil
		}
		if err != nil {
			return nil, held, badBody(err)
		}
	}
}

// grown is the size of the memory that takes the place of n bytes that are full.
func (m *Meter) grown(n, announced int64) int64 {
	most := m.maxBody.Load() + 1
	size := max(min(2*n, most), n+1)
	if announced > n {
		size = min(announced+1, believed*n, most)
	}
	if round, pool := roomSize(size); pool >= 0 && round <= most {
		return round
	}
	return size
}

// badBody is the error of a body that cannot be read. It is the client's doing, but
// for an error that knows its own status: Caddy's request_body answers 413.
func badBody(err error) error {
	return caddyhttp.Error(http.StatusBadRequest, fmt.Errorf("reading request body: %w", err))
}

// decode undoes the encoding of a body. What the result needs is charged to the call.
func (c *Call) decode(encoding string, body []byte) ([]byte, error) {
	m, who := c.m, c.who
	most := m.maxBody.Load()
	limit := min(max(usualRatio*int64(len(body)), firstRead), most)
	for {
		// room first: a few bytes may stand for the largest body of all
		if !m.bodies.take(who, limit) {
			return nil, ErrBusy
		}
		plain, err := usage.DecodeBody(encoding, body, limit)
		if err == nil {
			c.held += int64(len(plain))
			m.bodies.release(who, limit-int64(len(plain)))
			return plain, nil
		}
		m.bodies.release(who, limit)
		if !errors.Is(err, usage.ErrBodyTooLarge) || limit == most {
			return nil, err
		}
		limit = most
	}
}

// setBody puts a body back, with its exact length: reverse_proxy would send an
// empty body on a retry if the length were unknown. of reads it.
func setBody(r *http.Request, size int64, of io.Reader) {
	body, ok := of.(io.ReadCloser)
	switch {
	case size == 0:
		body = http.NoBody
	case !ok:
		body = io.NopCloser(of)
	}
	r.Body = body
	r.GetBody = nil // or net/http would send it again by itself, which nobody counts
	r.ContentLength = size
	r.TransferEncoding = nil
	var room [20]byte
	length := strconv.AppendInt(room[:0], size, 10)
	if h := r.Header["Content-Length"]; len(h) != 1 || h[0] != string(length) {
		r.Header["Content-Length"] = []string{string(length)}
	}
	for _, name := range []string{"Transfer-Encoding", "Expect"} { // the body is here: there is nothing to wait for
		if r.Header[name] != nil { // others may be reading a header that has neither
			delete(r.Header, name)
		}
	}
}

// sentBody reads a body that is sent on, and lets go of it at its end: whoever sends it may
// hold the reader as long as the answer lasts.
type sentBody struct {
	of  bytes.Reader
	all atomic.Bool // it was read to its end
}

// reset begins with a body. It must not be called any more once somebody reads it.
func (b *sentBody) reset(body []byte) { b.of.Reset(body) }

// Read implements io.Reader.
func (b *sentBody) Read(p []byte) (int, error) {
	n, err := b.of.Read(p)
	b.end()
	return n, err
}

// WriteTo implements io.WriterTo.
func (b *sentBody) WriteTo(w io.Writer) (int64, error) {
	n, err := b.of.WriteTo(w)
	b.end()
	return n, err
}

func (b *sentBody) end() {
	if b.of.Len() == 0 && !b.all.Load() {
		b.of.Reset(nil)
		b.all.Store(true)
	}
}

// spent tells whether all of it has been read.
func (b *sentBody) spent() bool { return b.all.Load() }

// Close implements io.Closer.
func (*sentBody) Close() error { return nil }
