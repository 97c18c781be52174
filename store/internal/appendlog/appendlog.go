// Package appendlog keeps records in a file that only grows, so that they outlive
// the process: each is framed with its length and a checksum, and whatever a crash
// left unfinished at the end is found and cut off.
//
// A directory belongs to one process at a time. A log is made smaller by writing
// the records that still matter to another file, which then takes its place.
//
// Nothing is ever lost silently: records stay in memory until an fsync has
// confirmed them, and a Sync that failed is simply called again.
package appendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// MaxRecord is the longest a record may be, in bytes.
const MaxRecord = 16 << 20

// keep is the largest buffer that is kept for records to come, in bytes.
const keep = 1 << 20

var (
	// ErrNewer means that a log was written by a later version of this program. It is
	// left as it is.
	ErrNewer = errors.New("written by a newer version")
	// ErrClosed means that a log was closed before.
	ErrClosed = errors.New("log is closed")
)

// Log is a file of records. It is safe for use by many goroutines.
type Log struct {
	dir  *Dir
	path string

	// syncing is held while the file is written. It is locked before mu.
	syncing sync.Mutex
	f       File // nil until it is needed, as after it was replaced
	version byte
	renamed bool // the directory has yet to be synced
	closed  bool

	mu sync.Mutex // never held during I/O, but for the end of a rewrite
	// size of what is in the file for certain. Whatever is behind it is written again.
	size int64
	// pending records, framed, follow at size.
	pending []byte
	rewrite *Rewrite
}

// Append adds a record of at most MaxRecord bytes. It is kept in memory until Sync;
// it does no I/O, and record may be used again at once.
func (l *Log) Append(record []byte) error {
	if len(record) > MaxRecord {
		return fmt.Errorf("appending to %q: a record of %d bytes is longer than %d", l.path, len(record), MaxRecord)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = appendFrame(l.pending, record)
	if l.rewrite != nil {
		l.rewrite.pending = appendFrame(l.rewrite.pending, record)
	}
	return nil
}

// Sync returns when all records that were appended before are on the disk. After
// an error, such as that of a full disk, they are still here: Sync tries again
// from where it last succeeded.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.closed {
		return fmt.Errorf("syncing %q: %w", l.path, ErrClosed)
	}
	return l.sync()
}

func (l *Log) sync() error {
	l.mu.Lock()
	data := l.pending
	l.mu.Unlock()
	if err := l.syncDir(); err != nil {
		return err
	}
	if len(data) == 0 {
		return nil
	}
	if l.f == nil {
		f, err := l.dir.disk.Open(l.path, os.O_RDWR)
		if err != nil {
			return fmt.Errorf("opening log: %w", err)
		}
		l.f = f
	}
	// After an fsync that failed, the system may take pages for clean that never
	// reached the disk. So all is written again, not only synced.
	if _, err := l.f.WriteAt(data, l.size); err != nil {
		return l.failed("writing", err)
	}
	if err := l.f.Sync(); err != nil {
		return l.failed("syncing", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size += int64(len(data))
	rest := l.pending[len(data):]
	switch {
	case len(rest) > 0:
		l.pending = append(l.pending[:0], rest...)
	case cap(l.pending) > keep:
		l.pending = nil
	default:
		l.pending = l.pending[:0]
	}
	return nil
}

// failed gives the file up, to be opened again: it may be of a disk that is gone.
func (l *Log) failed(doing string, err error) error {
	_ = l.f.Close()
	l.f = nil
	return fmt.Errorf("%s log: %w", doing, err)
}

// syncDir makes it certain that the file that took another's place is found there
// after a crash.
func (l *Log) syncDir() error {
	if !l.renamed {
		return nil
	}
	if err := l.dir.disk.SyncDir(l.dir.path); err != nil {
		return fmt.Errorf("syncing directory: %w", err)
	}
	l.renamed = false
	return nil
}

// Size is the length of the log in bytes, with what is not yet synced.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size + int64(len(l.pending))
}

// Unsynced is how many bytes of records wait for Sync.
func (l *Log) Unsynced() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// Close syncs and closes the log. After an error of Sync it is closed all the
// same; what could not be written is lost.
func (l *Log) Close() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.closed {
		return nil
	}
	err := l.sync()
	return errors.Join(err, l.close())
}

// Remove closes the log and deletes its file.
func (l *Log) Remove() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.close(); err != nil {
		return err
	}
	if err := l.dir.disk.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing log: %w", err)
	}
	return l.dir.disk.SyncDir(l.dir.path)
}

func (l *Log) close() error {
	l.closed = true
	f := l.f
	l.f = nil
	if f == nil {
		return nil
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("closing log: %w", err)
	}
	return nil
}
