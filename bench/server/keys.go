package server

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
)

// Key is the API key of a consumer. Only its last digits differ.
func Key(consumer int) string { return fmt.Sprintf("sk-bench-000000000000000000000000-%07d", consumer) }

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
