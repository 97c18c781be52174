package apikeyauth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	// lockPatience is how long a change of a keys file waits for those before it.
	lockPatience = 10 * time.Second
	// lockRetry is how often it looks whether they are done.
	lockRetry = 5 * time.Millisecond
)

var errLocked = errors.New("others change it all the time: try again")

// lockFile has a keys file for this caller alone among those who change keys files here,
// until it calls unlock. It does not lock the file, which is replaced with each change,
// but one beside it. That stays: to remove it would let two lock two files of the name.
// Where the system or the file system knows no locks there is none.
func lockFile(path string) (unlock func(), err error) {
	beside := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	if err := makeLock(beside, path); err != nil {
		return nil, err
	}
	l := flock.New(beside)
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	switch _, err := l.TryLockContext(ctx, lockRetry); {
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENOLCK): // such as NFS without its lock service
		return func() {}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, errLocked
	case err != nil:
		return nil, err
	}
	return func() { _ = l.Close() }, nil
}

// makeLock makes the file that is locked, if there is none, for the owner of the file
// beside it: whoever may change that may lock it.
func makeLock(path, beside string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := os.Stat(beside)
	if err != nil {
		return nil // there is none yet
	}
	if err := keepOwner(f, info); err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("giving %q the file's owner: %w", path, err)
	}
	return nil
}
