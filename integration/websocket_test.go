package integration

import (
	"bufio"
	"bytes"
	"compress/flate"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// peer is one end of a WebSocket. It writes whole messages and reads raw frames.
type peer struct {
	net.Conn
	in     *bufio.Reader
	client bool // which masks
	packed *flate.Writer
	buf    bytes.Buffer

	wrote, read bytes.Buffer // all bytes
}

// message sends a text message, in two fragments with a ping between them.
func (p *peer) message(text string) error {
	first := byte(0x01)
	if p.packed != nil {
		first |= 0x40
		p.buf.Reset()
		if _, err := io.WriteString(p.packed, text); err != nil {
			return err
		}
		if err := p.packed.Flush(); err != nil {
			return err
		}
		text = strings.TrimSuffix(p.buf.String(), "\x00\x00\xff\xff")
	}
	half := len(text) / 2
	for _, f := range []struct {
		head    byte
		payload string
	}{{first, text[:half]}, {0x89, "ping"}, {0x80, text[half:]}} {
		if err := p.frame(f.head, f.payload); err != nil {
			return err
		}
	}
	return nil
}

// frame sends a frame.
func (p *peer) frame(head byte, payload string) error {
	b := []byte{head, byte(len(payload))}
	if len(payload) > 125 {
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(len(payload)))
	}
	if p.client {
		b[1] |= 0x80
		key := []byte{0x11, 0x22, 0x33, 0x44}
		b = append(b, key...)
		for i := range len(payload) {
			b = append(b, payload[i]^key[i%4])
		}
	} else {
		b = append(b, payload...)
	}
	p.wrote.Write(b)
	_, err := p.Write(b)
	return err
}

// next reads a frame and returns its opcode and its payload, as it came.
func (p *peer) next() (opcode byte, payload []byte, err error) {
	in := io.TeeReader(p.in, &p.read)
	head := make([]byte, 2)
	if _, err := io.ReadFull(in, head); err != nil {
		return 0, nil, err
	}
	n := int(head[1] & 0x7f)
	if n == 126 {
		long := make([]byte, 2)
		if _, err := io.ReadFull(in, long); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(long))
	}
	if head[1]&0x80 != 0 {
		n += 4 // the key
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(in, payload)
	return head[0] & 0x0f, payload, err
}

// messages reads so many messages.
func (p *peer) messages(n int) error {
	for n > 0 {
		opcode, _, err := p.next()
		if err != nil {
			return err
		}
		if opcode == 0 { // the second fragment
			n--
		}
		if opcode == 8 {
			return errors.New("closed")
		}
	}
	return nil
}

// realtime is a provider of sessions. The script has its end of each.
type realtime struct {
	*upstream
	peers chan *peer
}

func newRealtime(t *testing.T, script func(*peer) error) *realtime {
	t.Helper()
	rt := &realtime{peers: make(chan *peer, 10)}
	rt.upstream = newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			sixtyTokens(w, r)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		p := &peer{Conn: conn, in: rw.Reader}
		extension := ""
		if strings.Contains(r.Header.Get("Sec-WebSocket-Extensions"), "permessage-deflate") {
			extension = "Sec-WebSocket-Extensions: permessage-deflate\r\n"
			p.packed, _ = flate.NewWriter(&p.buf, flate.BestCompression)
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n",
			base64.StdEncoding.EncodeToString(sum[:]), extension)
		if err := script(p); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Logf("the provider's script ends with %v", err)
		}
		rt.peers <- p
	})
	return rt
}

// dial opens a WebSocket through the gateway.
func (g *gateway) dial(key, path string, header ...string) (*peer, *http.Response) {
	g.t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil { // a test that hangs fails
		g.t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, "http://"+g.addr+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	for i, pairs := 0, append([]string{
		"Authorization", "Bearer " + key, "Connection", "Upgrade", "Upgrade", "websocket",
		"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
	}, header...); i < len(pairs); i += 2 {
		req.Header.Set(pairs[i], pairs[i+1])
	}
	if err := req.Write(conn); err != nil {
		g.t.Fatal(err)
	}
	p := &peer{Conn: conn, in: bufio.NewReader(conn), client: true}
	resp, err := http.ReadResponse(p.in, req)
	if err != nil {
		g.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && resp.Header.Get("Sec-WebSocket-Extensions") != "" {
		p.packed, _ = flate.NewWriter(&p.buf, flate.BestCompression)
	}
	return p, resp
}

// session opens a WebSocket that is admitted.
func (g *gateway) session(path string, header ...string) *peer {
	g.t.Helper()
	p, resp := g.dial(keyA, path, header...)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(resp.Body)
		g.t.Fatalf("%d: %s", resp.StatusCode, body)
	}
	return p
}
