package memory

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// A directory that cannot be used after all has had some of what the one before is yet to
// be told.
func TestWhatADirectoryWasToldThatFailedIsWrittenToTheOneBefore(t *testing.T) {
	for room := 0; room < 1000; room += 20 {
		c, dir, disk := newClock(), t.TempDir(), crashtest.New()
		s := c.store()
		s.disk, s.apart = disk, 0
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
		adjust(t, s, app(1), monthly, 5)
		disk.Fail(room, syscall.ENOSPC)
		_, err := s.Persist(t.TempDir())
		disk.Fail(0, nil)
		mustSync(t, s)
		in := s.Dir()
		if err != nil != (in == dir) {
			t.Errorf("got %v, and counts are in %q", err, in)
		}
		after := unsynced(t, c, killed(t, in))
		wantUsed(t, after, app(1), monthly, 5)
		mustClose(t, after)
		mustClose(t, s)
	}
}

// What was given back just before, of a consumer that is forgotten since, is told to both
// directories: the new one is given up, and the old one may not charge it again.
func TestWhatIsGivenBackDuringAMoveThatFailsStaysGivenBack(t *testing.T) {
	for room := 100; room < 600; room += 20 {
		c, dir, disk := newClock(), t.TempDir(), crashtest.New()
		s := c.store()
		s.disk, s.apart = disk, 0
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
		adjust(t, s, app(1), monthly, 5)
		adjust(t, s, app(2), monthly, 7)
		mustSync(t, s)
		adjust(t, s, app(1), monthly, -5)
		_, sh := s.shard(app(1))
		sh.mu.Lock()
		s.sweep(sh, c.Now().UnixMilli(), sweepFull)
		sh.mu.Unlock()
		disk.Fail(room, syscall.ENOSPC)
		_, _ = s.Persist(t.TempDir())
		disk.Fail(0, nil)
		mustSync(t, s)
		after := unsynced(t, c, killed(t, s.Dir()))
		wantUsed(t, after, app(1), monthly, 0)
		wantUsed(t, after, app(2), monthly, 7)
		mustClose(t, after)
		mustClose(t, s)
	}
}

// Wherever a process dies in a move, all is in one directory: in the old one, or in the new
// one if a file of the old one is gone.
func TestAProcessThatDiesInAMoveLeavesAllInOneDirectory(t *testing.T) {
	for acts := 0; ; acts++ {
		c, dir, to, disk := newClock(), t.TempDir(), t.TempDir(), crashtest.New()
		s := c.store()
		s.disk, s.apart = disk, 0
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
		adjust(t, s, app(1), monthly, 5)
		override(t, s, app(2), monthly, 7)
		putKey(t, s, keyOf("a"))
		putKey(t, s, keyOf("b"))
		deleteKey(t, s, "b")
		mustSync(t, s)
		disk.KillBetween(acts)
		_, _ = s.Persist(to)
		if !disk.Dead() {
			mustClose(t, s)
			return
		}
		_ = s.Close() // which writes nothing any more
		in := dir
		for _, name := range []string{logName, keysName} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				in = to
			}
		}
		next := unsynced(t, c, in)
		wantUsed(t, next, app(1), monthly, 5)
		wantOwn(t, next, app(2), map[string]int64{monthly.ID: 7})
		wantKeys(t, next, "a")
		mustClose(t, next)
		if t.Failed() {
			t.Fatalf("it died after %d acts, and %q was found", acts, in)
		}
	}
}
