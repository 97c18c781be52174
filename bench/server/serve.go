// Package server runs the processes of a benchmark: each gateway and the provider have one
// of their own, so that the processor time of one gateway can be told from all else.
//
// A process is started by [Start] and runs [Caddy] or [Provider]. The two talk in lines
// of JSON: what is asked for on the standard input, an [Answer] to each on the standard
// output. A process ends when its input does, thus also when the one that started it dies.
package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"unsafe"
)

// Order is what a process is asked for.
type Order struct {
	// Seed has each of so many consumers counted once, before anything else.
	Seed int `json:"seed,omitempty"`
	// Collect has garbage collected, so that Heap is what lives.
	Collect bool `json:"collect,omitempty"`
	// Ballast is memory to hold from now on, in bytes: objects that point at each other,
	// which cost a collector as much as those of a program do.
	Ballast int `json:"ballast,omitempty"`
	// Profile is a file to write a processor profile to, from now until the next order
	// that names one; `-` ends it.
	Profile string `json:"profile,omitempty"`
}

// Answer is how a process is.
type Answer struct {
	// Addr is where it listens.
	Addr string `json:"addr,omitempty"`
	// Heap and Stacks are the memory of both, in bytes.
	Heap   uint64 `json:"heap"`
	Stacks uint64 `json:"stacks"`
	// Mallocs and Bytes are how much has been allocated so far.
	Mallocs uint64 `json:"mallocs"`
	Bytes   uint64 `json:"bytes"`
	// Collections is how often garbage has been collected so far.
	Collections uint32 `json:"collections"`
	Error       string `json:"error,omitempty"`
}

// obey answers orders until there are no more. seed may be nil.
func obey(addr string, seed func(consumers int) error, in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(Answer{Addr: addr}); err != nil {
		return err
	}
	var held []*brick
	var profile *os.File
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o Order
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil && o.Seed > 0 {
			err = seed(o.Seed)
		}
		if err == nil && o.Profile != "" {
			profile, err = switchProfile(profile, o.Profile)
		}
		if o.Ballast > 0 {
			held = ballast(o.Ballast)
		}
		if o.Collect {
			runtime.GC()
			debug.FreeOSMemory()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		a := Answer{Addr: addr, Heap: m.HeapAlloc, Stacks: m.StackInuse, Mallocs: m.Mallocs, Bytes: m.TotalAlloc, Collections: m.NumGC}
		if err != nil {
			a.Error = err.Error()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	runtime.KeepAlive(held)
	return nil
}

// brick is a piece of ballast.
type brick struct {
	beside *brick
	_      [120]byte
}

func ballast(bytes int) []*brick {
	bricks := make([]*brick, bytes/int(unsafe.Sizeof(brick{})+unsafe.Sizeof(&brick{})))
	for i := range bricks {
		bricks[i] = &brick{beside: bricks[max(i-1, 0)]}
	}
	return bricks
}

func switchProfile(old *os.File, name string) (*os.File, error) {
	if old != nil {
		pprof.StopCPUProfile()
		if err := old.Close(); err != nil {
			return nil, fmt.Errorf("writing profile: %w", err)
		}
	}
	if name == "-" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("writing profile: %w", err)
	}
	return f, pprof.StartCPUProfile(f)
}

// FreeAddr is an address nobody listens on at the moment.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
