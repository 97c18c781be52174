//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package appendlog

import (
	"errors"
	"os"
)

// lock refuses: two processes could not be kept apart.
func lock(*os.File) error { return errors.ErrUnsupported }

func syncDir(string) error { return nil }
