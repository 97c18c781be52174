package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/llmlimits/caddy-llm-limits/bench/load"
)

// legend is what the columns are.
const legend = `Each line puts two Caddys under one load, by turns of 250 ms, both processes of their own
with heaps of one size. Ratios are by the other, which is reverse_proxy alone but where a
line names it; in brackets, what 80 of 100 pairs of turns lie between.

  CPU     processor time of the server's process for a call, by that of the other
  added   the same, in microseconds more
  p50 p99 latency; of streams, to the first event
  calls   how many in a second
  allocs  allocations for a call more than at the other, and their bytes
  event   of streams: processor time for an event more
  memory  of streams: heap and stacks of a stream under way more

`

const (
	heading = "%-36s  %-17s %8s  %-17s %-17s %-17s %6s %8s %8s %9s  %s\n"
	row     = "%-36s  %-17s %5.1f us  %-17s %-17s %-17s %+6.1f %+8.0f %8s %9s  %s\n"
)

type table struct {
	out    io.Writer
	missed []string
	began  time.Time
}

func newTable(out io.Writer) *table {
	fmt.Fprintf(out, "%s, %d processors\n\n%s", runtime.Version(), runtime.NumCPU(), legend)
	fmt.Fprintf(out, heading, "scenario", "CPU", "added", "p50", "p99", "calls", "allocs", "bytes", "event", "memory", "the other: CPU of a call, calls")
	return &table{out: out, began: time.Now()}
}

// line prints a scenario, and notes which of its targets it missed.
func (t *table) line(s *Scenario, f *figures) {
	event, memory := "", ""
	if s.Events > 0 {
		event, memory = fmt.Sprintf("%.2f us", us(f.AddedEvent)), fmt.Sprintf("%.1f KiB", f.Memory/1024)
	}
	other := fmt.Sprintf("%.1f us, %.0f/s", us(f.B.PerCall()), float64(f.B.Calls)/f.B.Took.Seconds())
	if s.Events > 0 {
		other += fmt.Sprintf(", %.1f us and %.2f reads an event", us(f.B.PerEvent()), float64(f.B.Reads)/float64(f.B.Events))
	}
	fmt.Fprintf(t.out, row, s.Name, spread(f.CPU), us(f.Added), spread(f.P50), spread(f.P99), spread(f.Rate), f.Allocs, f.Bytes, event, memory, other)

	miss := func(what string, got, most float64) {
		if most > 0 && got > most {
			t.missed = append(t.missed, fmt.Sprintf("%s: %s is %.3f, more than %.3f", s.Name, what, got, most))
		}
	}
	g := &s.Target
	miss("CPU", f.CPU.Median, g.CPU)
	miss("p50", f.P50.Median, g.P50)
	miss("p99", f.P99.Median, g.P99)
	miss("calls of the other by ours", 1/f.Rate.Median, g.Slower)
	miss("allocations", f.Allocs, g.Allocs)
	miss("us an event", us(f.AddedEvent), g.Event)
	miss("KiB a stream", f.Memory/1024, g.Memory)
}

// end says which targets were missed.
func (t *table) end() {
	fmt.Fprintf(t.out, "\n%v\n", time.Since(t.began).Round(time.Second))
	if len(t.missed) == 0 {
		fmt.Fprintln(t.out, "All targets are met.")
		return
	}
	fmt.Fprintf(t.out, "Targets missed; on a machine that does something else as well, look at the spread:\n  %s\n", strings.Join(t.missed, "\n  "))
}

func spread(r load.Ratio) string { return fmt.Sprintf("%.2f (%.2f-%.2f)", r.Median, r.Low, r.High) }

func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
