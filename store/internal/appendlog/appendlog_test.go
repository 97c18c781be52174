package appendlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func TestADirectoryBelongsToOne(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := mustLock(t, dir)
	_, err := Lock(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "give each its own") {
		t.Errorf("got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := mustLock(t, dir)
	if again.Path() != dir {
		t.Errorf("got the path %q", again.Path())
	}
}

func TestDirectoriesThatCannotBeMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(filepath.Join(path, "dir")); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
}

func TestOthersCannotRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no modes")
	}
	dir := filepath.Join(t.TempDir(), "llm")
	l, _, _ := mustOpen(t, mustLock(t, dir))
	appendAll(t, l, "a")
	mustSync(t, l)
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, name): 0o600, filepath.Join(dir, lockName): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has the mode %o", path, got)
		}
	}
}

func TestOnlyWhatIsSyncedIsInTheFile(t *testing.T) {
	dir := t.TempDir()
	l, _, _ := mustOpen(t, mustLock(t, dir))
	empty := len(contents(t, dir))
	appendAll(t, l, "a", "b")
	if got := len(contents(t, dir)); got != empty {
		t.Errorf("appending wrote %d bytes", got-empty)
	}
	want := 2 * (frameSize + 1)
	if l.Unsynced() != want || l.Size() != int64(empty+want) {
		t.Errorf("%d of %d bytes are not synced", l.Unsynced(), l.Size())
	}
	mustSync(t, l)
	if got := len(contents(t, dir)); got != empty+want || l.Unsynced() != 0 || l.Size() != int64(got) {
		t.Errorf("the file has %d bytes, want %d; %d of %d are not synced", got, empty+want, l.Unsynced(), l.Size())
	}
}

func TestErrorsOfTheDiskAreRetried(t *testing.T) {
	for _, tc := range []struct {
		name string
		disk disk
	}{
		{"no file", disk{open: syscall.EMFILE}},
		{"a full disk", disk{write: syscall.ENOSPC}},
		{"a disk that is full after some bytes", disk{write: syscall.ENOSPC, room: 13}},
		{"a sync that fails", disk{sync: syscall.EIO}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := mustLock(t, t.TempDir())
			l, _, _ := mustOpen(t, d)
			k := tc.disk
			k.use(l)
			want := errors.Join(k.open, k.write, k.sync)
			appendAll(t, l, "one", "two")
			for range 3 {
				if err := l.Sync(); err == nil || !errors.Is(want, errors.Unwrap(err)) && !strings.Contains(err.Error(), want.Error()) {
					t.Fatalf("got %v, want %v", err, want)
				}
			}
			appendAll(t, l, "three")
			k = disk{}
			mustSync(t, l)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, records, rec := mustOpen(t, d); !slices.Equal(records, []string{"one", "two", "three"}) || rec.Dropped != 0 {
				t.Errorf("got %q, %+v", records, rec)
			}
		})
	}
}

func TestClosingTellsWhatCannotBeWritten(t *testing.T) {
	l, _, _ := mustOpen(t, mustLock(t, t.TempDir()))
	(&disk{write: syscall.ENOSPC}).use(l)
	appendAll(t, l, "lost")
	if err := l.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if err := l.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestRecordsThatAreTooLong(t *testing.T) {
	l, _, _ := mustOpen(t, mustLock(t, t.TempDir()))
	if err := l.Append(make([]byte, MaxRecord+1)); err == nil || l.Unsynced() != 0 {
		t.Errorf("got %v", err)
	}
}

func TestRemovedLogsAreGone(t *testing.T) {
	d := mustLock(t, t.TempDir())
	l, _, _ := mustOpen(t, d)
	appendAll(t, l, "a")
	mustSync(t, l)
	if err := l.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, records, _ := mustOpen(t, d); len(records) != 0 {
		t.Errorf("got %q", records)
	}
}

// Many goroutines append, and sync meanwhile.
func TestManyAppendAtOnce(t *testing.T) {
	const writers, each = 8, 200
	d := mustLock(t, t.TempDir())
	l, _, _ := mustOpen(t, d)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				if err := l.Append(fmt.Appendf(nil, "%d %03d", i, j)); err != nil {
					t.Error(err)
				}
				if j%50 == i {
					if err := l.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, records, _ := mustOpen(t, d)
	var want []string
	for i := range writers {
		for j := range each {
			want = append(want, fmt.Sprintf("%d %03d", i, j))
		}
	}
	if slices.Sort(records); !slices.Equal(records, want) {
		t.Errorf("%d records, want %d", len(records), len(want))
	}
}

// A log of the last value of each key, as its users keep it, on a disk that fails
// at times and with rewrites at any time: after any of it, a crash leaves a state
// no older than what was synced last, and never one that was not appended.
func TestWhatIsSyncedSurvives(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir := t.TempDir()
		d := mustLock(t, dir)
		l, _, _ := mustOpen(t, d)
		var k disk
		k.use(l)
		synced, latest := map[string]int{}, map[string]int{}
		var w *Rewrite
		put := func(key string, n int) []byte { return fmt.Appendf(nil, "%s %d", key, n) }
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				key := rapid.StringMatching("[a-d]").Draw(r, "key")
				latest[key]++
				if err := l.Append(put(key, latest[key])); err != nil {
					r.Fatal(err)
				}
			},
			"sync": func(r *rapid.T) {
				if err := l.Sync(); err == nil {
					for key, n := range latest {
						synced[key] = n
					}
				} else if k == (disk{}) {
					r.Fatal(err)
				}
			},
			"disk": func(r *rapid.T) {
				k = rapid.SampledFrom([]disk{{}, {}, {write: syscall.ENOSPC, room: 5}, {sync: syscall.EIO}, {open: syscall.EMFILE}}).Draw(r, "disk")
			},
			"rewrite": func(r *rapid.T) {
				if w != nil {
					return
				}
				var err error
				if w, err = l.Rewrite(); err != nil {
					return
				}
				for key, n := range latest {
					_ = w.Append(put(key, n)) // Commit has the error
				}
			},
			"commit": func(*rapid.T) {
				if w != nil && w.Commit() == nil {
					for key, n := range latest {
						synced[key] = n
					}
				}
				w = nil
			},
			"abort": func(r *rapid.T) {
				if w != nil {
					if err := w.Abort(); err != nil {
						r.Fatal(err)
					}
				}
				w = nil
			},
			"crash": func(r *rapid.T) {
				if l.f != nil {
					_ = l.f.Close()
				}
				_ = d.Close()
				d = mustLock(t, dir)
				var records []string
				l, records, _ = mustOpen(t, d)
				got := map[string]int{}
				for _, rec := range records {
					var key string
					var n int
					if _, err := fmt.Sscanf(rec, "%s %d", &key, &n); err != nil {
						r.Fatalf("the record %q: %v", rec, err)
					}
					got[key] = n
				}
				for key, n := range latest {
					if got[key] < synced[key] || got[key] > n {
						r.Fatalf("%s is %d, was %d when it was synced and %d last", key, got[key], synced[key], n)
					}
				}
				w, k = nil, disk{}
				k.use(l)
				latest, synced = got, map[string]int{}
				for key, n := range got {
					synced[key] = n
				}
			},
		})
		if w != nil {
			_ = w.Abort()
		}
		_ = errors.Join(l.Close(), d.Close())
	})
}
