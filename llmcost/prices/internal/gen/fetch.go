package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// maxUnpacked bounds a file of the package.
const maxUnpacked = 16 << 20

// fetch gets a package from the registry that npm is set up for, and takes it only if
// its SHA-256 is the expected one. None of its scripts is run.
func fetch(ctx context.Context, name, sum string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "prices")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)

	npm := exec.CommandContext(ctx, "npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", dir, name)
	npm.Dir = dir
	npm.Stderr = os.Stderr
	if err := npm.Run(); err != nil {
		return nil, fmt.Errorf("running npm pack %s: %w", name, err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("npm pack %s wrote %d archives", name, len(found))
	}
	archive, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	if got := sha256.Sum256(archive); hex.EncodeToString(got[:]) != sum {
		return nil, fmt.Errorf("%s has the SHA-256 %x, not %s", name, got, sum)
	}
	return archive, nil
}

// unpack reads the named files of a gzipped tar archive.
func unpack(archive []byte, names ...string) (map[string][]byte, error) {
	zr, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte, len(names))
	for _, name := range names {
		files[name] = nil
	}
	tr := tar.NewReader(zr)
	for {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if _, wanted := files[header.Name]; !wanted {
			continue
		}
		if header.Size > maxUnpacked {
			return nil, fmt.Errorf("%q is of %d bytes", header.Name, header.Size)
		}
		if files[header.Name], err = io.ReadAll(tr); err != nil {
			return nil, err
		}
	}
	for name, data := range files {
		if data == nil {
			return nil, fmt.Errorf("no file %q", name)
		}
	}
	return files, nil
}
