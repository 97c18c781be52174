// Package loopback has addresses for the servers of tests.
package loopback

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Ports are taken from below those that systems give to whoever asks for any: one of
// these that is free now may be that of somebody's connection by the time that a process
// has started which is to listen there.
const (
	lowest  = 10_000
	highest = 30_000
)

// Port is one of 127.0.0.1 that nobody listens at. Others may ask for ports, too, so that a
// server may still find it taken, and is to be given another then.
func Port(tb testing.TB) int {
	tb.Helper()
	var err error
	for range 100 {
		port := lowest + rand.N(highest-lowest)
		var l net.Listener
		if l, err = net.Listen("tcp", address(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	tb.Fatalf("finding a port that is free: %v", err)
	return 0
}

// Address is 127.0.0.1 with a port as Port finds.
func Address(tb testing.TB) string {
	tb.Helper()
	return address(Port(tb))
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
