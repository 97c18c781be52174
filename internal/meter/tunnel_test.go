package meter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

const (
	realtimePath = "/v1/realtime?model=gpt-realtime"

	ask      = `{"type":"response.create"}`
	began    = `{"type":"response.created","response":{"object":"realtime.response","id":"r","status":"in_progress","usage":null}}`
	words    = `{"type":"response.output_text.delta","response_id":"r","delta":"Hello there."}`
	turnDone = `{"type":"response.done","response":{"object":"realtime.response","id":"r","status":"completed","usage":` +
		`{"total_tokens":30,"input_tokens":20,"output_tokens":10}}}`
)

// ws is a text message in one frame; masked is what a client sends.
func ws(text string, masked bool) []byte {
	b := []byte{0x81}
	bit := byte(0)
	if masked {
		bit = 0x80
	}
	if len(text) < 126 {
		b = append(b, bit|byte(len(text)))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, bit|126), uint16(len(text)))
	}
	if masked {
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, text...)
}

// progressive is the entry of a limiter that is told of each turn. It is used up by so
// many tokens.
type progressive struct {
	entry
	most int64

	mu    sync.Mutex
	steps []int64 // tokens in all, at each step
	step  chan struct{}
}

func (p *progressive) Progress(o *Outcome) bool {
	used := o.All()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, used.Total())
	p.step <- struct{}{}
	return p.most > 0 && used.Total() >= p.most
}

// socket is a Realtime call in the middle of its session.
type socket struct {
	t       *testing.T
	tunnel  net.Conn // what reverse_proxy has
	client  net.Conn // the other end
	got     *bufio.Reader
	limiter *limiter
	entry   *progressive
	end     func() // ends the handler behind, and waits for the call to end
}

// open begins a session of a call under a limiter that is used up by most tokens.
func open(t *testing.T, most int64, extensions, ahead string) *socket {
	t.Helper()
	m := New()
	s := &socket{t: t, limiter: newLimiter(m, "l")}
	s.entry = &progressive{entry: entry{s.limiter}, most: most, step: make(chan struct{}, 1000)}
	near, far := net.Pipe()
	s.client, s.got = far, bufio.NewReader(far)
	hijacked, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})

	next := handler(func(w http.ResponseWriter, _ *http.Request) error {
		w.Header()["Sec-WebSocket-Extensions"] = []string{extensions} // as reverse_proxy spells it
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return err
		}
		s.tunnel = conn
		close(hijacked)
		<-end
		return conn.Close()
	})
	go func() {
		defer close(done)
		r := realtimeRequest()
		c := m.Call(r)
		if err := c.Inspect(r); err != nil {
			t.Error(err)
		}
		c.Add(s.entry)
		if err := c.Serve(&hijackable{httptest.NewRecorder(), near, ahead}, r, next); err != nil {
			t.Error(err)
		}
	}()
	receive(t, hijacked)
	s.end = sync.OnceFunc(func() {
		far.Close()
		close(end)
		receive(t, done)
		nothingHeld(t, m)
	})
	t.Cleanup(s.end)
	return s
}

func realtimeRequest() *http.Request {
	return newRequest(http.MethodGet, realtimePath, "", "Upgrade", "websocket", "Connection", "Upgrade")
}

// hijackable is a response writer on a connection of which some bytes were read ahead.
type hijackable struct {
	*httptest.ResponseRecorder
	conn  net.Conn
	ahead string
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	r := bufio.NewReader(io.MultiReader(strings.NewReader(h.ahead), h.conn))
	if _, err := r.Peek(len(h.ahead)); err != nil {
		return nil, nil, err
	}
	return h.conn, bufio.NewReadWriter(r, bufio.NewWriter(h.conn)), nil
}

// provider sends to the client, which must get it.
func (s *socket) provider(p []byte) {
	s.t.Helper()
	s.carry(s.tunnel, s.got, p, p)
}

// user sends to the provider, which must get it.
func (s *socket) user(p []byte) {
	s.t.Helper()
	s.carry(s.client, s.tunnel, p, p)
}

// carry writes to one end of a connection and wants to read that from the other.
func (s *socket) carry(from io.Writer, to io.Reader, p, want []byte) {
	s.t.Helper()
	sent := make(chan error, 1)
	go func() {
		n, err := from.Write(p)
		if err == nil && n != len(p) {
			err = io.ErrShortWrite
		}
		sent <- err
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(to, got); err != nil {
		s.t.Fatalf("got %q, %v", got, err)
	}
	if !bytes.Equal(got, want) {
		s.t.Fatalf("got %q, want %q", got, want)
	}
	if err := receive(s.t, sent); err != nil {
		s.t.Fatal(err)
	}
}
