package appendlog

import (
	"io"
	"os"
	"path/filepath"
)

// Disk is how logs change files. Tests have one that fails, or that a process dies on.
// What is there already is read from the file system in any case.
type Disk interface {
	// Open opens a file for writing; the flag is that of os.OpenFile.
	Open(path string, flag int) (File, error)
	// Rename puts a file in the place of another, at one instant.
	Rename(from, to string) error
	// Remove takes a file away.
	Remove(path string) error
	// SyncDir makes it certain which files a directory has.
	SyncDir(path string) error
}

// File is what a log needs of an *os.File.
type File interface {
	io.WriterAt
	Sync() error
	Close() error
}

// System is the file system as it is.
type System struct{}

// Open implements Disk. Files that it makes are for their owner alone.
func (System) Open(path string, flag int) (File, error) {
	f, err := os.OpenFile(filepath.Clean(path), flag, 0o600)
	if err != nil {
		return nil, err // not f: a nil *os.File is no nil File
	}
	return f, nil
}

// Rename implements Disk.
func (System) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements Disk.
func (System) Remove(path string) error { return os.Remove(path) }

// SyncDir implements Disk. It does nothing where a system cannot do it.
func (System) SyncDir(path string) error { return syncDir(path) }

// Interface guard
var _ Disk = System{}
