package main

import (
	"fmt"
	"io"
	"time"

	"github.com/llmlimits/caddy-llm-limits/bench/load"
)

type table struct{ out io.Writer }

func newTable(out io.Writer) *table {
	fmt.Fprintf(out, "%-36s | %-18s | %9s | %5s | %5s | %6s | %7s | %8s\n", "scenario", "CPU of a call", "added", "p50", "p99", "calls/s", "allocs", "bytes")
	return &table{out}
}

func (t *table) line(s *Scenario, f *figures) {
	fmt.Fprintf(t.out, "%-36s | %-18s | %6.1f us | %5.3f | %5.3f | %7.3f | %+7.1f | %+8.0f", s.Name, spread(f.CPU), us(f.Added), f.P50.Median, f.P99.Median, f.Rate.Median, f.Allocs, f.Bytes)
	if s.Events > 0 {
		fmt.Fprintf(t.out, " | %.2f us an event, %.1f events a read, %.1f KiB a stream", us(f.AddedEvent), float64(f.A.Events)/float64(f.A.Reads), f.Memory/1024)
	}
	fmt.Fprintf(t.out, " (plain %.1f us, %.0f/s)\n", us(f.B.PerCall()), float64(f.B.Calls)/f.B.Took.Seconds())
}

func (t *table) end() {}

func spread(r load.Ratio) string { return fmt.Sprintf("%.3f (%.2f-%.2f)", r.Median, r.Low, r.High) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
