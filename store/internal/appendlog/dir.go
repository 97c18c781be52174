package appendlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrLocked means that a directory belongs to another process.
var ErrLocked = errors.New("another Caddy with the same persist directory is running; give each its own")

// lockName is the file that is locked. It stays: to remove it would let two
// processes lock two files of that name.
const lockName = "lock"

// Dir is a directory that belongs to this process until it is closed.
type Dir struct {
	path string
	lock *os.File
	disk Disk
}

// Lock makes the directory if there is none, with its parents, and takes it for
// this process. The system gives it back if the process dies. The error wraps
// ErrLocked if another process has it, or this one by another Dir.
func Lock(path string) (*Dir, error) { return LockOn(System{}, path) }

// LockOn is Lock where logs are to be written by way of another disk.
func LockOn(disk Disk, path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening lock: %w", err)
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking directory %q: %w", path, err)
	}
	return &Dir{path: path, lock: f, disk: disk}, nil
}

// Path is where the directory is, as it was given.
func (d *Dir) Path() string { return d.path }

// Close gives the directory back. Its logs must be closed before.
func (d *Dir) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("closing lock: %w", err)
	}
	return nil
}

// Recovery tells what was found in a log.
type Recovery struct {
	// Records is how many there are.
	Records int
	// Dropped is how many bytes at the end were cut off: a record that a crash left
	// unfinished, or whatever follows a damaged one.
	Dropped int64
	// SetAside is the new path of a file whose very beginning was damaged, empty if
	// it was not. Dropped is its length then.
	SetAside string
}

// Open opens the log of that name in the directory, or makes an empty one, and
// gives all of its records to visit, oldest first; a record is good only until
// visit returns. The version is that of the records' content. A log of a newer
// version, or in a newer format, is left alone; the error wraps ErrNewer. Errors
// of visit are returned as they are.
func (d *Dir) Open(name string, version byte, visit func(record []byte) error) (*Log, Recovery, error) {
	return d.OpenSince(name, version, version, visit)
}

// OpenSince is Open where records of versions since the oldest are good as they are. A
// log of such a version is one of this version when it returns.
func (d *Dir) OpenSince(name string, oldest, version byte, visit func(record []byte) error) (*Log, Recovery, error) {
	l := &Log{dir: d, path: filepath.Join(d.path, name), version: version}
	if err := d.disk.Remove(l.temp()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, Recovery{}, fmt.Errorf("removing what is left of a rewrite: %w", err)
	}
	rec, found, err := l.replay(oldest, visit)
	if err != nil {
		return nil, rec, err
	}
	switch {
	case found == 0:
		err = l.create()
	case found < version:
		err = l.upgrade()
	default:
		err = l.confirm()
	}
	if err != nil {
		return nil, rec, err
	}
	return l, rec, nil
}

// confirm makes what was found certain, before anybody builds on it: a process that was
// killed may have written it, or put it in another's place, and not synced it any more.
func (l *Log) confirm() error {
	f, err := l.dir.disk.Open(l.path, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("syncing log: %w", err)
	}
	l.renamed = true
	return l.syncDir()
}

// temp is the file that a rewrite is written to.
func (l *Log) temp() string { return l.path + ".tmp" }

// create makes an empty log, by the way of a rewrite of nothing.
func (l *Log) create() error {
	w, err := l.Rewrite()
	if err != nil {
		return err
	}
	return w.Commit()
}

// upgrade makes the log one of this version, by the way of a rewrite of all that it has: a
// crash leaves the one or the other.
func (l *Log) upgrade() error {
	f, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("opening log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(int64(headerSize), 0); err != nil {
		return fmt.Errorf("reading log: %w", err)
	}
	w, err := l.Rewrite()
	if err != nil {
		return err
	}
	size := l.size - int64(headerSize)
	good, err := scan(f, size, w.Append)
	if err == nil && good < size {
		err = fmt.Errorf("reading log: it ends after %d of %d bytes", good, size)
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	_ = f.Close() // or some systems would not replace it
	return w.Commit()
}

// replay reads the file, if there is one that can be told to be a log, and cuts
// off its end if that is damaged. It returns the version that is found, 0 for none.
func (l *Log) replay(oldest byte, visit func([]byte) error) (rec Recovery, found byte, err error) {
	f, err := os.OpenFile(l.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, 0, nil
	}
	if err != nil {
		return rec, 0, fmt.Errorf("opening log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return rec, 0, fmt.Errorf("opening log: %w", err)
	}
	h := make([]byte, headerSize)
	n, err := f.ReadAt(h, 0)
	if err != nil && shorter(err) != nil {
		return rec, 0, fmt.Errorf("reading log: %w", err)
	}
	fileFormat, fileVersion, ok := readHeader(h[:n])
	switch {
	case !ok:
		rec.Dropped = info.Size()
		_ = f.Close() // or some systems would not rename it
		rec.SetAside, err = l.setAside()
		return rec, 0, err
	case fileFormat > format || fileVersion > l.version:
		return rec, 0, fmt.Errorf("opening log %q: %w", l.path, ErrNewer)
	case fileFormat < format || fileVersion < max(oldest, 1):
		return rec, 0, fmt.Errorf("opening log %q: version %d.%d is not known", l.path, fileFormat, fileVersion)
	}

	if _, err := f.Seek(int64(headerSize), 0); err != nil {
		return rec, 0, fmt.Errorf("reading log: %w", err)
	}
	size := info.Size() - int64(headerSize)
	var visitErr error
	good, err := scan(f, size, func(record []byte) error {
		visitErr = visit(record)
		rec.Records++
		return visitErr
	})
	if visitErr != nil {
		return rec, 0, visitErr
	}
	if err != nil {
		return rec, 0, fmt.Errorf("reading log: %w", err)
	}
	l.size = int64(headerSize) + good
	if rec.Dropped = size - good; rec.Dropped > 0 {
		if err := f.Truncate(l.size); err != nil {
			return rec, 0, fmt.Errorf("cutting off the end of a log: %w", err)
		}
	}
	return rec, fileVersion, nil
}

// setAside renames a file that is no log, or is not known to be one any more.
func (l *Log) setAside() (path string, err error) {
	path = l.path + ".damaged"
	if err := l.dir.disk.Rename(l.path, path); err != nil {
		return "", fmt.Errorf("setting a damaged log aside: %w", err)
	}
	return path, nil
}
