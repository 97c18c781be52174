package usage

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// eventsOf reads a stream in pieces of the given size and returns the events in a
// readable form.
func eventsOf(stream string, size int) []string {
	var r sseReader
	var got []string
	var data strings.Builder
	for stream != "" {
		piece := []byte(stream[:min(size, len(stream))])
		stream = stream[len(piece):]
		for len(piece) > 0 {
			token, n, d := r.next(piece)
			piece = piece[n:]
			switch token {
			case sseData:
				data.Write(d)
			case sseEvent:
				if r.data || r.eventLen > 0 {
					got = append(got, fmt.Sprintf("%s|%s|%v", r.event[:r.eventLen], data.String(), r.isDone()))
				}
				data.Reset()
				r.nextEvent()
			}
		}
	}
	return got
}

func TestEventsAreReadAsTheStandardSays(t *testing.T) {
	long := strings.Repeat("x", 3*lineWindow)
	tests := []struct {
		name, stream string
		want         []string
	}{
		{"one event", "data: a\n\n", []string{"|a|false"}},
		{"no space", "data:a\n\n", []string{"|a|false"}},
		{"one space of two", "data:  a\n\n", []string{"| a|false"}},
		{"several lines", "data: a\ndata: b\ndata:\ndata\n\n", []string{"|a\nb\n\n|false"}},
		{"name", "event: error\ndata: a\n\n", []string{"error|a|false"}},
		{"the last name counts", "event: error\nevent:x\ndata: a\n\n", []string{"x|a|false"}},
		{"a long name is cut", "event: message_start\ndata: a\n\n", []string{"message_|a|false"}},
		{"other fields", "id: 1\nretry: 5\ndatum: x\nda: x\ndatas\ndata: a\n\n", []string{"|a|false"}},
		{"comments", ": x\n:\ndata: a\n: data: b\n\n", []string{"|a|false"}},
		{"CRLF", "event: x\r\ndata: a\r\ndata: b\r\n\r\n", []string{"x|a\nb|false"}},
		{"CR", "event: x\rdata: a\rdata: b\r\r", []string{"x|a\nb|false"}},
		{"CR and LF", "data: a\r\n\ndata: b\n\r", []string{"|a|false", "|b|false"}},
		{"byte order mark", "\xEF\xBB\xBFdata: a\n\ndata: \xEF\xBB\xBF\n\n", []string{"|a|false", "|\xEF\xBB\xBF|false"}},
		{
			"done mark", "data: [DONE]\n\ndata:[DONE]\n\ndata: [DONE\n\ndata: [D]ONE]\n\n",
			[]string{"|[DONE]|true", "|[DONE]|true", "|[DONE|false", "|[D]ONE]|false"},
		},
		{"long lines", "data: " + long + "\r\n: " + long + "\nfoo: " + long + "\n\r\n", []string{"|" + long + "|false"}},
		{"blank lines alone", "\n\r\r\n\n", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 2, 5, 1 << 20} {
				if got := eventsOf(test.stream, size); !reflect.DeepEqual(got, test.want) {
					t.Errorf("in pieces of %d\ngot  %q\nwant %q", size, got, test.want)
				}
			}
		})
	}
}

// TestLineEndsAreAlike writes the same events with each kind of line end.
func TestLineEndsAreAlike(t *testing.T) {
	line := rapid.SampledFrom([]string{"data: a", "data:b", "data", "event: e", ": c", "id: 1", "x", "", ""})
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(line, 0, 20).Draw(t, "lines")
		size := rapid.IntRange(1, 30).Draw(t, "size")
		want := eventsOf(strings.Join(lines, "\n")+"\n", 1<<20)
		for _, end := range []string{"\n", "\r\n", "\r"} {
			if got := eventsOf(strings.Join(lines, end)+end, size); !reflect.DeepEqual(got, want) {
				t.Fatalf("with %q: got %q, want %q", end, got, want)
			}
		}
	})
}
