package metrics

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

// oneCall is a call of a consumer and a model that have been seen.
func oneCall(s *Set) *Call {
	c := &Call{
		Consumer: Consumer{"app-a", true}, API: "openai.chat", Status: 200, Source: "reported", Model: "gpt-5-2025-08-07",
		Usage:         &usage.Usage{Input: 1000, Output: 500, CacheRead: 100, Reasoning: 20},
		ExpectedInput: 900, ExpectedOutput: 1024, Cost: 1_000_000,
	}
	s.Ended(c)
	return c
}

func BenchmarkEnded(b *testing.B) {
	s := New()
	c := oneCall(s)
	b.ReportAllocs()
	for b.Loop() {
		s.Ended(c)
	}
}

func BenchmarkRefused(b *testing.B) {
	s := New()
	b.ReportAllocs()
	for b.Loop() {
		s.Refused("tier", "tokens per hour", false)
	}
}

func BenchmarkStoreOp(b *testing.B) {
	s := New()
	b.ReportAllocs()
	for b.Loop() {
		s.StoreOp(Reserve, 100*time.Microsecond, nil)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	s := New()
	c := oneCall(s)
	if n := testing.AllocsPerRun(1000, func() {
		s.Ended(c)
		s.Refused("tier", "tokens per hour", true)
		s.StoreOp(Reserve, time.Millisecond, nil)
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}
