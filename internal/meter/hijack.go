package meter

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// Hijack implements http.Hijacker. The connection of a Realtime call is read while it
// is used; that of any other call goes to whoever takes it.
func (t *tap) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil || t.resp == nil || t.call.Endpoint.Class != usage.Realtime || t.status != http.StatusSwitchingProtocols {
		return conn, rw, err
	}
	t.tunnel = newTunnel(conn, &charges{call: t.call}, extensions(t.Header()))
	// what the client sent with its request is passed on from the buffer
	if ahead, err := rw.Reader.Peek(rw.Reader.Buffered()); err == nil {
		t.tunnel.session.FromClient(ahead)
	}
	return t.tunnel, rw, nil
}

// extensions are those of an answer to a handshake. reverse_proxy spells the field as
// RFC 6455 does, which is not how http.Header does.
func extensions(h http.Header) (all []string) {
	for name, values := range h {
		if strings.EqualFold(name, "Sec-WebSocket-Extensions") {
			all = append(all, values...)
		}
	}
	return all
}

const (
	// closePatience is how long a client may take to close a connection once it is
	// told that it ends.
	closePatience = 2 * time.Second
	// closeFrame is an unmasked close frame: 1008, the code for a policy that was
	// violated (RFC 6455, 7.4.1), and a reason.
	closeFrame = "\x88\x15\x03\xf0" + "rate_limit_exceeded"
)

// errCut ends a tunnel whose client may not go on.
var errCut = errors.New("limit reached")

// tunnel is the client's connection of a Realtime call. What is written to it comes from
// the provider, what is read from it goes there; both pass unchanged, first, and are read
// then.
type tunnel struct {
	net.Conn
	session  *usage.Session
	charges  *charges
	patience time.Duration
	cutting  atomic.Bool // nothing more passes but the rest of a frame
	over     atomic.Bool // the client is not read any more

	mu    sync.Mutex // of what goes to the client
	cut   bool       // the client has been told
	since time.Time  // when it was
}

// newTunnel returns the tunnel on a connection with the extensions that were agreed upon.
func newTunnel(conn net.Conn, c *charges, extensions []string) *tunnel {
	t := &tunnel{Conn: conn, charges: c, patience: closePatience}
	t.session = usage.NewSession(extensions, c.turn)
	c.exhausted = t.shut
	return t
}

// Write passes on what the provider sends. What the client did not take is read all the
// same: it has been used.
func (t *tunnel) Write(p []byte) (int, error) {
	// reverse_proxy writes from two goroutines when it shuts down
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		// nothing may follow a close frame, but an answer under way is still to be counted
		t.session.FromServer(p)
		if t.over.Load() || time.Since(t.since) > t.patience {
			return 0, errCut
		}
		return len(p), nil
	}
	if !t.cutting.Load() {
		n, err := t.Conn.Write(p)
		t.session.FromServer(p)
		return n, err
	}
	n, whole := t.session.Between(p)
	_, err := t.Conn.Write(p[:n])
	t.session.FromServer(p)
	if err != nil {
		return 0, err
	}
	if whole {
		return len(p), t.goodbye()
	}
	return len(p), nil
}

// Read returns what the client sends next. Once the tunnel is to end, that reaches nobody
// any more.
func (t *tunnel) Read(p []byte) (int, error) {
	for {
		n, err := t.Conn.Read(p)
		t.session.FromClient(p[:n])
		if !t.cutting.Load() {
			return n, err
		}
		if err != nil || t.session.ClientClosed() {
			t.over.Store(true)
			return 0, errCut
		}
	}
}

// CloseWrite passes on that the provider sends no more.
func (t *tunnel) CloseWrite() error {
	if c, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// shut ends the tunnel, with a close frame behind what the client has got. A client
// that does not close, and a provider that stops in the middle of a frame, have a moment.
func (t *tunnel) shut() {
	if t.cutting.Swap(true) {
		return
	}
	t.session.Leave()
	// a client that takes nothing would otherwise keep the lock
	_ = t.SetDeadline(time.Now().Add(t.patience)) // it fails if the connection is closed
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, whole := t.session.Between(nil); whole && !t.cut {
		_ = t.goodbye() // the client may have gone
	}
}

// goodbye tells the client why the tunnel ends. The lock must be held.
func (t *tunnel) goodbye() error {
	t.cut, t.since = true, time.Now()
	_, err := t.Conn.Write([]byte(closeFrame))
	return err
}

// Interface guards
var (
	_ http.Hijacker = (*tap)(nil)
	_ net.Conn      = (*tunnel)(nil)
)
