//go:build unix && !linux

package redistest

import "syscall"

// endWithParent does nothing where the kernel offers no such thing.
func endWithParent() *syscall.SysProcAttr { return nil }
