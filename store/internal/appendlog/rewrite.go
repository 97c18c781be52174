package appendlog

import (
	"errors"
	"fmt"
	"os"
)

const (
	// chunk is how much a rewrite collects before it writes, in bytes.
	chunk = 256 << 10
	// syncEvery is how much it writes before it syncs, so that the last sync, for
	// which appending waits, is short.
	syncEvery = 8 << 20
)

// Rewrite is the log that takes the place of another once it is whole. Its methods
// are for one goroutine.
type Rewrite struct {
	l        *Log
	f        File
	size     int64 // what is written
	unsynced int64
	pending  []byte // guarded by the log's mu, for records are appended to both
	spare    []byte // is used again
	err      error  // the first
	done     bool
}

// Rewrite begins a log that is to replace this one, with all that matters of its
// records, synced or not. Those that are appended to the log from now on go to
// both. There is one rewrite at a time. It ends with Commit or Abort.
func (l *Log) Rewrite() (*Rewrite, error) {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	switch {
	case l.closed:
		return nil, fmt.Errorf("rewriting %q: %w", l.path, ErrClosed)
	case l.rewrite != nil:
		return nil, fmt.Errorf("rewriting %q: it is being rewritten", l.path)
	}
	f, err := l.dir.disk.Open(l.temp(), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	w := &Rewrite{l: l, f: f, pending: header(l.version)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rewrite = w
	return w, nil
}

// Append adds a record of at most MaxRecord bytes. After an error only Abort is of
// use.
func (w *Rewrite) Append(record []byte) error {
	if w.err != nil {
		return w.err
	}
	if len(record) > MaxRecord {
		return w.fail(fmt.Errorf("rewriting %q: a record of %d bytes is longer than %d", w.l.path, len(record), MaxRecord))
	}
	w.l.mu.Lock()
	w.pending = appendFrame(w.pending, record)
	full := len(w.pending) >= chunk
	w.l.mu.Unlock()
	if !full {
		return nil
	}
	return w.write(syncEvery)
}

// write writes what is pending, and syncs where as much is not synced.
func (w *Rewrite) write(sync int64) error {
	w.l.mu.Lock()
	data := w.pending
	w.pending = w.spare
	w.l.mu.Unlock()
	err := w.put(data, sync)
	w.spare = data[:0]
	return err
}

func (w *Rewrite) put(data []byte, sync int64) error {
	if _, err := w.f.WriteAt(data, w.size); err != nil {
		return w.fail(fmt.Errorf("writing log: %w", err))
	}
	w.size += int64(len(data))
	w.unsynced += int64(len(data))
	if w.unsynced >= sync {
		if err := w.f.Sync(); err != nil {
			return w.fail(fmt.Errorf("syncing log: %w", err))
		}
		w.unsynced = 0
	}
	return nil
}

func (w *Rewrite) fail(err error) error {
	w.err = err
	return err
}

// Commit syncs the new log and puts it in the place of the other, at one instant: a
// crash leaves one of them. After an error the old one is in use as before, with
// all that was appended to it, but for an error of syncing the directory: then the
// next Sync does that.
func (w *Rewrite) Commit() error {
	if w.done {
		return fmt.Errorf("rewriting %q: %w", w.l.path, ErrClosed)
	}
	if w.err == nil {
		_ = w.write(1) // most of it, while records can be appended
	}
	l := w.l
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	w.done = true
	l.rewrite = nil
	if err := w.finish(); err != nil {
		_ = l.dir.disk.Remove(l.temp())
		return err
	}
	l.size, l.pending, l.renamed = w.size, nil, true
	return l.syncDir()
}

// finish puts the file in its place. Some systems rename no file that is open.
func (w *Rewrite) finish() error {
	l := w.l
	if w.err == nil && l.closed {
		w.err = fmt.Errorf("rewriting %q: %w", l.path, ErrClosed)
	}
	if w.err == nil && len(w.pending) > 0 {
		_ = w.put(w.pending, 1)
	}
	if err := w.f.Close(); err != nil && w.err == nil {
		w.err = fmt.Errorf("closing log: %w", err)
	}
	if w.err != nil {
		return w.err
	}
	if f := l.f; f != nil {
		l.f = nil
		if err := f.Close(); err != nil {
			return fmt.Errorf("closing log: %w", err)
		}
	}
	if err := l.dir.disk.Rename(l.temp(), l.path); err != nil {
		return fmt.Errorf("replacing log: %w", err)
	}
	return nil
}

// Abort gives the new log up. It does nothing after Commit.
func (w *Rewrite) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	w.l.mu.Lock()
	w.l.rewrite = nil
	w.l.mu.Unlock()
	if err := errors.Join(w.f.Close(), w.l.dir.disk.Remove(w.l.temp())); err != nil {
		return fmt.Errorf("removing what is left of a rewrite: %w", err)
	}
	return nil
}
