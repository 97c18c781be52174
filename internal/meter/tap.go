package meter

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// tap is the response writer of a call. It writes to the client first and parses
// afterwards, changes nothing but the header fields of limits, and holds nothing
// back but the one chunk that was asked for in the client's stead, and an error
// that may be due to the asking.
//
// What calls it from another goroutine, reverse_proxy's flushes and informational
// statuses, is never at it while the handler is; so it has no lock of its own.
type tap struct {
	// What each piece of a stream needs stands together, in two lines of the caches: between
	// two events they have forgotten it.

	http.ResponseWriter
	flusher flusher         // the same; nil if it cannot flush by itself
	resp    *usage.Response // nil while nobody wants the use
	hider   *usage.Hider    // nil where no chunk is to be hidden
	status  int32           // the final one; 0 before
	broken  bool            // the client did not take everything, and a handler knows
	lost    bool            // the same, and no handler knows: the upstream is drained
	whole   bool            // the body tells by itself where it ends
	holding bool            // an error is held back
	run     usage.Run       // of resp

	call       *Call
	passage    *Passage    // of the handlers behind
	tunnel     *tunnel     // nil until a Realtime call has left HTTP
	heldHeader http.Header // as it was when the error began that is held back
	held       []byte      // its body
}

// flusher is what Caddy's own response writers are.
type flusher interface{ FlushError() error }

// maxHeldError bounds an error that is held back to see what it says, in bytes.
const maxHeldError = 64 << 10

// copySize is how much of an answer is copied at a time, in bytes, as io.Copy does.
const copySize = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// meter has the response read. It may be called again.
func (t *tap) meter() {
	if t.resp == nil && t.status == 0 {
		t.resp = usage.NewResponse()
	}
}

// Unwrap lets http.ResponseController reach what it needs.
func (t *tap) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// WriteHeader notes the final status and sets the fields that tell what is left.
func (t *tap) WriteHeader(status int) {
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		t.ResponseWriter.WriteHeader(status)
		return
	}
	if t.status != 0 {
		if !t.holding {
			t.ResponseWriter.WriteHeader(status) // superfluous: net/http says so
		}
		return
	}
	t.status = int32(status)
	if t.call.HoldsBack(status) {
		// trailers come into the same map once the body is through
		t.holding, t.heldHeader = true, t.Header().Clone()
		return
	}
	t.start()
}

// start sends the header.
func (t *tap) start() {
	t.passage.Publish()
	h := t.Header()
	if t.call.refusedBy == "" {
		kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
		kind = strings.TrimSpace(kind)
		t.whole = strings.EqualFold(kind, "application/json")
		if t.resp != nil {
			for _, f := range t.call.fields {
				t.resp.Seek(f)
			}
			t.resp.Expect(t.call.serving())
			t.resp.Start(int(t.status), h)
		}
		stream := strings.EqualFold(kind, "text/event-stream")
		if t.call.plain != nil && stream && isPlain(h) {
			t.hider = new(usage.Hider)
			h.Del("Content-Length")
		}
		if es := t.call.entries; len(es) > 0 {
			es[0].Headers(h, es)
		}
		if stream && t.status/100 == 2 {
			t.call.flows()
		}
	}
	t.ResponseWriter.WriteHeader(int(t.status))
}

// isPlain tells whether a body has no encoding.
func isPlain(h http.Header) bool {
	encoding := h.Get("Content-Encoding")
	return encoding == "" || strings.EqualFold(encoding, "identity")
}

// Write passes the next piece of the body on and reads it.
func (t *tap) Write(p []byte) (int, error) {
	if t.status == 0 {
		t.WriteHeader(http.StatusOK)
	}
	if t.holding {
		if len(t.held)+len(p) <= maxHeldError {
			t.held = append(t.held, p...)
			return len(p), nil
		}
		if err := t.letGo(); err != nil {
			return 0, err
		}
	}
	return t.pass(p)
}

// pass writes to the client, then parses. What the client did not take is read all
// the same: it has been used.
func (t *tap) pass(p []byte) (n int, err error) {
	unread := p
	switch {
	case t.lost && t.call.drain.stopped():
		err = context.Canceled // a handler that looks at errors alone must end as well
	case t.lost:
		n = len(p)
	case t.hider == nil:
		n, err = t.ResponseWriter.Write(p)
	default:
		n = len(p)
		var out []byte
		if out, unread = t.hider.Pass(&t.run, p); len(out) > 0 {
			if _, err = t.ResponseWriter.Write(out); err != nil {
				n = 0
			}
		}
	}
	if err != nil {
		err = t.lose(err)
	}
	if err == nil {
		n = len(p)
	}
	if unread = t.run.Read(unread); len(unread) > 0 && t.resp != nil && t.call.refusedBy == "" {
		t.resp.WriteRest(&t.run, unread)
	}
	return n, err
}

// lose takes an error of the client's side, if there is one. Where the upstream is to be drained, the
// handlers behind do not get it: they would stop reading.
func (t *tap) lose(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, http.ErrBodyNotAllowed), errors.Is(err, http.ErrContentLength):
		return err // what the handler writes is wrong, and the client is still there
	case t.lost && t.call.drain.stopped():
		t.broken = true
		return err
	}
	if d := t.call.drain; d != nil && t.call.refusedBy == "" && d.left() {
		t.lost = true
		return nil
	}
	t.broken = true
	return err
}

// ReadFrom is not left to the writer underneath: its bytes would pass unseen.
func (t *tap) ReadFrom(r io.Reader) (int64, error) {
	buf := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{t}, r, buf[:])
}

// FlushError flushes what the client may have by now. It also sends a header that was
// not written, as net/http does.
func (t *tap) FlushError() error {
	if t.holding || t.lost {
		return nil
	}
	if t.status == 0 {
		t.WriteHeader(http.StatusOK)
	}
	var err error
	if t.flusher != nil {
		err = t.flusher.FlushError()
	} else {
		err = http.NewResponseController(t.ResponseWriter).Flush()
	}
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return t.lose(err)
}

// refusesToSay tells whether an error is due to usage having been asked for.
func (t *tap) refusesToSay() bool {
	if !t.holding {
		return false
	}
	says := t.held
	if !isPlain(t.heldHeader) {
		plain, err := usage.DecodeBody(t.heldHeader.Get("Content-Encoding"), says, maxHeldError)
		if err != nil {
			return false
		}
		says = plain
	}
	return bytes.Contains(says, []byte("stream_options")) || bytes.Contains(says, []byte("include_usage"))
}

// again forgets the error that was held back.
func (t *tap) again() {
	t.status, t.holding, t.heldHeader, t.held = 0, false, nil, nil
}

// letGo sends the error that was held back.
func (t *tap) letGo() error {
	header, held := t.heldHeader, t.held
	t.holding, t.heldHeader, t.held = false, nil, nil
	h := t.Header()
	trailers := h.Clone()
	maps.DeleteFunc(trailers, func(name string, _ []string) bool {
		_, ok := header[name]
		return ok
	})
	replace(h, header)
	t.start()
	maps.Copy(h, trailers)
	if len(held) == 0 {
		return nil
	}
	_, err := t.pass(held)
	return err
}

// close sends what is still held back, after the response has come to its end. It
// does not matter any more whether the client is there to take it.
func (t *tap) close() {
	if t.holding {
		t.broken = t.letGo() != nil || t.broken
	}
	if t.hider == nil || t.lost {
		return
	}
	if out := t.hider.Flush(nil); len(out) > 0 {
		_, err := t.ResponseWriter.Write(out)
		t.broken = t.broken || err != nil
	}
}

// report closes the reading; finished tells that the handlers did not break off.
//
// A document that is whole is finished although the client has gone, or a handler
// went wrong afterwards: what it reports has been used.
func (t *tap) report(finished bool) usage.Report {
	if t == nil || t.resp == nil {
		return usage.Report{}
	}
	t.resp.Join(&t.run)
	r := t.resp.Close(finished && !t.broken || t.whole)
	t.resp.Release()
	t.resp = nil
	return r
}

// Interface guards
var (
	_ http.ResponseWriter = (*tap)(nil)
	_ io.ReaderFrom       = (*tap)(nil)
)
