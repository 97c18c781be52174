package prices

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// saved is the last good copy of a source as it is kept over restarts: a line of JSON
// about it, and then the document as it came.
type saved struct {
	ETag         string    `json:"etag,omitempty"`
	LastModified string    `json:"last_modified,omitempty"`
	AsOf         time.Time `json:"as_of"`

	body []byte
}

// readSaved reads a kept copy; a nil copy without an error is one that was never kept.
func readSaved(path string) (*saved, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the last copy: %w", err)
	}
	if info.Size() > maxDocument+maxHeader {
		return nil, fmt.Errorf("reading the last copy: %d bytes", info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the last copy: %w", err)
	}
	head, body, found := bytes.Cut(data, []byte("\n"))
	s := &saved{body: body}
	if !found {
		return nil, errors.New("reading the last copy: no document")
	}
	if err := json.Unmarshal(head, s); err != nil {
		return nil, fmt.Errorf("reading the last copy: %w", err)
	}
	return s, nil
}

// maxHeader bounds what a kept copy says about itself.
const maxHeader = 64 << 10

// write keeps the copy: only for this user to read, and whole or not at all.
func (s *saved) write(path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keeping the copy: %w", err)
		}
	}()
	head, err := json.Marshal(s)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".prices-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(append(head, '\n'), s.body...))
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
