package usage

import (
	"bytes"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pooledEncodings are those whose decoders are used again.
var pooledEncodings = []string{"gzip", "br", "zstd"}

// TestDecodersForgetOtherBodies decodes bodies one after another, of which some are cut or
// damaged, and some are decoded in between.
func TestDecodersForgetOtherBodies(t *testing.T) {
	bodies := [][]byte{chatBody(100), chatBody(5000), embeddingBody(70_000), append(openaiEvents(30), events(counts, done)...)}
	want := make([]Report, len(bodies))
	packed := map[string][][]byte{}
	for i, body := range bodies {
		want[i] = readAll(http.Header{}, http.StatusOK, body, 0)
		for _, name := range pooledEncodings {
			packed[name] = append(packed[name], encode(t, body, name))
		}
	}
	names := slices.Sorted(maps.Keys(packed))
	rapid.Check(t, func(t *rapid.T) {
		for range rapid.IntRange(1, 8).Draw(t, "calls") {
			name := rapid.SampledFrom(names).Draw(t, "encoding")
			i := rapid.IntRange(0, len(bodies)-1).Draw(t, "body")
			body := packed[name][i]
			h := http.Header{"Content-Encoding": {name}}
			switch rapid.IntRange(0, 3).Draw(t, "fate") {
			case 0:
				readAll(h, http.StatusOK, body[:rapid.IntRange(0, len(body)-1).Draw(t, "cut")], 0)
			case 1:
				damaged := bytes.Clone(body)
				damaged[rapid.IntRange(0, len(body)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
				readAll(h, http.StatusOK, damaged, 0)
			default:
				got := readPieces(h, http.StatusOK, body, true, func(int) int { return 1 + len(body)/3 })
				if !reflect.DeepEqual(got, want[i]) {
					t.Fatalf("%s\ngot  %+v\nwant %+v", name, got, want[i])
				}
			}
		}
	})
}

// countMade counts what a pool makes while a test runs.
func countMade[T any](t *testing.T, p *pool[T]) *int {
	t.Helper()
	made, before := 0, p.make
	p.make = func() *T {
		made++
		return before()
	}
	t.Cleanup(func() { p.make = before })
	return &made
}

func TestDecodersAreUsedAgain(t *testing.T) {
	made := map[string]*int{
		"gzip": countMade(t, &gzipReaders), "br": countMade(t, &brotliReaders), "zstd": countMade(t, &zstdReaders),
	}
	const calls = 50
	for _, name := range pooledEncodings {
		body, h := encode(t, chatBody(1000), name), encodedHeader(name)
		for range calls {
			if !readAll(h, http.StatusOK, body, 0).Found {
				t.Fatalf("%s: found nothing", name)
			}
		}
		if n := *made[name]; n > calls/2 { // what lies unused may be collected
			t.Errorf("%s: %d decoders for %d calls", name, n, calls)
		}
	}
}

func TestDecoderOfALongBodyIsNotKept(t *testing.T) {
	for _, name := range pooledEncodings {
		long := encode(t, chatBody(maxPooled+1), name)
		read := func() {
			if !readAll(encodedHeader(name), http.StatusOK, long, 0).Found {
				t.Fatalf("%s: found nothing", name)
			}
		}
		read()
		made := map[string]*int{
			"gzip": countMade(t, &gzipReaders), "br": countMade(t, &brotliReaders), "zstd": countMade(t, &zstdReaders),
		}
		for range 20 { // more than were kept of shorter bodies
			read()
		}
		if *made[name] == 0 {
			t.Errorf("%s: decoders are kept", name)
		}
	}
}
