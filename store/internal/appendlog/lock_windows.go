package appendlog

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lock takes a file for this process, without waiting.
func lock(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}

// syncDir does nothing: a directory cannot be synced here.
func syncDir(string) error { return nil }
