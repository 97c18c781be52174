package usage

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// hidden filters a stream in pieces whose sizes cut decides.
func hidden(stream string, cut func(rest int) int) string {
	var h Hider
	var out []byte
	for stream != "" {
		piece := []byte(stream[:min(max(1, cut(len(stream))), len(stream))])
		stream = stream[len(piece):]
		out = h.Filter(out, piece)
		clear(piece)
	}
	return string(h.Flush(out))
}

func whole(rest int) int { return rest }

func TestHiderTakesOutUsageAlone(t *testing.T) {
	tests := []struct {
		name, event string
		gone        bool
	}{
		{"usage without choices", counts, true},
		{"usage before choices", `{"usage":{"prompt_tokens":1},"id":"x","choices":[]}`, true},
		{"spaced out", `{ "choices" : [ ] , "usage" : { } }`, true},
		{"escaped names", `{"ch\u006fices":[],"us\u0061ge":{}}`, true},
		{"no error", `{"choices":[],"usage":{},"error":null}`, true},
		{"usage is null", `{"choices":[],"usage":null}`, false},
		{"no usage", `{"choices":[],"prompt_filter_results":[]}`, false},
		{"no choices", `{"usage":{}}`, false},
		{"usage beside a choice", perChoice(0, 1), false},
		{"choices are null", `{"choices":null,"usage":{}}`, false},
		{"error", `{"choices":[],"usage":{},"error":{"message":"x"}}`, false},
		{"usage within", `{"choices":[],"x":{"usage":{}}}`, false},
		{"usage in a string", `{"choices":[],"x":"\"usage\":{}"}`, false},
		{"array", `[{"choices":[],"usage":{}}]`, false},
		{"two documents", `{"choices":[],"usage":{}}{"choices":[],"usage":{}}`, false},
		{"broken", `{"choices":[],"usage":{}}x`, false},
		{"cut", `{"choices":[],"usage":{}`, false},
		{"done mark", `[DONE]`, false},
		{"text", `hello`, false},
		{"nothing", ``, false},
		{"long", `{"choices":[],"usage":{},"x":"` + strings.Repeat("x", maxHeld) + `"}`, false},
	}
	for _, test := range tests {
		for _, frame := range []string{
			"data: %\n\n", "data:%\n\n", "data: %\r\n\r\n", "data: %\r\r", "id: 1\nevent: x\ndata: %\n: c\nretry: 1\n\n", "data:\ndata: %\ndata: \n\n",
		} {
			t.Run(test.name, func(t *testing.T) {
				event := strings.Replace(frame, "%", test.event, 1)
				before, after := events(word1)+": before\n", events(finish, done)
				want := before + event + after
				if test.gone {
					want = before + after
				}
				for _, size := range []int{1, 2, 3, 7, 1 << 30} {
					if got := hidden(before+event+after, func(int) int { return size }); got != want {
						t.Fatalf("in pieces of %d\ngot  %q\nwant %q", size, got, want)
					}
				}
			})
		}
	}
}

func TestHiderTakesOutAnEventWithoutAnEnd(t *testing.T) {
	for _, end := range []string{"", "\n", "\r", "\r\n"} {
		if got := hidden(events(word1)+"data: "+counts+end, whole); got != events(word1) {
			t.Errorf("with %q: got %q", end, got)
		}
	}
}

func TestHiderKeepsAFieldUnknown(t *testing.T) {
	stream := "foo: bar\ndata: " + counts + "\n\n"
	if got := hidden(stream, whole); got != stream {
		t.Errorf("got %q", got)
	}
}

// TestHiderLetsPassAtOnce wants each byte out as soon as it is clear that it stays.
func TestHiderLetsPassAtOnce(t *testing.T) {
	tests := []struct {
		name, stream string
		held         int
	}{
		{"behind an event", events(word1), 0},
		{"behind the first choice", `data: {"id":"x","choices":[{`, 0},
		{"before it", `data: {"id":"x","choices":[`, len(`data: {"id":"x","choices":[`)},
		{"JSON", `{"choices":[],"usage":{`, 0},
		{"comment", ": keep", 0},
		{"field unknown", "foobar: ", 0},
		{"text", "data: hello", 0},
		{"done mark", "data: [DONE]", 0},
		{"long", "data: {\"x\":\"" + strings.Repeat("x", maxHeld), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 1 << 30} {
				var h Hider
				var out []byte
				for rest := []byte(test.stream); len(rest) > 0; {
					n := min(size, len(rest))
					out = h.Filter(out, rest[:n])
					rest = rest[n:]
				}
				if got := len(test.stream) - len(out); got != test.held {
					t.Errorf("in pieces of %d: got %d bytes held, want %d", size, got, test.held)
				}
				if got := string(h.Flush(out)); got != test.stream {
					t.Errorf("in pieces of %d: got %q at the end", size, got)
				}
			}
		})
	}
}

func TestHiderDoesNotAllocate(t *testing.T) {
	stream := append(openaiEvents(50), events(counts)...)
	var h Hider
	out := h.Filter(nil, stream)
	if n := testing.AllocsPerRun(20, func() { out = h.Filter(out[:0], stream) }); n != 0 {
		t.Errorf("got %v allocations for 51 events, want 0", n)
	}
}

// TestHiderChangesNothingElse builds streams of events of which some are to be taken
// out, and cuts them anywhere.
func TestHiderChangesNothingElse(t *testing.T) {
	type part struct {
		text string
		gone bool
	}
	var parts []part
	for _, end := range []string{"\n", "\r\n", "\r"} {
		for _, data := range []string{word1, finish, perChoice(1, 2), `{"choices":[],"usage":null}`, done, "x", ""} {
			parts = append(parts, part{"data: " + data + end + end, false})
		}
		parts = append(parts, part{": c" + end + end, false}, part{"event: ping" + end + end, false},
			part{"data: " + counts + end + end, true}, part{"id: 3" + end + "data:" + counts + end + end, true})
	}
	join := func(all []part, gone bool) string {
		var b strings.Builder
		for _, p := range all {
			if !p.gone || gone {
				b.WriteString(p.text)
			}
		}
		return b.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.SampledFrom(parts), 0, 12).Draw(t, "parts")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 60), 1, 20).Draw(t, "sizes")
		i := 0
		got := hidden(join(all, true), func(int) int {
			i++
			return sizes[i%len(sizes)]
		})
		if want := join(all, false); got != want {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

func FuzzHide(f *testing.F) {
	for _, s := range samples(f) {
		if len(s.body) < 4096 {
			f.Add(s.body, uint8(3))
		}
	}
	f.Add([]byte("\xEF\xBB\xBFid\rdata: {\"choices\":[]\r\ndata:,\"usage\":{}}\r\r\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, body []byte, size uint8) {
		stream := string(body)
		want := hidden(stream, whole)
		if got := hidden(stream, func(int) int { return int(size) }); got != want {
			t.Errorf("in pieces %q\nwhole     %q", got, want)
		}
		// What is left is the stream with nothing but events of usage missing.
		if want != stream && (!strings.Contains(stream, "data") || len(want) >= len(stream)) {
			t.Errorf("got %q from %q", want, stream)
		}
		rest := want
		for i := 0; i < len(stream) && rest != ""; i++ {
			if stream[i] == rest[0] {
				rest = rest[1:]
			}
		}
		if rest != "" {
			t.Errorf("got %q, which is not in %q", want, stream)
		}
	})
}
