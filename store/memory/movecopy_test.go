package memory

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// hookedDisk tells of what is done, before it is.
type hookedDisk struct {
	*crashtest.Disk
	opening  func(path string)
	renaming func(to string) error // an error is that of the disk
}

func (d *hookedDisk) Open(path string, flag int) (appendlog.File, error) {
	if d.opening != nil {
		d.opening(path)
	}
	return d.Disk.Open(path, flag)
}

func (d *hookedDisk) Rename(from, to string) error {
	if d.renaming != nil {
		if err := d.renaming(to); err != nil {
			return err
		}
	}
	return d.Disk.Rename(from, to)
}

// hooked returns a store that has the directory and writes only when it is told to.
func hooked(t *testing.T, c *clock, dir string) (*Store, *hookedDisk) {
	t.Helper()
	d := &hookedDisk{Disk: crashtest.New()}
	s := c.store()
	s.disk, s.apart = d, 0
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	j := s.journal
	j.halt()
	j.stop, j.done = make(chan struct{}), make(chan struct{})
	close(j.done) // it can be halted again
	return s, d
}

// The other directory is a copy of the one before, and cannot be used after all. What was
// taken away and given back meanwhile is told to the one before.
func TestWhatIsTakenAwayDuringAMoveToACopyThatFailsStaysAway(t *testing.T) {
	c, dir, to := newClock(), t.TempDir(), t.TempDir()
	s, disk := hooked(t, c, dir)
	override(t, s, app(1), monthly, 7)
	adjust(t, s, app(2), monthly, 5)
	mustSync(t, s)
	if err := os.CopyFS(to, os.DirFS(crashed(t, dir))); err != nil {
		t.Fatal(err)
	}
	var deleting sync.WaitGroup
	var once sync.Once
	disk.opening = func(path string) {
		if filepath.Dir(path) != to || !strings.HasSuffix(path, logName+".tmp") {
			return
		}
		once.Do(func() {
			deleting.Go(func() {
				if err := s.Override(t.Context(), app(1), monthly.ID, nil); err != nil {
					t.Error(err)
				}
			})
			for s.limitsOf(app(1)) != nil {
				time.Sleep(time.Millisecond)
			}
			adjust(t, s, app(2), monthly, -5)
			_, sh := s.shard(app(2))
			sh.mu.Lock()
			s.sweep(sh, c.Now().UnixMilli(), sweepFull)
			sh.mu.Unlock()
		})
	}
	disk.renaming = func(path string) error {
		if path == filepath.Join(to, logName) {
			return syscall.ENOSPC
		}
		return nil
	}
	if _, err := s.Persist(to); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
	deleting.Wait()
	mustSync(t, s)
	after := unsynced(t, c, killed(t, dir))
	wantOwn(t, after, app(1), nil)
	wantUsed(t, after, app(2), monthly, 0)
}

// As above, and the process dies when nearly all is moved: the directory before was told.
func TestAProcessThatDiesInAMoveToACopyLeavesAllInTheDirectoryBefore(t *testing.T) {
	c, dir, to := newClock(), t.TempDir(), t.TempDir()
	s, disk := hooked(t, c, dir)
	adjust(t, s, app(1), monthly, 1)
	putKey(t, s, keyOf("k"))
	mustSync(t, s)
	if err := os.CopyFS(to, os.DirFS(crashed(t, dir))); err != nil {
		t.Fatal(err)
	}
	spent, left := false, ""
	disk.opening = func(path string) {
		switch path {
		case filepath.Join(to, logName+".tmp"):
			if !spent {
				spent = true
				adjust(t, s, app(1), monthly, 1000)
			}
		case filepath.Join(to, keysName+".tmp"):
			if spent {
				left = killed(t, dir)
			}
		}
	}
	if _, err := s.Persist(to); err != nil {
		t.Fatal(err)
	}
	if left == "" {
		t.Fatal("the keys were not moved last")
	}
	wantUsed(t, unsynced(t, c, left), app(1), monthly, 1001)
}

// Both directories are on a disk that is full. What was found in the new one works, and is
// written to the old one when there is room.
func TestKeysOfADirectoryThatFailedAreWrittenOnceThereIsRoom(t *testing.T) {
	late := 0 // how often both were full
	for room := 0; room < 400; room += 20 {
		c, dir, to, disk := newClock(), t.TempDir(), t.TempDir(), crashtest.New()
		other := unsynced(t, c, to)
		putKey(t, other, keyOf("theirs"))
		mustClose(t, other)
		s := c.store()
		s.disk, s.apart = disk, 0
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
		putKey(t, s, keyOf("ours"))
		disk.Fail(room, syscall.ENOSPC)
		_, err := s.Persist(to)
		if s.keys.lacking {
			late++
			if s.Sync() == nil {
				t.Error("all is said to be on a disk that is full")
			}
		}
		disk.Fail(0, nil)
		if room%40 == 0 {
			mustSync(t, s)
		} else {
			mustClose(t, s) // which writes it, too
		}
		if err == nil {
			continue
		}
		want := []string{"ours"}
		if s.keyOfID("theirs").ID != "" {
			want = append(want, "theirs")
		}
		next := unsynced(t, c, killed(t, dir))
		wantKeys(t, next, want...)
		mustClose(t, next)
		mustClose(t, s)
	}
	if late < 2 {
		t.Errorf("both were full %d times", late)
	}
}
