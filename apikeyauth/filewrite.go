package apikeyauth

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// emptyKeysFile is what a new keys file begins as.
const emptyKeysFile = "{\n  \"keys\": []\n}\n"

// changeFile changes a keys file, whole or not at all: whoever reads it meanwhile, and
// whenever the machine fails, finds the old text or the new one. Its mode and owner
// stay. A file that there is not is made for its owner alone to read, if create is set.
// Of several who change it at once, one after the other does.
func changeFile(path string, create bool, change func(*keysText) ([]byte, error)) error {
	// a symbolic link stays one
	target, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		target = path
	case err != nil:
		return err
	}
	unlock, err := lockFile(target)
	if err != nil {
		return fmt.Errorf("locking %q: %w", path, err)
	}
	defer unlock()
	before, info, err := readKeysFile(target)
	missing := errors.Is(err, fs.ErrNotExist) && create
	if err != nil && !missing {
		return err
	}
	text := before
	if missing {
		text = []byte(emptyKeysFile)
	}
	t, err := parseText(text)
	if err != nil {
		return fmt.Errorf("reading %q: %w", path, err)
	}
	after, err := change(t)
	if err != nil {
		return fmt.Errorf("changing %q: %w", path, err)
	}
	unchanged := func() error {
		now, _, err := readKeysFile(target)
		if missing && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if missing || !bytes.Equal(now, before) {
			return errors.New("somebody else has changed it at this moment: try again")
		}
		return nil
	}
	if err := replaceFile(target, after, info, unchanged); err != nil {
		return fmt.Errorf("writing %q: %w", path, err)
	}
	return nil
}

func readKeysFile(path string) ([]byte, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%q is not a regular file", path)
	}
	if info.Size() > maxKeysFile {
		return nil, nil, fmt.Errorf("%q is larger than %d bytes", path, maxKeysFile)
	}
	text, err := os.ReadFile(path)
	return text, info, err
}

// replaceFile puts a file of the same mode and owner in the place of another, if that is
// unchanged at the last moment. The info is nil if there is none.
func replaceFile(path string, text []byte, info os.FileInfo, unchanged func() error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if info != nil {
		// the owner first: to change it takes special bits of the mode away
		if err := keepOwner(f, info); err != nil {
			return fmt.Errorf("keeping its owner: %w", err)
		}
		if err := f.Chmod(info.Mode()); err != nil {
			return fmt.Errorf("keeping its mode: %w", err)
		}
	}
	if _, err := f.Write(text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := unchanged(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	// some systems cannot sync a directory; the file is whole in any case
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}
