package apikeyauth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

const (
	// pollEvery is how often a keys file is looked at. Polling costs one stat and,
	// unlike change notices, works on every file system and through the symbolic
	// links by which Kubernetes swaps mounted secrets.
	pollEvery = time.Second

	// unsettled is how young, at most, a change must be for a file to be read again
	// although it looks the same: time stamps are coarse, and a second change can
	// leave size and time as they were.
	unsettled = 2 * time.Second

	// maxKeysFile bounds the size of a keys file in bytes; it is some 300,000 keys.
	maxKeysFile = 64 << 20
)

// keysFile keeps an index current with a file. Only one goroutine uses it at a time.
type keysFile struct {
	path   string
	inline []Key // of the configuration; part of every index
	index  *atomic.Pointer[index]
	logger *zap.Logger

	seen os.FileInfo // when it was last read; nil if it could not be
	good digest      // of the content the index was built from
	bad  digest      // of what was last reported; zero if nothing is wrong

	done chan struct{} // closed when watch has ended
}

func newKeysFile(path string, inline []Key, x *atomic.Pointer[index], logger *zap.Logger) *keysFile {
	return &keysFile{path: path, inline: inline, index: x, logger: logger, done: make(chan struct{})}
}

// load reads the file for the first time. The file must be there and valid.
func (f *keysFile) load() error {
	content, err := f.read()
	if err != nil {
		return err
	}
	return f.apply(content)
}

// watch looks at the file until the context ends.
func (f *keysFile) watch(ctx context.Context) {
	defer close(f.done)
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if f.changed() {
				f.reload()
			}
		}
	}
}

// changed tells whether the file may differ from what was last read.
func (f *keysFile) changed() bool {
	now, err := os.Stat(f.path)
	if err != nil || f.seen == nil {
		return true
	}
	return !os.SameFile(now, f.seen) || now.Size() != f.seen.Size() || !now.ModTime().Equal(f.seen.ModTime()) ||
		time.Since(now.ModTime()).Abs() < unsettled
}

// reload reads the file again. If it is bad the index stays as it is, and the log
// says so once for each thing that is wrong.
func (f *keysFile) reload() {
	content, err := f.read()
	if err != nil {
		f.report(sha256.Sum256([]byte(err.Error())), err)
		return
	}
	sum := sha256.Sum256(content)
	if sum == f.good {
		if f.bad != (digest{}) {
			f.logger.Info("keys file is back to its last good version", zap.String("path", f.path))
		}
		f.bad = digest{}
		return
	}
	if sum == f.bad {
		return
	}
	if err := f.apply(content); err != nil {
		f.report(sum, err)
		return
	}
	f.logger.Info("keys file loaded", zap.String("path", f.path), zap.Int("secrets", len(f.index.Load().secrets)))
}

// report logs what is wrong with the file, unless that was the last thing reported.
func (f *keysFile) report(sum digest, err error) {
	if sum == f.bad {
		return
	}
	f.bad = sum
	f.logger.Error("keys file is bad; the keys of its last good version stay in force",
		zap.String("path", f.path), zap.Error(err))
}

// apply puts the content in force, whole or not at all.
func (f *keysFile) apply(content []byte) error {
	keys, err := parseKeys(content)
	if err != nil {
		return fmt.Errorf("reading %q: %w", f.path, err)
	}
	x := newIndexer(len(f.inline) + len(keys))
	if err := x.add(f.inline, false); err != nil {
		return err
	}
	if err := x.add(keys, true); err != nil {
		return fmt.Errorf("reading %q: %w", f.path, err)
	}
	f.index.Store(&x.index)
	f.good, f.bad = sha256.Sum256(content), digest{}
	return nil
}

// read is the content of the file.
func (f *keysFile) read() ([]byte, error) {
	f.seen = nil
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q is not a regular file", f.path) // a pipe would block
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// of the open file, which may be a newer one, and before its content is read: a
	// write in between is then seen as a change
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxKeysFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxKeysFile {
		return nil, fmt.Errorf("%q is larger than %d bytes", f.path, maxKeysFile)
	}
	f.seen = info
	return content, nil
}
