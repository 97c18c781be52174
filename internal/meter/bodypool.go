package meter

import (
	"context"
	"errors"
	"io"
	"math/bits"
	"sync"
)

// The memory of a long body is used again: to clear and to collect a megabyte for every
// call costs more than to read it. Two things make sure that no call ever sees the body of
// another one. Only the body that readBody has filled is given back, and only once its
// request is over for the server, with an answer, or all has been read and nobody reads it
// again. And whoever may still read it then, a transport that goes on sending after an early
// answer, does so through a bodyReader, which copies under the lock under which the body is
// given back.

const (
	// leastPooled and mostPooled bound the memory that is used again, in bytes: to lend a
	// short one costs as much as to collect it, and long ones are rare.
	leastPooled = 8 << 10
	mostPooled  = 4 << 20
	// leastShift is that of the sizes from leastPooled down to its half.
	leastShift = 9
)

// rooms are what has been given back, by size: there are eight sizes from each power of
// two to the next. What nobody takes for two collections is collected.
var rooms [(22-13)*8 + 8]sync.Pool

// roomSize rounds a size up to one of which there are pools, and returns which; pool is
// negative where there is none.
func roomSize(n int64) (size int64, pool int) {
	if n < leastPooled || n > mostPooled {
		return n, -1
	}
	shift := bits.Len64(uint64(n-1)) - 4
	eighths := (n-1)>>shift + 1 // from 9 to 16
	return eighths << shift, (shift-leastShift)*8 + int(eighths-9)
}

// newRoom returns memory for n bytes, which may hold anything.
func newRoom(n int64) []byte {
	if size, pool := roomSize(n); pool >= 0 && size == n {
		if room, ok := rooms[pool].Get().(*[]byte); ok {
			return *room
		}
	}
	return make([]byte, n)
}

// errGivenBack is what is read of a body whose request is over.
var errGivenBack = errors.New("reading the body of a request that is over")

// lent is the body of a call, in memory that is used again. All of it may be called from
// any goroutine.
type lent struct {
	mu   sync.Mutex
	body []byte // nil once it was given back
	kept bool   // for good: it is not given back any more
}

// lend notes that a body may be given back. It returns nil for one that is not worth it.
func lend(body []byte) *lent {
	if size, pool := roomSize(int64(cap(body))); pool < 0 || size != int64(cap(body)) {
		return nil
	}
	return &lent{body: body}
}

// has tells whether a body that the call holds is this one.
func (l *lent) has(body []byte) bool {
	if l == nil || len(body) == 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.body != nil && &body[:cap(body)][cap(body)-1] == &l.body[:cap(l.body)][cap(l.body)-1]
}

// keep has the body stay what it is, and is false if it was given back.
func (l *lent) keep() bool {
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = l.kept || l.body != nil
	return l.kept
}

// giveBack lets others have the memory.
func (l *lent) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept || l.body == nil {
		return
	}
	room := l.body[:cap(l.body)]
	l.body = nil
	if _, pool := roomSize(int64(len(room))); pool >= 0 {
		rooms[pool].Put(&room)
	}
}

// giveBackAfter gives the body back when the request is over. A client that has gone
// already does not tell when that is.
func (l *lent) giveBackAfter(request context.Context) {
	if l != nil && request.Err() == nil {
		context.AfterFunc(request, l.giveBack)
	}
}

// bodyReader reads a body that is lent, and nothing of it once it was given back.
type bodyReader struct {
	of   *lent
	body []byte
}

// Read implements io.Reader. It is the only way to the bytes: no other method hands the
// memory out.
func (b *bodyReader) Read(p []byte) (int, error) {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	switch {
	case len(b.body) == 0:
		return 0, io.EOF
	case b.of.body == nil:
		return 0, errGivenBack
	}
	n := copy(p, b.body)
	if b.body = b.body[n:]; len(b.body) == 0 {
		b.body = nil
	}
	return n, nil
}

// spent tells whether all of it has been read.
func (b *bodyReader) spent() bool {
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	return len(b.body) == 0
}

// Close implements io.Closer.
func (*bodyReader) Close() error { return nil }
