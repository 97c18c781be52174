package tokenlimit_test

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

// BenchmarkFleet is a process with 10,000 consumers that have called 20 models each, under
// limits of four windows: 800,000 counters. What it reports is a whole call through
// Caddy's server, what the counters and all that is remembered beside them take, how long
// a collection runs beside the calls, and for how long collections stop them.
func BenchmarkFleet(b *testing.B) {
	const consumers, models = 10_000, 20
	g, err := load(b, `{
		llm {
			store memory {
				persist off
			}
		}
	}
	:0 {
		vars x-wso2-application-id {header.X-App}
		token_limit fleet {
			consumer_based
			model * {
				limit 1G tokens per hour
				limit 1G tokens per day
				limit 1G tokens per week
				limit 1G tokens per month
				per_model
			}
		}
		test_upstream
	}
	`)
	if err != nil {
		b.Fatal(err)
	}
	var apps, bodies []string
	for i := range consumers {
		apps = append(apps, fmt.Sprint("app-", i))
	}
	for i := range models {
		bodies = append(bodies, strings.Replace(question, "gpt-4o", fmt.Sprint("model-", i), 1))
	}
	call := func(i int) {
		r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(bodies[i/consumers%models]))
		r.Header.Set("X-App", apps[i%consumers])
		g.server.ServeHTTP(discard{make(http.Header)}, r)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range consumers * models {
		call(i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	began := time.Now()
	runtime.GC()
	collection := time.Since(began)

	b.ReportAllocs()
	stops := pauses()
	i := 0
	for b.Loop() {
		call(i)
		i++
	}
	p99, most := since(stops)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(consumers*models*4), "B/counter")
	b.ReportMetric(float64(collection.Milliseconds()), "ms/GC")
	b.ReportMetric(p99*1e6, "µs-p99-pause")
	b.ReportMetric(most*1e6, "µs-max-pause")
}

// pauses are the times for which collections have stopped everything, in seconds, since
// the process began.
func pauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	return sample[0].Value.Float64Histogram()
}

// since are the 99th percentile and the longest of the pauses since then, in seconds: the
// upper edges of the buckets that they are in, 0 if there were none.
func since(before *metrics.Float64Histogram) (p99, most float64) {
	now := pauses()
	var n, seen uint64
	for i, count := range now.Counts {
		n += count - before.Counts[i]
	}
	for i, count := range now.Counts {
		if count -= before.Counts[i]; count == 0 {
			continue
		}
		most = now.Buckets[i+1]
		if math.IsInf(most, 1) {
			most = now.Buckets[i]
		}
		if seen += count; p99 == 0 && seen*100 >= n*99 {
			p99 = most
		}
	}
	return p99, most
}
