package usage

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"testing"
	"time"
)

// coldStreams is how many streams take turns, and coldMemory what is walked between two
// events, in bytes: more than the caches next to a processor hold. A server with
// hundreds of slow streams is like that, and a loop over one stream is not.
const (
	coldStreams = 500
	coldMemory  = 2 << 20
)

// coldWalk reads memory until nothing else is left in the caches.
func coldWalk(memory []byte) (sum byte) {
	for i := 0; i < len(memory); i += 64 {
		sum += memory[i]
	}
	return sum
}

// streamPieces are n events of each of the streams, which differ in their ids.
func streamPieces(streams, n int) [][][]byte {
	all := make([][][]byte, streams)
	for i := range all {
		id := fmt.Sprintf("chatcmpl-%05d", i)
		stream := bytes.ReplaceAll(openaiEvents(n), []byte("chatcmpl-8f2Qx"), []byte(id))
		all[i] = bytes.SplitAfter(stream, []byte("\n\n"))[:n]
	}
	return all
}

// BenchmarkEventCold reads an event of each stream in turn, with cold caches. The last
// figure is what that costs in terms of a search for "usage" under the same conditions.
func BenchmarkEventCold(b *testing.B) {
	pieces := streamPieces(coldStreams, 8)
	memory := make([]byte, coldMemory)
	usage := []byte(`"usage"`)
	readers := make([]*Response, coldStreams)
	for i := range readers {
		readers[i] = NewResponse()
		readers[i].Start(http.StatusOK, streamHeader)
	}
	hiders := make([]Hider, coldStreams)
	var p, out []byte
	took := make([]time.Duration, 0, 4*coldStreams)
	measure := func(read func(stream int, p []byte)) time.Duration {
		took = took[:0]
		for i := range 4 * coldStreams {
			stream, turn := i%coldStreams, i/coldStreams
			coldWalk(memory)
			p = append(p[:0], pieces[stream][turn]...) // as the kernel hands it over
			start := time.Now()
			read(stream, p)
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		return took[len(took)/4] // others may share the machine
	}
	found := false
	var yard, event, hide time.Duration
	n := 0
	for b.Loop() {
		yard += measure(func(_ int, p []byte) { found = bytes.Contains(p, usage) || found })
		event += measure(func(i int, p []byte) { readers[i].Write(p) })
		hide += measure(func(i int, p []byte) {
			if !hiders[i].Passes(p) {
				out = hiders[i].Filter(out[:0], p)
			}
		})
		n++
	}
	b.ReportMetric(float64(yard.Nanoseconds())/float64(n), "ns/search")
	b.ReportMetric(float64(event.Nanoseconds())/float64(n), "ns/event")
	b.ReportMetric(float64(hide.Nanoseconds())/float64(n), "ns/hide")
	b.ReportMetric(float64(event)/float64(yard), "searches/event")
	for _, r := range readers {
		r.Release()
	}
}

// BenchmarkBodyCold reads a body of 1 KiB after others have used the caches, as in a server
// that does other work between two answers.
func BenchmarkBodyCold(b *testing.B) {
	memory := make([]byte, coldMemory)
	body, p := chatBody(1<<10), []byte(nil)
	took := make([]time.Duration, 0, 1000)
	for b.Loop() {
		took = took[:0]
		for range cap(took) {
			coldWalk(memory)
			p = append(p[:0], body...) // as the kernel hands it over
			start := time.Now()
			r := NewResponse()
			r.Start(http.StatusOK, jsonHeader)
			r.Write(p)
			r.Close(true)
			r.Release()
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
	}
	b.ReportMetric(float64(took[len(took)/4].Nanoseconds()), "ns/body")
}

// BenchmarkStreamMemory tells what a stream holds between two events, in bytes.
func BenchmarkStreamMemory(b *testing.B) {
	pieces := streamPieces(coldStreams, 3)
	for b.Loop() {
		readers := make([]*Response, coldStreams)
		hiders := make([]Hider, coldStreams)
		before := heapInUse()
		for i := range readers {
			readers[i] = responses.New().(*Response)
			readers[i].Start(http.StatusOK, streamHeader)
			var out []byte
			for _, p := range pieces[i] {
				readers[i].Write(p)
				if !hiders[i].Passes(p) {
					out = hiders[i].Filter(out[:0], p)
				}
			}
		}
		after := heapInUse()
		b.ReportMetric(float64(int64(after)-int64(before))/coldStreams, "B/stream")
		runtime.KeepAlive(hiders)
		runtime.KeepAlive(readers)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
