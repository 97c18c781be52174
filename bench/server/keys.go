package server

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
)

// MostKeys is how many consumers have keys of their own. A keys file holds some 500,000 at
// most; where there are more, they are told apart by ConsumerHeader.
const MostKeys = 100_000

// ConsumerHeader says who calls where there are more consumers than keys.
const ConsumerHeader = "X-Bench-Consumer"

// Key is the API key of a consumer. Only the digits at its end differ; nothing else in it
// looks like them.
func Key(consumer int) string {
	return fmt.Sprintf("sk-bench-f3a9c1d27b5e48a6c9d1e7b2-%07d", consumer)
}

// WriteKeys writes a file of keys, one for each of so many consumers.
func WriteKeys(path string, consumers int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	fmt.Fprint(w, `{"keys":[`)
	for i := range consumers {
		if i > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, `{"id":"key-%07d","hash":"sha256:%x","application":"app-%07d"}`, i, sha256.Sum256([]byte(Key(i))), i)
	}
	fmt.Fprint(w, "]}\n")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing keys: %w", err)
	}
	return f.Close()
}
