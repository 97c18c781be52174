package main

import (
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/llmlimits/caddy-llm-limits/bench/provider"
)

func init() { caddy.RegisterModule(new(pacer)) }

// pacer is a transport of reverse_proxy: a provider within the process, whose streams wait
// for each of their events until they are told to go on.
type pacer struct{}

func (*pacer) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.bench_pacer", New: func() caddy.Module { return new(pacer) }}
}

func (*pacer) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (*pacer) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil, err
	}
	s := r.Context().Value(streamKey{}).(*stream)
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/event-stream; charset=utf-8"}}, ContentLength: -1, Body: s, Request: r,
	}, nil
}

// stream is one under way: its provider and its client.
type stream struct {
	client
	next chan []byte   // to the gateway
	done chan struct{} // an event has reached the client
	over chan struct{} // the handlers have returned
	sent bool
}

type streamKey struct{}

func (s *stream) Read(p []byte) (int, error) {
	event, ok := <-s.next
	if !ok {
		return 0, io.EOF
	}
	s.sent = true
	return copy(p, event), nil
}

func (*stream) Close() error { return nil }

// FlushError is where an event has gone to the client; the first flush is that of the header.
func (s *stream) FlushError() error {
	if s.sent {
		s.sent = false
		s.done <- struct{}{}
	}
	return nil
}

// openStreams is how many are under way at one time, and coldMemory what is walked between
// two events, in bytes: kernel and network of a server use the caches as well.
const (
	openStreams = 500
	coldMemory  = 2 << 20
)

func coldWalk(memory []byte) (sum byte) {
	for i := 0; i < len(memory); i += 64 {
		sum += memory[i]
	}
	return sum
}

func (c *chain) open(event []byte) []*stream {
	all := make([]*stream, openStreams)
	for i := range all {
		s := &stream{client: client{header: make(http.Header)}, next: make(chan []byte), done: make(chan struct{}), over: make(chan struct{})}
		all[i] = s
		go func() {
			defer close(s.over)
			c.streamTo(s)
		}()
		for range 3 {
			s.next <- event
			<-s.done
		}
	}
	return all
}

// BenchmarkStreams has an event go through each of many streams in turn, with cold caches, and
// one through each of as many where reverse_proxy stands alone. It tells what an event and a
// stream under way take more than there.
func BenchmarkStreams(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	memory := make([]byte, coldMemory)
	for _, tc := range []struct {
		name string
		Site
		asked bool
	}{
		{"plain", Plain, true},
		{"keys", Keys, true},
		{"full", Full, false},
		{"full, asked for usage by the client", Full, true},
	} {
		b.Run(tc.name, func(b *testing.B) {
			both := newChains(b, "reverse_proxy 127.0.0.1:1 {\n\t\ttransport bench_pacer\n\t}", tc.Site, Plain)
			var streams [2][]*stream
			var takes [2]inUse
			event := provider.Events(1, true)[0]
			for i, c := range both {
				c.set(&Scenario{Size: small, Events: 1, Asked: tc.asked})
				for _, s := range c.open(event) { // what is made once is no part of a stream
					s.finish()
				}
				before := memoryInUse()
				streams[i] = c.open(event)
				takes[i] = memoryInUse().less(before)
			}
			var took [2][]time.Duration
			piece := make([]byte, 0, len(event))
			for b.Loop() {
				for i := range openStreams {
					for k, all := range streams {
						piece = append(piece[:0], event...) // as the kernel hands it over
						coldWalk(memory)
						start := time.Now()
						all[i].next <- piece
						<-all[i].done
						took[k] = append(took[k], time.Since(start))
					}
				}
			}
			var each [2]float64
			for k := range took {
				slices.Sort(took[k])
				each[k] = float64(took[k][len(took[k])/4].Nanoseconds()) // others may share the machine
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(each[1], "ns/plain-event")
			b.ReportMetric(each[0]-each[1], "ns/event")
			b.ReportMetric(float64(takes[0].heap-takes[1].heap)/openStreams, "B-heap/stream")
			b.ReportMetric(float64(takes[0].stacks-takes[1].stacks)/openStreams, "B-stack/stream")
			for _, all := range streams {
				for _, s := range all {
					s.finish()
				}
			}
		})
	}
}

// finish ends a stream.
func (s *stream) finish() {
	for _, e := range provider.Events(0, true) {
		s.next <- e
		<-s.done
	}
	close(s.next)
	<-s.over
}

type inUse struct{ heap, stacks int64 }

func (m inUse) less(o inUse) inUse { return inUse{m.heap - o.heap, m.stacks - o.stacks} }

func memoryInUse() inUse {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return inUse{int64(m.HeapAlloc), int64(m.StackInuse)}
}
