package apikeyauth

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// BenchmarkServeHTTP is what authentication adds to a request that passes: finding and
// stripping the key, looking it up, setting the identity.
func BenchmarkServeHTTP(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		keys := make([]Key, n)
		for i := range keys {
			keys[i] = Key{ID: fmt.Sprint(i), Hash: hashOf(benchKey(i)), Application: fmt.Sprint("app-", i)}
		}
		h := &Handler{Keys: keys}
		mustProvision(b, h)
		for _, place := range []struct{ header, prefix string }{{"Authorization", "Bearer "}, {"X-Api-Key", ""}} {
			b.Run(fmt.Sprintf("keys=%d/%s", n, place.header), func(b *testing.B) {
				values := make([][]string, min(n, 1024))
				for i := range values {
					values[i] = []string{place.prefix + benchKey(i*(n/len(values)))}
				}
				r := caddyhttp.PrepareRequest(httptest.NewRequest("POST", chat+"?alt=sse", nil), caddy.NewReplacer(), nil, nil)
				next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
				w := httptest.NewRecorder()
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r.Header[place.header] = values[i%len(values)]
					if err := h.ServeHTTP(w, r, next); err != nil {
						b.Fatal(err)
					}
				}
				if w.Body.Len() > 0 {
					b.Fatalf("refused: %s", w.Body)
				}
			})
		}
	}
}

// benchKey is a key of the length that providers use.
func benchKey(i int) string { return fmt.Sprintf("sk-proj-%064d", i) }

func BenchmarkParseKeys(b *testing.B) {
	entries := make([]string, 10_000)
	for i := range entries {
		entries[i] = entry(fmt.Sprint(i), benchKey(i))
	}
	content := []byte(file(entries...))
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for b.Loop() {
		keys, err := parseKeys(content)
		if err != nil {
			b.Fatal(err)
		}
		if err := newIndexer(len(keys)).add(keys, true); err != nil {
			b.Fatal(err)
		}
	}
}
