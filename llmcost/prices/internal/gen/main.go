// Command gen writes the built-in price table: it fetches one pinned version of the
// npm package genai-prices, checks what it got, and keeps of it what prices are made
// of. Run it by `go generate ./llmcost/prices`, and with -check to learn whether the
// files of the tree are what it would write.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The version that the built-in table is made of. A new one is a new name, a new sum
// and a new day, which is the one that it was published on.
const (
	packageName = "@pydantic/genai-prices@0.1.8"
	packageSum  = "8c9ba41e46719abc54a0ae4756ba5f2b5a768b8117fb29f40c5ca7ed3146eb5b"
	packageDay  = "2026-09-23"
)

// Files in the package, and what they become.
const (
	dataFile    = "package/dist/index.js"
	licenseFile = "package/LICENSE"

	tableName   = "builtin.json"
	licenseName = "LICENSE.genai-prices"
)

// fetchTimeout is long enough for a slow line, and short enough for CI.
const fetchTimeout = 2 * time.Minute

func main() {
	dir := flag.String("dir", ".", "directory to write to")
	check := flag.Bool("check", false, "write nothing, and fail where a file would change")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
	err := run(ctx, *dir, *check)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, check bool) error {
	archive, err := fetch(ctx, packageName, packageSum)
	if err != nil {
		return err
	}
	files, err := unpack(archive, dataFile, licenseFile)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", packageName, err)
	}
	table, err := convert(files[dataFile], packageName, packageDay)
	if err != nil {
		return fmt.Errorf("converting %s: %w", packageName, err)
	}
	var drift []error
	for name, want := range map[string][]byte{tableName: table, licenseName: files[licenseFile]} {
		path := filepath.Join(dir, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, want) {
			continue
		}
		if check {
			drift = append(drift, fmt.Errorf("%s is not what `go generate` writes", path))
			continue
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(drift...)
}
