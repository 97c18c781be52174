package memory

import (
	"os"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// What was cleared, granted or taken away after a directory was left, or copied, does not
// come back with it; nor does it after the next start.
func TestWhatWasGivenBackDoesNotComeBackWithADirectory(t *testing.T) {
	c, dir, copied := newClock(), t.TempDir(), t.TempDir()
	s, _ := persisted(t, c, dir)
	persist := func(dir string) {
		t.Helper()
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
	}
	const cleared, granted, limited, untouched = 1, 2, 3, 4
	for i := cleared; i <= untouched; i++ {
		adjust(t, s, app(i), monthly, 100)
		adjust(t, s, app(i), hourly, 10)
	}
	override(t, s, app(limited), monthly, 7)
	mustSync(t, s)
	if err := os.CopyFS(copied, os.DirFS(crashed(t, dir))); err != nil {
		t.Fatal(err)
	}
	persist("")
	if err := s.Clear(t.Context(), app(cleared)); err != nil {
		t.Fatal(err)
	}
	adjust(t, s, app(granted), monthly, -70)
	if err := s.Override(t.Context(), app(limited), monthly.ID, nil); err != nil {
		t.Fatal(err)
	}
	c.step(2 * time.Hour)
	adjust(t, s, app(9), monthly, 1) // which has what says nothing dropped
	check := func(s *Store) {
		t.Helper()
		wantUsed(t, s, app(cleared), monthly, 0)
		wantUsed(t, s, app(granted), monthly, 30)
		wantUsed(t, s, app(limited), monthly, 100)
		wantOwn(t, s, app(limited), nil)
		wantUsed(t, s, app(untouched), monthly, 100)
		wantUsed(t, s, app(9), monthly, 1)
	}
	for _, dir := range []string{dir, copied, dir} {
		persist(dir)
		check(s)
		mustSync(t, s)
		next, _ := persisted(t, c, crashed(t, dir))
		check(next)
		mustClose(t, next)
		persist("")
		check(s)
	}
}

// Another process has had the directory meanwhile: what that counted is news.
func TestWhatAnotherProcessCountedMeanwhileIsTakenIn(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		c, dir := newClock(), t.TempDir()
		s, _ := persisted(t, c, dir)
		for i := range 3 {
			adjust(t, s, app(i), monthly, 100)
		}
		mustClose(t, s)

		other, _ := persisted(t, c, dir)
		adjust(t, other, app(1), monthly, 5)
		adjust(t, other, app(7), monthly, 7)
		override(t, other, app(2), monthly, 1000)
		if rewritten {
			if err := other.journal.rewrite(); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, other)

		adjust(t, s, app(2), monthly, -60)
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
		check := func(s *Store) {
			t.Helper()
			wantUsed(t, s, app(0), monthly, 100)
			wantUsed(t, s, app(1), monthly, 105)
			wantUsed(t, s, app(7), monthly, 7)
			wantOwn(t, s, app(2), map[string]int64{monthly.ID: 1000})
			if !rewritten { // which says nothing else of it
				wantUsed(t, s, app(2), monthly, 40)
			}
		}
		check(s)
		mustSync(t, s)
		next, _ := persisted(t, c, crashed(t, dir))
		check(next)
		mustClose(t, next)
	}
}

// A version without marks would write what looks like the last process's.
func TestVersionsBeforeMarksDoNotTakeAFile(t *testing.T) {
	mark := newMark()
	if !isMark(mark) || isMark(mark[:markSize-1]) || recordVersion < 3 {
		t.Error("a mark is none")
	}
	if _, _, err := newDecoder().decodeOverrides(mark); err == nil {
		t.Error("a mark is read as limits")
	}
	var o overrides
	limit := int64(5)
	for _, e := range []store.Entity{{Instance: "i"}, {Instance: "instance-and-so", Consumer: ""}} {
		o.set(e, "r", &limit)
		if isMark(o.appendRecord(nil, e)) {
			t.Errorf("the limits of %+v are read as a mark", e)
		}
	}
}
