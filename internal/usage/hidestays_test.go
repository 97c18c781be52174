package usage

import (
	"bytes"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestHiderLetsWholePiecesPassAsTheyAre(t *testing.T) {
	tests := []struct {
		name, piece string
		want        bool
	}{
		{"an event", events(word1), true},
		{"several", events(word1, finish), true},
		{"usage is null", events(`{"choices":[{"delta":{}}],"usage":null}`), true},
		{"the word as a value", events(`{"type":"usage","choices":[{}]}`), true},
		{"the word in a text", events(`{"choices":[{"text":"\"usage\":{"}]}`), true},
		{"a text with escapes", events(`{"choices":[{"text":"\n\"\u4f60"}]}`), true},
		{"CRLF", "data: " + word1 + "\r\n\r\n", true},
		{"a comment", ": keep\n\n", true},
		{"the done mark", events(done), true},
		{"nothing", "", false},
		{"usage", events(counts), false},
		{"usage after others", events(word1, finish, counts, done), false},
		{"usage that is spaced out", events("{\"usage\" \t: {},\"choices\":[]}"), false},
		{"usage on the next line", "data: {\"usage\"\ndata: :{},\"choices\":[]}\n\n", false},
		{"its object on the next line", "data: {\"usage\":\ndata: {},\"choices\":[]}\n\n", false},
		{"an escaped name", events(`{"us\u0061ge":{},"choices":[]}`), false},
		{"a part of an event", "data: " + word1 + "\n", false},
		{"an event and a part", events(word1) + "data: {", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var h Hider
			h.Filter(nil, []byte(events(word1)))
			if got := h.Passes([]byte(test.piece)); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
			var first Hider
			if got := first.Passes([]byte(test.piece)); got != test.want {
				t.Errorf("got %t at the beginning of a stream, want %t", got, test.want)
			}
		})
	}
}

func TestHiderReadsAByteOrderMark(t *testing.T) {
	var h Hider
	if h.Passes([]byte(byteOrderMark + events(word1))) {
		t.Error("a piece with a byte order mark passes")
	}
	if out := h.Filter(nil, []byte(byteOrderMark)); h.Passes([]byte(events(counts))) || string(out) != byteOrderMark {
		t.Errorf("got %q, or usage behind it passes", out)
	}
}

func TestHiderLooksAtWhatGoesOnWithAnEvent(t *testing.T) {
	for _, begun := range []string{"data: {", "data: " + counts + "\n", "data: " + counts, "event: x\n", "x", "data: x\n\r"} {
		var h Hider
		h.Filter(nil, []byte(events(word1)+begun))
		if h.Passes([]byte("\n\n" + events(word1))) {
			t.Errorf("after %q a piece passes that is part of an event", begun)
		}
	}
}

// TestHiderPassesWhatItWouldLetPass compares pieces that pass as they are with the same
// stream byte by byte, which is never taken to be whole.
func TestHiderPassesWhatItWouldLetPass(t *testing.T) {
	part := rapid.SampledFrom([]string{
		"data: " + counts, "data: " + word1, "data: {\"choices\":[],", "\"usage\"", ":", "{}", "}", " ", "data:", "\n", "\r",
		"\n\n", "\r\n", "\r\n\r\n", "\n\n", "\n\n", ": c", "event: x", "id", "us\\u0061ge", `"`, `\`, "null", "\xEF\xBB\xBF", "[", "]", ",",
		"foo: bar", "data: " + done, "x",
	})
	rapid.Check(t, func(t *rapid.T) {
		stream := strings.Join(rapid.SliceOfN(part, 0, 30).Draw(t, "parts"), "")
		want := hidden(stream, func(int) int { return 1 })
		var h Hider
		var got bytes.Buffer
		for rest := []byte(stream); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "size")
			if i := bytes.Index(rest[:n], []byte("\n\n")); i >= 0 && rapid.Bool().Draw(t, "whole") {
				n = i + 2
			}
			p := bytes.Clone(rest[:n])
			if h.Passes(p) {
				got.Write(p)
			} else {
				got.Write(h.Filter(nil, p))
			}
			clear(p)
			rest = rest[n:]
		}
		got.Write(h.Flush(nil))
		if got.String() != want {
			t.Fatalf("%q\ngot  %q\nwant %q", stream, got.String(), want)
		}
	})
}

// TestHiderAndRunShareTheWork has a Hider and the Run of a Response read a stream event by
// event, and in other pieces, and compares what passes and what is read with what a Hider and a
// Response make of it by themselves.
func TestHiderAndRunShareTheWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := drawShaped(t, rapid.SampledFrom(append([]string{events(counts), events(word1)}, shapedStreams...)))
		var pieces []string
		for _, event := range stream {
			if rapid.IntRange(0, 5).Draw(t, "cut") > 0 || len(event) < 2 {
				pieces = append(pieces, event)
				continue
			}
			n := rapid.IntRange(1, len(event)-1).Draw(t, "at")
			pieces = append(pieces, event[:n], event[n:])
		}
		comparePass(t, pieces)
	})
}

// comparePass compares what a Hider and a Run make of the pieces of a stream with what a Hider
// and a Response make of them by themselves.
func comparePass(t rapid.TB, pieces []string) {
	t.Helper()
	var h, alone Hider
	var run Run
	both, one := NewResponse(), NewResponse()
	defer both.Release()
	defer one.Release()
	both.Start(http.StatusOK, streamHeader)
	one.Start(http.StatusOK, streamHeader)
	var got, want []byte
	for _, piece := range pieces {
		p := []byte(piece)
		want = alone.Filter(want, p)
		one.Write(p)
		out, unread := h.Pass(&run, p)
		got = append(got, out...)
		if len(unread) > 0 {
			both.WriteRest(&run, unread)
		}
		clear(p)
		if !bytes.Equal(got, want) {
			t.Fatalf("%q\nafter %q passed %q\nwant %q", pieces, piece, got, want)
		}
	}
	if got, want = h.Flush(got), alone.Flush(want); !bytes.Equal(got, want) {
		t.Fatalf("%q\npassed %q\nwant   %q", pieces, got, want)
	}
	both.Join(&run)
	if got, want := both.Close(true), one.Close(true); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q\nread %+v\nwant %+v", pieces, got, want)
	}
}
