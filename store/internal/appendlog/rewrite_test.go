package appendlog

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func mustRewrite(t testing.TB, l *Log, records ...string) *Rewrite {
	t.Helper()
	w, err := l.Rewrite()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := w.Append([]byte(r)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func TestARewriteTakesTheLogsPlace(t *testing.T) {
	d := mustLock(t, t.TempDir())
	l, _, _ := mustOpen(t, d)
	appendAll(t, l, "old", "older")
	mustSync(t, l)
	appendAll(t, l, "not synced")
	w := mustRewrite(t, l, "kept")
	appendAll(t, l, "meanwhile")
	mustSync(t, l)
	appendAll(t, l, "just now")
	before := l.Size()
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if l.Size() >= before || l.Unsynced() != 0 {
		t.Errorf("%d bytes of %d are left, %d not synced", l.Size(), before, l.Unsynced())
	}
	appendAll(t, l, "after")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, records, _ := mustOpen(t, d); !slices.Equal(records, []string{"kept", "meanwhile", "just now", "after"}) {
		t.Errorf("got %q", records)
	}
}

// Long enough to be written and synced in parts.
func TestLongRewrites(t *testing.T) {
	d := mustLock(t, t.TempDir())
	l, _, _ := mustOpen(t, d)
	var want []string
	for i := range 25 {
		want = append(want, strings.Repeat(string(rune('a'+i)), 1<<20))
	}
	if err := mustRewrite(t, l, want...).Commit(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, records, _ := mustOpen(t, d); !slices.Equal(records, want) {
		t.Errorf("%d records, want %d", len(records), len(want))
	}
}

func TestRewritesThatFailChangeNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		disk disk
	}{
		{"a full disk", disk{write: syscall.ENOSPC, room: 3}},
		{"a sync that fails", disk{sync: syscall.EIO}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := mustLock(t, t.TempDir())
			l, _, _ := mustOpen(t, d)
			var k disk
			k.use(l)
			appendAll(t, l, "old")
			mustSync(t, l)
			w := mustRewrite(t, l, "new")
			appendAll(t, l, "meanwhile")
			k = tc.disk
			if err := w.Commit(); !errors.Is(err, errors.Join(k.write, k.sync)) && !errors.Is(err, k.write) && !errors.Is(err, k.sync) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(l.temp()); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the new file is left: %v", err)
			}
			k = disk{}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if _, records, _ := mustOpen(t, d); !slices.Equal(records, []string{"old", "meanwhile"}) {
				t.Errorf("got %q", records)
			}
		})
	}
}

func TestAbortedRewritesChangeNothing(t *testing.T) {
	d := mustLock(t, t.TempDir())
	l, _, _ := mustOpen(t, d)
	w := mustRewrite(t, l, "new")
	if _, err := l.Rewrite(); err == nil {
		t.Error("a second rewrite began")
	}
	appendAll(t, l, "meanwhile")
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	if err := w.Commit(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := mustRewrite(t, l, "newest").Commit(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, records, _ := mustOpen(t, d); !slices.Equal(records, []string{"newest"}) {
		t.Errorf("got %q", records)
	}
}

func TestWhatACrashLeavesOfARewriteIsRemoved(t *testing.T) {
	dir := t.TempDir()
	d := mustLock(t, dir)
	l, _, _ := mustOpen(t, d)
	appendAll(t, l, "old")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, name+".tmp")
	if err := os.WriteFile(temp, []byte("half a l"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, records, rec := mustOpen(t, d)
	if !slices.Equal(records, []string{"old"}) || rec.Dropped != 0 {
		t.Errorf("got %q, %+v", records, rec)
	}
	if _, err := os.Stat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestARewriteOfAClosedLog(t *testing.T) {
	l, _, _ := mustOpen(t, mustLock(t, t.TempDir()))
	w := mustRewrite(t, l, "new")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := l.Rewrite(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkAppendSync(b *testing.B) {
	l, _, _ := mustOpen(b, mustLock(b, b.TempDir()))
	record := []byte(strings.Repeat("x", 120))
	b.SetBytes(100 * int64(len(record)))
	for b.Loop() {
		for range 100 {
			if err := l.Append(record); err != nil {
				b.Fatal(err)
			}
		}
		mustSync(b, l)
	}
}
