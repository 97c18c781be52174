package tokenlimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// BenchmarkFleet is a process with 10,000 consumers that have called 20 models each, under
// limits of four windows: 800,000 counters. What it reports is a whole call through
// Caddy's server, what the counters and all that is remembered beside them take, how long
// a collection runs beside the calls and how long it stops them at most.
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
	var before, after, end runtime.MemStats
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
	i := 0
	for b.Loop() {
		call(i)
		i++
	}
	runtime.ReadMemStats(&end)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(consumers*models*4), "B/counter")
	b.ReportMetric(float64(collection.Milliseconds()), "ms/GC")
	b.ReportMetric(float64(slices.Max(end.PauseNs[:]))/1e3, "µs-max-pause")
}
