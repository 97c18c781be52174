package server

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processCPU reads the clock that the kernel keeps of each process. Unlike
// /proc/<pid>/stat, whose ticks are of 10 ms, it is exact to the nanosecond.
func processCPU(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED: what the scheduler counted
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0, fmt.Errorf("reading the processor time of a server: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
