package memory

import (
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
		after, _ := persisted(t, c, killed(t, in))
		wantUsed(t, after, app(1), monthly, 5)
		mustClose(t, after)
		mustClose(t, s)
	}
}
