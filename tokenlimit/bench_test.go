package tokenlimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// discard is a client that keeps nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkCall is a whole call through Caddy's server: without a limiter, with one,
// and refused by it.
func BenchmarkCall(b *testing.B) {
	const rules = "consumer_based\nlimit 1G requests per day\nlimit 100G tokens per day\nlimit 1000 concurrent\n"
	for _, bc := range []struct{ name, site string }{
		{"unlimited", "test_upstream"},
		{"limited", "token_limit bench {\n" + rules + "}\ntest_upstream"},
		{"refused", "token_limit bench-refused {\n" + rules + "limit 1 tokens per week\n}\ntest_upstream"},
	} {
		b.Run(bc.name, func(b *testing.B) {
			g, err := load(b, ":0 {\nvars x-wso2-application-id {header.X-App}\n"+bc.site+"\n}\n")
			if err != nil {
				b.Fatal(err)
			}
			g.chat("shop")
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(question))
				r.Header.Set("X-App", "shop")
				g.server.ServeHTTP(discard{make(http.Header)}, r)
			}
		})
	}
}
