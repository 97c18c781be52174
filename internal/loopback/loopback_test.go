package loopback

import (
	"net"
	"testing"
)

func TestAddressesAreFreeAndDiffer(t *testing.T) {
	seen := make(map[string]int)
	for range 50 {
		a := Address(t)
		l, err := net.Listen("tcp", a)
		if err != nil {
			t.Fatalf("listening at %s: %v", a, err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if port := l.Addr().(*net.TCPAddr).Port; port < lowest || port >= highest {
			t.Errorf("port %d", port)
		}
		if seen[a]++; seen[a] > 1 {
			t.Errorf("%s is given twice", a)
		}
	}
}
