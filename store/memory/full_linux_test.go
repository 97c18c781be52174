package memory

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// fill has the disk of a directory be full until free is called. /dev/full is one that
// always is.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, logName)
	if err := errors.Join(os.Rename(path, path+".away"), os.Symlink("/dev/full", path)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.Remove(path), os.Rename(path+".away", path)); err != nil {
			t.Fatal(err)
		}
	}
}

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
	free := fill(t, dir)
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
	free()
	j.tick()
	if len(reports) != 2 || reports[1] != nil {
		t.Errorf("got the reports %v", reports)
	}
	after, _ := persisted(t, c, crashed(t, dir))
	wantUsed(t, after, app(1), monthly, 15)
	wantUsed(t, after, app(2), monthly, 21)
}

// Who is told that a limit is set counts on it after a crash.
func TestOwnLimitsThatTheDiskDoesNotTakeAreTold(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	override(t, s, app(1), hourly, 5)
	override(t, s, app(2), hourly, 6)
	s.journal.halt()
	defer s.journal.resume()
	if err := s.journal.rewrite(); err != nil { // after which the file is opened anew
		t.Fatal(err)
	}
	free := fill(t, dir)
	limit := int64(7)
	for _, err := range []error{
		s.Override(t.Context(), app(1), hourly.ID, &limit),
		s.Override(t.Context(), app(2), hourly.ID, nil),
	} {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("got %v", err)
		}
	}
	wantOwn(t, s, app(1), map[string]int64{hourly.ID: 7}) // in force all the same
	wantOwn(t, s, app(2), nil)
	free()
	if err := s.Override(t.Context(), app(1), hourly.ID, &limit); err != nil {
		t.Errorf("told again, with room on the disk: %v", err)
	}
	after, _ := persisted(t, c, crashed(t, dir))
	wantOwn(t, after, app(1), map[string]int64{hourly.ID: 7})
	wantOwn(t, after, app(2), nil)
}
