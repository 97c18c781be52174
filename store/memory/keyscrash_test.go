package memory

import (
	"errors"
	"syscall"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// Who revokes a key and hears that the disk did not take it asks again, and must not hear
// that there is no such key while a crash would bring it back.
func TestARevokedKeyIsUnknownOnlyOnceTheDiskHasIt(t *testing.T) {
	c, dir, disk := newClock(), t.TempDir(), crashtest.New()
	s := c.store()
	s.disk = disk
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putKey(t, s, keyOf("a"))
	disk.Fail(0, syscall.ENOSPC)
	for range 3 {
		err := s.Keys().Delete(t.Context(), "a")
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, store.ErrNoKey) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	wantKeys(t, s) // it works for nobody all the same
	disk.Fail(0, nil)
	if err := s.Keys().Delete(t.Context(), "a"); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("with room on the disk: %v", err)
	}
	next, _ := persisted(t, c, killed(t, dir))
	wantKeys(t, next)
}
