package memory

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The disk is full for a time. /dev/full is one that always is.
func TestAFullDiskIsReportedAndLosesNothing(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	var reports []error
	s := New(Options{Now: c.Now, Report: func(err error) { reports = append(reports, err) }})
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j := s.journal
	j.halt()
	defer j.resume()
	path := filepath.Join(dir, logName)
	if err := errors.Join(os.Rename(path, path+".away"), os.Symlink("/dev/full", path)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		adjust(t, s, app(1), monthly, 5)
		adjust(t, s, app(2), monthly, 7)
		j.tick()
		if err := s.Sync(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
	}
	if len(reports) != 1 || !errors.Is(reports[0], syscall.ENOSPC) {
		t.Errorf("got the reports %v", reports)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
		t.Fatal(err)
	}
	j.tick()
	if len(reports) != 2 || reports[1] != nil {
		t.Errorf("got the reports %v", reports)
	}
	after, _ := persisted(t, c, crashed(t, dir))
	wantUsed(t, after, app(1), monthly, 15)
	wantUsed(t, after, app(2), monthly, 21)
}
