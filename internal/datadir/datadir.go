// Package datadir keeps tests that run Caddy out of the user's data directory, where
// the memory store writes counts, and out of each other's.
package datadir

import (
	"fmt"
	"os"
	"testing"
)

// Run runs a package's tests with a data directory of their own, which is deleted
// afterwards, and returns the code to exit with. TestMain calls it.
func Run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "llm-test-")
	if err == nil {
		err = os.Setenv("XDG_DATA_HOME", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "making a data directory:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.Run()
}
