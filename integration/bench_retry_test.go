package integration

import (
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"
)

// BenchmarkRetry compares calls of which none fails through the same chain with llm_retry
// and without, in turn. Allocations are those of the whole process, of which the client
// and the provider are part; what llm_retry adds is the difference.
func BenchmarkRetry(b *testing.B) {
	b.Run("document", func(b *testing.B) {
		rg := newRig(b, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			sixtyTokens(w, r)
		})
		request := []byte(`{"model":"gpt-4o-mini","max_completion_tokens":40,"messages":[{"role":"user","content":"hi"}]}`)
		rg.retries(func(addr string) time.Duration {
			start := time.Now()
			resp := rg.post(addr, request)
			_, err := io.Copy(io.Discard, resp.Body)
			took := time.Since(start)
			resp.Body.Close()
			if err != nil {
				b.Fatal(err)
			}
			return took
		})
	})
	b.Run("first event", func(b *testing.B) {
		l := &lockstep{events: 1, read: make(chan struct{}, 1)}
		rg := newRig(b, l.ServeHTTP)
		rg.retries(func(addr string) time.Duration {
			first, _ := l.call(rg, addr)
			return first
		})
	})
}

// retries makes calls with and without llm_retry in turn, and reports what it adds.
func (rg *rig) retries(call func(addr string) time.Duration) {
	b := rg.b
	var allocated [2]uint64
	counted := func(i int, addr string) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took := call(addr)
		runtime.ReadMemStats(&after)
		allocated[i] += after.Mallocs - before.Mallocs
		return float64(took.Nanoseconds())
	}
	for range 20 { // connects, and fills what is kept
		call(rg.metered)
		call(rg.retrying)
	}
	var without, with, ratios []float64
	for i := 0; b.Loop(); i++ {
		var o, w float64
		if i%2 == 0 { // neither always comes second
			o, w = counted(0, rg.metered), counted(1, rg.retrying)
		} else {
			w, o = counted(1, rg.retrying), counted(0, rg.metered)
		}
		without, with, ratios = append(without, o), append(with, w), append(ratios, w/o)
	}
	n := float64(len(ratios))
	b.ReportMetric(0, "ns/op") // of a pair: nobody wants to know
	b.ReportMetric(median(without), "without-ns")
	b.ReportMetric(median(with), "with-ns")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric((float64(allocated[1])-float64(allocated[0]))/n, "allocs-more")
	b.ReportMetric(float64(allocated[1])/float64(allocated[0]), "allocs-ratio")
}
