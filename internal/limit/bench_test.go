package limit

import (
	"net/http"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/meter"
	"github.com/llmlimits/caddy-llm-limits/internal/usage"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// newServingLimiter is a limiter that counts in a store of its own.
func newServingLimiter(t testing.TB, c Config) *Limiter {
	l := newTestLimiter(t, c)
	l.meter, l.counters, l.logger = meter.New(), memory.New(memory.Options{}), zap.NewNop()
	l.leases = store.NewLeases(l.counters, time.Minute, nil)
	return l
}

// BenchmarkInstance is what one instance does for a call: it is admitted and settled.
func BenchmarkInstance(b *testing.B) {
	for _, bc := range []struct {
		name  string
		rules []string
	}{
		{"requests", []string{"100M requests per minute"}},
		{"tokens", []string{"1000000M tokens per hour"}},
		{"both", []string{"100M requests per minute", "1000000M tokens per hour"}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			l := newServingLimiter(b, Config{Name: "bench-" + bc.name, ConsumerBased: true, Limits: parse(b, bc.rules...)})
			r := newRequest(http.MethodPost, "/v1/chat/completions", `{"model":"gpt-4o-mini","max_tokens":40,"messages":[{"role":"user","content":"Hi"}]}`)
			caddyhttp.SetVar(r.Context(), meter.VarApplication, "shop")
			call := newCall(b, l.meter, r)
			o := &meter.Outcome{Source: meter.SourceReported, Status: http.StatusOK, Usage: usage.Usage{Input: 10, Output: 20}}
			b.ReportAllocs()
			for b.Loop() {
				who, err := l.caller(r, meter.VarsOf(r), call)
				if err != nil {
					b.Fatal(err)
				}
				e, f, err := l.admit(r, call, who)
				if f != nil || err != nil {
					b.Fatal(f, err)
				}
				e.Settle(o)
			}
		})
	}
}
