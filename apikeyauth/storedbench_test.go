package apikeyauth

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// manyStored is a store of 100,000 keys, and the secrets of some.
func manyStored(b *testing.B) (*keysBackend, []string) {
	b.Helper()
	const n = 100_000
	keys := &keysBackend{Keys: memory.New(memory.Options{}).Keys()}
	var secrets []string
	for i := range n {
		secret := apikey.New()
		k := store.Key{ID: fmt.Sprintf("key-%016d", i), Hash: apikey.Hash(secret), Application: fmt.Sprint("app-", i%1000), Group: "gold"}
		if _, err := keys.Put(context.Background(), k); err != nil {
			b.Fatal(err)
		}
		if i%100 == 0 {
			secrets = append(secrets, secret)
		}
	}
	return keys, secrets
}

// BenchmarkStoredKeys is what authentication adds to a request with one of 100,000
// stored keys, alone and in a flood of 1,000 wrong keys a second; and what the keys take
// of memory, beside the store's own.
func BenchmarkStoredKeys(b *testing.B) {
	keys, secrets := manyStored(b)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := &Handler{}
	serveStoredIn(b, h, keys)
	runtime.GC()
	runtime.ReadMemStats(&after)
	perKey := float64(after.HeapAlloc-before.HeapAlloc) / float64(h.ring.Len())

	serve := func(b *testing.B) {
		r := caddyhttp.PrepareRequest(httptest.NewRequest("POST", chat, nil), caddy.NewReplacer(), nil, nil)
		next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
		w := httptest.NewRecorder()
		values := make([][]string, len(secrets))
		for i, secret := range secrets {
			values[i] = []string{"Bearer " + secret}
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r.Header["Authorization"] = values[i%len(values)]
			if err := h.ServeHTTP(w, r, next); err != nil {
				b.Fatal(err)
			}
		}
		if w.Body.Len() > 0 {
			b.Fatalf("refused: %s", w.Body)
		}
	}
	b.Run("alone", func(b *testing.B) {
		serve(b)
		b.ReportMetric(perKey, "B/key")
	})
	b.Run("flood", func(b *testing.B) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var wrong atomic.Int64
		wg.Go(func() {
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				wg.Go(func() {
					wrong.Add(1)
					_, _ = h.find(ctx, apikey.New()) // it looks like a real one
				})
			}
		})
		asked, began := keys.asked.Load(), time.Now()
		serve(b)
		took := time.Since(began).Seconds()
		b.ReportMetric(float64(wrong.Load())/took, "wrong/s")
		b.ReportMetric(float64(keys.asked.Load()-asked)/took, "asked/s")
		cancel()
		wg.Wait()
	})
}
