package usage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
	"pgregory.net/rapid"
)

// framed is a frame of a WebSocket; one with a key is masked.
func framed(first byte, payload, key string) string {
	b := []byte{first}
	mask := byte(0)
	if key != "" {
		mask = wsMasked
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	b = append(b, key...)
	for i := range len(payload) {
		c := payload[i]
		if key != "" {
			c ^= key[i%4]
		}
		b = append(b, c)
	}
	return string(b)
}

// packing compresses messages as a peer does that refers to earlier ones.
type packing struct {
	out bytes.Buffer
	w   *flate.Writer
}

func (c *packing) message(s string) string {
	if c.w == nil {
		c.w, _ = flate.NewWriter(&c.out, flate.BestCompression)
	}
	c.out.Reset()
	_, _ = c.w.Write([]byte(s))
	_ = c.w.Flush()
	return strings.TrimSuffix(c.out.String(), "\x00\x00\xff\xff")
}

// last compresses a message into a block that is marked as the last one (RFC 7692,
// 7.2.3.4).
func last(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.String() + "\x00"
}

// messages reads a direction by pieces of a length.
func messages(w *webSocket, in string, step int) (got []string) {
	var b strings.Builder
	w.data = func(p []byte) { b.Write(p) }
	w.done = func() {
		got = append(got, b.String())
		b.Reset()
	}
	if w.packer != nil {
		w.packer.sink = w.data
	}
	for len(in) > 0 {
		n := min(step, len(in))
		w.feed([]byte(in[:n]))
		in = in[n:]
	}
	return got
}

func TestWebSocketReadsMessages(t *testing.T) {
	const key = "\x37\xfa\x21\x3d"
	long, longer := strings.Repeat("long ", 60), strings.Repeat("longer ", 20_000)
	var c packing
	tests := []struct {
		name   string
		packed bool
		in     string
		want   []string
		closed bool
		broken bool
	}{
		{name: "nothing"},
		// RFC 6455, section 5.7
		{name: "an unmasked message", in: "\x81\x05Hello", want: []string{"Hello"}},
		{name: "a masked message", in: "\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", want: []string{"Hello"}},
		{name: "fragments", in: "\x01\x03Hel\x80\x02lo", want: []string{"Hello"}},
		{name: "a ping among fragments", in: "\x01\x03Hel" + framed(0x89, "Hello", "") + "\x80\x02lo", want: []string{"Hello"}},
		{name: "a masked pong among masked fragments", in: framed(1, "Hel", key) + framed(0x8a, "", key) + framed(0x80, "lo", key), want: []string{"Hello"}},
		{name: "a binary message", in: framed(0x82, "{}", ""), want: []string{"{}"}},
		{name: "an empty message and an empty fragment", in: framed(0x81, "", "") + framed(1, "", "") + framed(0x80, "x", ""), want: []string{"", "x"}},
		{name: "a length of 16 bits", in: framed(0x81, long, key), want: []string{long}},
		{name: "a length of 64 bits", in: framed(0x81, longer, key) + framed(0x81, longer, ""), want: []string{longer, longer}},
		{name: "a close", in: framed(0x81, "a", "") + framed(0x88, "\x03\xe8bye", ""), want: []string{"a"}, closed: true},
		{name: "a cut", in: framed(0x81, "a", "") + "\x81\x05Hel", want: []string{"a"}},

		// RFC 7692, sections 7.2.3.1 to 7.2.3.4
		{name: "a compressed message", packed: true, in: "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", want: []string{"Hello"}},
		{name: "in fragments", packed: true, in: "\x41\x03\xf2\x48\xcd\x80\x04\xc9\xc9\x07\x00", want: []string{"Hello"}},
		{name: "that refers to the one before", packed: true, in: "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00", want: []string{"Hello", "Hello"}},
		{name: "stored", packed: true, in: "\xc1\x0b\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00", want: []string{"Hello"}},
		{name: "with a last block", packed: true, in: "\xc1\x08\xf3\x48\xcd\xc9\xc9\x07\x00\x00", want: []string{"Hello"}},
		{name: "of two blocks", packed: true, in: "\xc1\x0d\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00", want: []string{"Hello"}},
		{name: "with a last block, and one that refers to it", packed: true, in: framed(0xc1, last(long), "") + "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00", want: []string{long, "Hello"}},
		{name: "a plain one among them", packed: true, in: framed(0x81, "plain", "") + framed(0xc1, c.message("packed"), key), want: []string{"plain", "packed"}},
		{name: "an empty one", packed: true, in: framed(0xc1, "\x00", "") + framed(0xc1, "", "") + framed(0x81, "x", ""), want: []string{"", "", "x"}},
		{name: "broken", packed: true, in: framed(0xc1, "\xff\xff\xff", "") + framed(0x81, "x", ""), broken: true},
		{name: "that cannot be, since it was not agreed upon", in: framed(0xc1, "\x00", ""), broken: true},
		{name: "marked in a fragment", packed: true, in: framed(0x41, "\xf2", "") + framed(0xc0, "\x48", ""), broken: true},

		{name: "a reserved bit", in: framed(0xa1, "x", ""), broken: true},
		{name: "a reserved opcode", in: framed(0x83, "x", ""), broken: true},
		{name: "a fragment of nothing", in: framed(0x80, "x", ""), broken: true},
		{name: "a message within a message", in: framed(0x01, "x", "") + framed(0x81, "y", ""), broken: true},
		{name: "a ping in fragments", in: framed(0x09, "x", ""), broken: true},
		{name: "a long ping", in: framed(0x89, long, ""), broken: true},
		{name: "a length that cannot be", in: "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", broken: true},
	}
	for _, tt := range tests {
		for _, step := range []int{1, 3, 4096, max(1, len(tt.in))} {
			t.Run(fmt.Sprintf("%s by %d", tt.name, step), func(t *testing.T) {
				w := new(webSocket)
				if tt.packed {
					w.packer = new(inflater)
				}
				defer w.close()
				if got := messages(w, tt.in, step); !slices.Equal(got, tt.want) {
					t.Errorf("got %.80q, want %.80q", got, tt.want)
				}
				if w.closed != tt.closed || w.broken != tt.broken {
					t.Errorf("closed %v, broken %v", w.closed, w.broken)
				}
			})
		}
	}
}

func TestWebSocketTellsWhereAFrameEnds(t *testing.T) {
	long := framed(0x82, strings.Repeat("x", 300), "abcd")
	tests := []struct {
		name, before, p string
		n               int
		ends            bool
	}{
		{"before any", "", "\x81\x05Hello", 0, true},
		{"between two", "\x81\x05Hello", "\x81\x05Hello", 0, true},
		{"in the payload", "\x81\x05He", "llo\x81", 3, true},
		{"in the head", "\x81", "\x05Hello\x81", 6, true},
		{"in a longer head", long[:3], long[3:] + long, len(long) - 3, true},
		{"no end in sight", "\x81\x05He", "ll", 2, false},
		{"nothing follows", "\x81\x05He", "", 0, false},
		{"nor does a head", long[:3], long[3:5], 2, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := NewSession(nil, func(*Turn) {})
			s.FromServer([]byte(tt.before))
			if n, ends := s.Between([]byte(tt.p)); n != tt.n || ends != tt.ends {
				t.Errorf("got %d, %v", n, ends)
			}
		})
	}
}

func TestParseExtensions(t *testing.T) {
	tests := []struct {
		in   []string
		want wsCompression
		ok   bool
	}{
		{nil, wsCompression{}, true},
		{[]string{""}, wsCompression{}, true},
		{[]string{"permessage-deflate"}, wsCompression{agreed: true}, true},
		{
			[]string{"Permessage-Deflate; server_no_context_takeover ;client_max_window_bits=15"},
			wsCompression{agreed: true, serverAlone: true},
			true,
		},
		{
			[]string{`permessage-deflate; client_no_context_takeover; server_max_window_bits="10"`},
			wsCompression{agreed: true, clientAlone: true},
			true,
		},
		{[]string{"permessage-deflate; other"}, wsCompression{agreed: true}, false},
		{[]string{"permessage-deflate, permessage-deflate"}, wsCompression{agreed: true}, false},
		{[]string{"permessage-bzip2"}, wsCompression{}, false},
		{[]string{"permessage-deflate", "x-mux"}, wsCompression{agreed: true}, false},
	}
	for _, tt := range tests {
		got, ok := parseExtensions(tt.in)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%q: got %+v, %v", tt.in, got, ok)
		}
	}
}

func TestInflaterBelievesNoBomb(t *testing.T) {
	var c packing
	zeros := strings.Repeat("\x00", 1<<20)
	const flush = "\x00\x00\xff\xff"
	bomb := c.message(zeros) + strings.Repeat(flush+c.message(zeros), 19)
	w := &webSocket{packer: new(inflater)}
	defer w.close()
	messages(w, framed(0xc1, bomb, ""), 1<<20)
	if !w.broken {
		t.Error("20 MiB of zeros were believed")
	}
}

func TestInflaterKeepsNoContextWhereNoneIsTakenOver(t *testing.T) {
	w := &webSocket{packer: &inflater{alone: true}}
	defer w.close()
	// the second message of RFC 7692, 7.2.3.2, refers to the first
	messages(w, "\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00\xc1\x05\xf2\x00\x11\x00\x00", 99)
	if !w.broken {
		t.Error("a message referred to another one")
	}
}

// Whatever the pieces and the fragments, the messages are the same.
func TestWebSocketReadsTheSameFromAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		packed := rapid.Bool().Draw(t, "packed")
		w := new(webSocket)
		if packed {
			w.packer = new(inflater)
		}
		defer w.close()
		var (
			c    packing
			wire strings.Builder
			want []string
		)
		for range rapid.IntRange(0, 6).Draw(t, "messages") {
			text := strings.Repeat(rapid.String().Draw(t, "text"), rapid.IntRange(0, 200).Draw(t, "times"))
			want = append(want, text)
			first := byte(wsText)
			if packed && rapid.Bool().Draw(t, "compressed") {
				first |= wsCompressed
				text = c.message(text)
			}
			for {
				key := rapid.SampledFrom([]string{"", "\x00\x00\x00\x00", "\x12\x34\x56\x78"}).Draw(t, "key")
				n := rapid.IntRange(0, len(text)).Draw(t, "fragment")
				if rapid.Bool().Draw(t, "final") {
					wire.WriteString(framed(first|wsFinal, text, key))
					break
				}
				wire.WriteString(framed(first, text[:n], key))
				if rapid.Bool().Draw(t, "ping") {
					wire.WriteString(framed(wsFinal|wsPing, "ping", key))
				}
				first, text = wsContinuation, text[n:]
			}
		}
		var got []string
		var b strings.Builder
		w.data = func(p []byte) { b.Write(p) }
		w.done = func() {
			got = append(got, b.String())
			b.Reset()
		}
		if packed {
			w.packer.sink = w.data
		}
		for rest := wire.String(); rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			w.feed([]byte(rest[:n]))
			rest = rest[n:]
		}
		if w.broken || !slices.Equal(got, want) {
			t.Errorf("broken %v, got %.200q, want %.200q", w.broken, got, want)
		}
	})
}

func FuzzWebSocket(f *testing.F) {
	var c packing
	f.Add([]byte("\x81\x05Hello\x88\x00"), []byte("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"), uint8(0))
	f.Add([]byte("\x01\x03Hel\x89\x00\x80\x02lo"), []byte("\x82\xfe\x01\x00abcd"), uint8(1))
	f.Add([]byte(framed(0xc1, c.message(realtimeDone), "")+framed(0xc1, c.message(realtimeDone), "")), []byte(framed(0xc1, last(createResponse), "abcd")), uint8(2))
	f.Add([]byte(framed(0x81, realtimeDone, "")), []byte(framed(0x81, createResponse, "abcd")), uint8(3))
	f.Add([]byte("\x81\x7f\x7f\xff\xff\xff\xff\xff\xff\xff"), []byte("\xc1\x01\x06"), uint8(4))
	f.Fuzz(func(t *testing.T, server, client []byte, how uint8) {
		extensions := [][]string{nil, {"permessage-deflate"}, {"permessage-deflate; server_no_context_takeover"}, {"x"}}[how%4]
		read := func(step int) (all Usage, turns int) {
			s := NewSession(extensions, func(turn *Turn) {
				turns++
				all.Add(&turn.Usage)
				if turn.Prompt < 0 || turn.Delivered < 0 {
					t.Errorf("a turn of %+v", turn)
				}
			})
			for from := client; len(from) > 0; {
				n := min(step, len(from))
				s.FromClient(from[:n])
				from = from[n:]
			}
			for from := server; len(from) > 0; {
				n := min(step, len(from))
				if at, ok := s.Between(from[:n]); at < 0 || at > n || !ok && at != n {
					t.Fatalf("the frame ends at %d of %d, %v", at, n, ok)
				}
				s.FromServer(from[:n])
				from = from[n:]
			}
			s.Close()
			s.FromServer(server)
			return all, turns
		}
		whole, turns := read(1 << 30)
		bytewise, again := read(1)
		if whole != bytewise || turns != again {
			t.Errorf("%d turns of %+v at once, %d of %+v by bytes", turns, whole, again, bytewise)
		}
	})
}
