//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package appendlog

import (
	"errors"
	"os"
	"syscall"
)

// lock takes a file for this process, without waiting.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}

// syncDir makes new names in a directory certain.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
