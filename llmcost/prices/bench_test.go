package prices

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

func BenchmarkPrice(b *testing.B) {
	book := mustBook(b, someLiteLLM(b), Options{})
	with, err := NewOwn("gpt-*")
	if err != nil {
		b.Fatal(err)
	}
	if err := with.Set("input", "1"); err != nil {
		b.Fatal(err)
	}
	owner := mustBook(b, someLiteLLM(b), Options{Own: []*Own{with}})
	u := usage.Usage{Input: 262_960, CacheRead: 257_955, CacheWrite5m: 1000, Output: 1744, Reasoning: 300}
	for _, bb := range []struct {
		name string
		book *Book
		call Call
	}{
		{"exact", book, Call{Provider: "openai", Served: "gpt-5.4", Usage: u}},
		{"dated", book, Call{Provider: "openai", Served: "gpt-5.4-2027-01-01", Usage: u}},
		{"priority", book, Call{Provider: "openai", Served: "gpt-5.4", Usage: u, Terms: usage.Terms{ServiceTier: "priority"}}},
		{"fast", book, Call{Provider: "anthropic", Served: "claude-opus-5-20260724", Usage: u, Terms: usage.Terms{Speed: "fast", Geo: "us"}}},
		{"host", book, Call{Host: "generativelanguage.googleapis.com", API: usage.GeminiGenerate, Served: "gemini-2.5-pro", Usage: u}},
		{"unknown", book, Call{Provider: "bedrock", Served: "us.no.such-model-v1:0", Usage: u}},
		{"own", owner, Call{Provider: "openai", Served: "gpt-5.4", Usage: u}},
	} {
		bb.call.At = time.Date(2026, 10, 27, 12, 0, 0, 0, time.UTC)
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bb.book.Price(&bb.call)
			}
		})
	}
}

func BenchmarkEstimate(b *testing.B) {
	book := mustBook(b, someLiteLLM(b), Options{})
	c := Call{Provider: "openai", Requested: "gpt-5.4", At: noon, TextOnly: true}
	b.ReportAllocs()
	for b.Loop() {
		book.Estimate(&c, 300_000, 4096)
	}
}

// BenchmarkLoad reads LiteLLM's table, the full one where it is at hand, and reports
// how much memory stays in use.
func BenchmarkLoad(b *testing.B) {
	path := liteLLMFull
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path = "testdata/litellm.json"
	}
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	load := func() *Table {
		l, err := ParseLiteLLM(data)
		if err != nil {
			b.Fatal(err)
		}
		return NewTable(l.AsOf, l.Rows)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := load()
	runtime.GC()
	runtime.ReadMemStats(&after)
	mib := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		load()
	}
	b.ReportMetric(mib, "MiB-kept")
	b.ReportMetric(float64(kept.Len()), "rows")
}
