package appendlog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const name = "test.log"

func mustLock(t testing.TB, path string) *Dir {
	t.Helper()
	d, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// mustOpen opens the log of a directory, and returns its records.
func mustOpen(t testing.TB, d *Dir) (*Log, []string, Recovery) {
	t.Helper()
	var records []string
	l, rec, err := d.Open(name, 1, func(r []byte) error {
		records = append(records, string(r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if rec.Records != len(records) {
		t.Errorf("%d records are reported, %d were seen", rec.Records, len(records))
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, records, rec
}

func appendAll(t testing.TB, l *Log, records ...string) {
	t.Helper()
	for _, r := range records {
		if err := l.Append([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
}

func mustSync(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
}

// write makes a log of records in a directory of its own, and returns its bytes.
func write(t testing.TB, records ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	d := mustLock(t, dir)
	l, _, _ := mustOpen(t, d)
	appendAll(t, l, records...)
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return contents(t, dir)
}

func contents(t testing.TB, dir string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// reopened returns the records that a log of these bytes is found to have, and
// that it goes on as one without damage.
func reopened(t testing.TB, dir string, data []byte) ([]string, Recovery) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
	d := mustLock(t, dir)
	l, records, rec := mustOpen(t, d)
	appendAll(t, l, "more")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, again, recAgain := mustOpen(t, d)
	if !slices.Equal(again, append(slices.Clone(records), "more")) || recAgain.Dropped != 0 {
		t.Fatalf("had %q, one more was appended, now %q (%+v)", records, again, recAgain)
	}
	if err := errors.Join(l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	return records, rec
}

// disk opens files that fail as the test says.
type disk struct {
	System
	open, write, sync error
	// room is how many bytes of a write that fails are written.
	room int
}

func (k *disk) use(l *Log) {
	l.dir.disk, l.f = k, nil
}

func (k *disk) Open(path string, flag int) (File, error) {
	if k.open != nil {
		return nil, k.open
	}
	f, err := k.System.Open(path, flag)
	return &diskFile{f, k}, err
}

type diskFile struct {
	File
	k *disk
}

func (f *diskFile) WriteAt(b []byte, at int64) (int, error) {
	if f.k.write == nil {
		return f.File.WriteAt(b, at)
	}
	n, err := f.File.WriteAt(b[:min(f.k.room, len(b))], at)
	return n, errors.Join(f.k.write, err)
}

func (f *diskFile) Sync() error {
	if f.k.sync != nil {
		return f.k.sync
	}
	return f.File.Sync()
}
