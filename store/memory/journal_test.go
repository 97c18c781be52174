package memory

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// The file is rewritten while calls go on; nothing is missed.
func TestFilesStaySmall(t *testing.T) {
	const entities, rounds = 2000, 12
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range entities {
		adjust(t, s, app(i), monthly, 1)
	}
	mustSync(t, s)
	j := s.journal
	j.halt()
	defer j.resume()
	j.slack = 50_000
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	live := j.log.Size()

	var wg sync.WaitGroup
	for range rounds {
		wg.Go(func() {
			for i := range entities {
				adjust(t, s, app(i), monthly, 1)
			}
		})
		j.tick()
	}
	wg.Wait()
	j.tick()
	j.tick()
	if size := j.log.Size(); size > 2*live+j.slack {
		t.Errorf("the file has %d bytes, %d of which matter", size, live)
	}
	after, found := persisted(t, c, crashed(t, dir))
	if found.Entities != entities {
		t.Errorf("%d entities are found", found.Entities)
	}
	for i := range entities {
		wantUsed(t, after, app(i), monthly, 1+rounds)
	}
}

func TestEntitiesThatAreOverLeaveTheFile(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range 1000 {
		adjust(t, s, app(i), hourly, 1)
	}
	mustSync(t, s)
	full := s.journal.log.Size()
	c.step(time.Hour)
	adjust(t, s, app(1), monthly, 1)
	if err := s.journal.rewrite(); err != nil {
		t.Fatal(err)
	}
	if size := s.journal.log.Size(); size > full/100 {
		t.Errorf("the file has %d bytes, and had %d", size, full)
	}
}

func TestRewritesThatFailAreReportedAndDoneLater(t *testing.T) {
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
	j.slack = 50_000
	blocker := filepath.Join(dir, logName+".tmp") // where the new file is to be
	if err := os.MkdirAll(filepath.Join(blocker, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		adjust(t, s, app(i), monthly, 1)
	}
	j.tick()
	j.tick()
	if len(reports) != 1 || reports[0] == nil {
		t.Fatalf("got the reports %v", reports)
	}
	if err := os.RemoveAll(blocker); err != nil {
		t.Fatal(err)
	}
	j.rewrote = time.Time{} // when it is time to try again
	size := j.log.Size()
	for i := range 2000 {
		adjust(t, s, app(i), monthly, 1)
	}
	j.tick()
	if len(reports) != 2 || reports[1] != nil {
		t.Fatalf("got the reports %v", reports)
	}
	if now := j.log.Size(); now > size+1000 {
		t.Errorf("the file has %d bytes, and had %d", now, size)
	}
	after, _ := persisted(t, c, crashed(t, dir))
	for i := range 2000 {
		wantUsed(t, after, app(i), monthly, 2)
	}
}

// Calls go on while the store is given directories, moved and closed.
func TestDirectoriesChangeUnderCalls(t *testing.T) {
	const goroutines = 4
	c := newClock()
	dirs := []string{t.TempDir(), t.TempDir(), ""}
	s := c.store()
	var (
		wg   sync.WaitGroup
		done atomic.Bool
		want [goroutines]int64
	)
	for g := range goroutines {
		wg.Go(func() {
			r := &store.Reservation{Entity: app(g), Lease: time.Minute, Takes: []store.Take{{Rule: monthly, Limit: 1 << 40, Need: 1, Charge: 1}}}
			for !done.Load() {
				k, err := s.Reserve(t.Context(), r, make([]store.Result, 1))
				if err != nil || k == nil {
					t.Errorf("got %v, %v", k, err)
					return
				}
				s.Settle(k, []int64{3})
				want[g] += 3
			}
		})
	}
	for i := range 10 {
		if _, err := s.Persist(dirs[i%len(dirs)]); err != nil {
			t.Error(err)
		}
	}
	done.Store(true)
	wg.Wait()
	if _, err := s.Persist(dirs[0]); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	after, _ := persisted(t, c, dirs[0])
	for g := range goroutines {
		wantUsed(t, s, app(g), monthly, want[g])
		wantUsed(t, after, app(g), monthly, want[g])
	}
}

func TestNotingChangesAllocatesNothing(t *testing.T) {
	c := newClock()
	allocs := func(s *Store) float64 {
		takes := takes(3)
		r := &store.Reservation{Entity: app(0), Takes: takes, Lease: time.Minute}
		results, actual := make([]store.Result, 3), actuals(3)
		return testing.AllocsPerRun(1000, func() {
			k, err := s.Reserve(t.Context(), r, results)
			if err != nil || k == nil {
				t.Fatal(k, err)
			}
			s.Settle(k, actual)
		})
	}
	s, _ := persisted(t, c, t.TempDir())
	if with, without := allocs(s), allocs(c.store()); with > without {
		t.Errorf("a call allocates %v times, without a directory %v", with, without)
	}
}

func TestRestoredEntitiesAreSmall(t *testing.T) {
	const n = 100_000
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range n {
		for _, r := range []*store.Rule{hourly, daily, monthly} {
			adjust(t, s, app(i), r, 5)
		}
	}
	mustClose(t, s)
	s = c.store()
	before := heapBytes()
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if bytes := float64(heapBytes()-before)/n - 16; bytes > 220 {
		t.Errorf("%.0f bytes an entity with three windows", bytes)
	}
	if s.Len() != n {
		t.Errorf("%d entities of %d", s.Len(), n)
	}
}
