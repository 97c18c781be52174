package redistest

import "syscall"

// endWithParent has the kernel end a server whose test process was killed or ran
// into its time limit, which run no cleanup.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
