package usage

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// strByByte is what [reqScanner.str] does, a byte at a time: where a string ends that begins
// at 0, and how long it is when decoded.
func strByByte(b []byte) (end, size int, ok bool) {
	for i := 1; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			return i + 1, size, true
		case c < 0x20:
			return i, 0, false
		case c != '\\':
			i++
			size++
		case i+1 < len(b) && strings.IndexByte(`"\/bfnrt`, b[i+1]) >= 0:
			i += 2
			size++
		default:
			r, n := reqRune(b[i:])
			if n == 0 {
				return i, 0, false
			}
			i += n
			size += len(string(r))
		}
	}
	return len(b), 0, false
}

// jsonText is the inside of a string: runs of any length with escapes between them, and
// seldom what no string may have.
func jsonText(t *rapid.T) string {
	run := rapid.OneOf(
		rapid.StringMatching(`[a-z !#\[\]é€😀]{0,40}`),
		rapid.Map(rapid.IntRange(0, 5000), func(n int) string { return strings.Repeat("x", n) }),
	)
	between := rapid.SampledFrom([]string{
		`\"`, `\\`, `\n`, `\/`, `\u00e9`, `\u20ac`, `\ud83d\ude00`, `\ud83d`, `#`, "\x7f", "\x80", "\xff", `"`, "\n", `\x`, `\u12`, "\x00", "\x1f",
	})
	var b strings.Builder
	for range rapid.IntRange(0, 8).Draw(t, "runs") {
		b.WriteString(run.Draw(t, "run"))
		if rapid.IntRange(0, 9).Draw(t, "escape") > 0 {
			b.WriteString(between.Draw(t, "between"))
		}
	}
	return b.String()
}

func TestStringsOfRequestsAreReadAsByteByByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := []byte(`"` + jsonText(t) + rapid.SampledFrom([]string{`"`, `"}`, ``}).Draw(t, "end"))
		s := reqScanner{b: b, r: &Request{}}
		raw, size, ok := s.str()
		end, wantSize, wantOK := strByByte(b)
		if ok != wantOK || ok && (s.i != end || size != wantSize) { // of two faults, either is told
			t.Fatalf("%q: ends at %d with %d bytes, %t; want %d with %d, %t", b, s.i, size, ok, end, wantSize, wantOK)
		}
		if ok && !bytes.Equal(raw, b[1:end-1]) {
			t.Fatalf("%q: got %q", b, raw)
		}
	})
}

func TestStringsOfAnswersAreCountedAsDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := []byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"` + jsonText(t) + `"}}]}`)
		var doc struct {
			Choices []struct{ Message struct{ Content string } }
		}
		if err := json.Unmarshal(body, &doc); err != nil || strings.ContainsRune(doc.Choices[0].Message.Content, '\uFFFD') {
			return // no string, or one that is longer when made valid
		}
		want := int64(len(doc.Choices[0].Message.Content))
		if want == 0 {
			return // the body is taken for the text
		}
		piece := rapid.IntRange(1, len(body)).Draw(t, "piece")
		for _, n := range []int{len(body), piece} {
			r := NewResponse()
			r.Start(http.StatusOK, http.Header{"Content-Type": {"application/json"}})
			for rest := body; len(rest) > 0; rest = rest[min(n, len(rest)):] {
				r.Write(rest[:min(n, len(rest))])
			}
			if got := r.Close(true).Delivered; got != want {
				t.Fatalf("in pieces of %d: %d bytes of text, want %d: %q", n, got, want, body)
			}
			r.Release()
		}
	})
}
