package usage

import (
	"bytes"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// mixedStreams are bodies that leave much behind in a scanner: values, text, members that
// come twice, arrays that stay open, errors of syntax and ends in the middle.
func mixedStreams() [][]byte {
	return [][]byte{
		openaiEvents(5),
		append(openaiEvents(3), events(counts, done)...),
		append(anthropicEvents(4), "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":4}}\n\n"...),
		responsesEvents(4),
		[]byte(events(word1, perChoice(0, 3), perChoice(1, 2), finish)),
		[]byte("data: {\"model\":\"a\",\"usage\":{\"prompt_tokens\":1},\"model\":\"b\",\"usage\":null,\"choices\":[{\"text\":\"t\"}]}\n\n"),
		[]byte("data: [{\"model\":\"x\",\"choices\":[{\"text\":\"a\\\n\ndata: {\"x\":}\n\n" + events(word1)),
		[]byte("{\"model\":\"l\",\"response\":\"t\",\"done\":false}\n{\"done\":true,\"eval_count\":3,\"prompt_eval_count\":4}\n"),
		[]byte("[{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"g\"}]}}]},{\"usageMetadata\":{\"promptTokenCount\":7}}"),
		[]byte(`{"choices":[` + strings.Repeat(`{"text":"x","delta":{"content":"y"}},`, maxTexts) + `{}],"usage":{"prompt_tokens":2}}`),
		chatBody(300),
	}
}

// TestStreamsDoNotMix reads several streams in turn, a piece of each, as one goroutine
// after another borrows the same workbench.
func TestStreamsDoNotMix(t *testing.T) {
	bodies := mixedStreams()
	rapid.Check(t, func(t *rapid.T) {
		chosen := rapid.SliceOfN(rapid.SampledFrom(bodies), 1, 6).Draw(t, "bodies")
		var readers []*Response
		var rest [][]byte
		for _, body := range chosen {
			r := NewResponse()
			r.Start(http.StatusOK, http.Header{})
			readers, rest = append(readers, r), append(rest, body)
		}
		for slices.ContainsFunc(rest, func(p []byte) bool { return len(p) > 0 }) {
			i := rapid.IntRange(0, len(rest)-1).Draw(t, "stream")
			n := min(len(rest[i]), rapid.IntRange(1, 200).Draw(t, "size"))
			piece := bytes.Clone(rest[i][:n])
			readers[i].Write(piece)
			clear(piece)
			rest[i] = rest[i][n:]
		}
		for i, r := range readers {
			want := readAnswer(nil, http.Header{}, http.StatusOK, chosen[i], true, func(rest int) int { return rest })
			if got := r.Close(true); !reflect.DeepEqual(got, want) {
				t.Fatalf("%q\namong others %+v\nalone        %+v", chosen[i], got, want)
			}
			r.Release()
		}
	})
}

// TestStreamsDoNotMixAcrossGoroutines is the same with goroutines that share workbenches.
func TestStreamsDoNotMixAcrossGoroutines(t *testing.T) {
	var work sync.WaitGroup
	for i, body := range mixedStreams() {
		want := readAnswer(nil, http.Header{}, http.StatusOK, body, true, func(rest int) int { return rest })
		work.Go(func() {
			for round := range 50 {
				size := 1 + (i+round*7)%97
				got := readAnswer(nil, http.Header{}, http.StatusOK, body, true, func(int) int { return size })
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%q in pieces of %d\ngot  %+v\nwant %+v", body, size, got, want)
					return
				}
			}
		})
	}
	work.Wait()
}

// TestWorkbenchIsCleanBetweenDocuments wants nothing left of a document but the memory of
// how it began.
func TestWorkbenchIsCleanBetweenDocuments(t *testing.T) {
	bodies := mixedStreams()
	rapid.Check(t, func(t *rapid.T) {
		r := NewResponse()
		defer r.Release()
		r.Start(http.StatusOK, http.Header{})
		body := rapid.SampledFrom(bodies).Draw(t, "body")
		size := rapid.IntRange(1, len(body)).Draw(t, "size")
		for rest := body; len(rest) > 0; {
			n := min(size, len(rest))
			r.Write(rest[:n])
			rest = rest[n:]
		}
		b := r.bench
		if b == nil {
			r.borrow()
			b = r.bench
		}
		b.scan.end()
		d := &b.scan.doc
		if len(d.values)+len(d.kept)+len(d.texts) > 0 || d.dropped ||
			slices.ContainsFunc(d.last, func(i int32) bool { return i != 0 }) ||
			slices.ContainsFunc(d.text, func(n int64) bool { return n != 0 }) ||
			slices.ContainsFunc(d.once[:], func(n uint64) bool { return n != 0 }) {
			t.Fatalf("after %q: got %+v", body, d)
		}
	})
}

// TestStreamHoldsNoWorkbenchBetweenEvents keeps what a slow stream costs small.
func TestStreamHoldsNoWorkbenchBetweenEvents(t *testing.T) {
	r := NewResponse()
	defer r.Release()
	r.Start(http.StatusOK, streamHeader)
	for _, p := range bytes.SplitAfter(openaiEvents(3), []byte("\n\n")) {
		r.Write(p)
		if r.bench != nil {
			t.Fatalf("holds one after %q", p)
		}
	}
	r.Write([]byte("data: {"))
	if r.bench == nil {
		t.Error("holds none within an event")
	}
}
