package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// A process is killed at any time: the next one counts on from what was written.
func TestCountsSurviveACrash(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c, dir := newClock(), t.TempDir()
		s, _ := persisted(t, c, dir)
		defer func() { _ = s.Close() }()
		var open []*store.Ticket
		steps := rapid.IntRange(1, 30).Draw(r, "steps")
		for range steps {
			e := app(rapid.IntRange(0, 3).Draw(r, "consumer"))
			rule := rapid.SampledFrom(everyKind).Draw(r, "rule")
			switch rapid.IntRange(0, 5).Draw(r, "what") {
			case 0:
				adjust(t, s, e, rule, rapid.Int64Range(-100, 100).Draw(r, "amount"))
			case 1:
				k, err := s.Reserve(context.Background(), &store.Reservation{
					Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: rule, Limit: 1000, Need: 1, Charge: 3, Hold: 10}},
				}, make([]store.Result, 1))
				if err != nil {
					r.Fatal(err)
				}
				if k != nil {
					open = append(open, k)
				}
			case 2:
				if len(open) > 0 {
					s.Settle(open[0], []int64{rapid.Int64Range(0, 50).Draw(r, "actual")})
					open = open[1:]
				}
			case 3:
				c.step(time.Duration(rapid.Int64Range(0, int64(40*time.Minute)).Draw(r, "step")))
			case 4:
				mustSync(t, s)
			default:
				if err := s.journal.rewrite(); err != nil {
					r.Fatal(err)
				}
			}
		}
		mustSync(t, s)
		after, found := persisted(t, c, crashed(t, dir))
		defer func() { _ = after.Close() }()
		if found.Dropped != 0 || found.Unread != 0 {
			r.Errorf("got %+v", found)
		}
		for i := range 4 {
			want, got := read(t, s, app(i), everyKind...), read(t, after, app(i), everyKind...)
			for j := range want {
				want[j].Held = 0 // what calls held has gone with them
				if got[j] != want[j] {
					r.Errorf("%s of %s: got %+v, want %+v", everyKind[j].ID, app(i).Consumer, got[j], want[j])
				}
			}
		}
		for _, k := range open {
			s.Settle(k, nil)
		}
	})
}

func TestCountsAreWrittenWithoutBeingAskedTo(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	adjust(t, s, app(1), monthly, 5)
	path := filepath.Join(dir, logName)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(path)
		if err == nil && bytes.Contains(data, []byte(app(1).Consumer)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing is written (%v)", err)
		}
	}
}

func TestClosingWritesAll(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range 1000 {
		adjust(t, s, app(i), monthly, int64(i+1))
	}
	mustClose(t, s)
	mustClose(t, s)
	s, found := persisted(t, c, dir)
	if found != (Restored{Entities: 1000}) || s.Len() != 1000 {
		t.Errorf("got %+v, %d entities", found, s.Len())
	}
	for i := range 1000 {
		wantUsed(t, s, app(i), monthly, int64(i+1))
	}
}

func TestWhatIsGivenBackStaysGivenBack(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	adjust(t, s, app(1), monthly, 5)
	mustSync(t, s)
	adjust(t, s, app(1), monthly, -5)
	adjust(t, s, app(2), hourly, 1) // which drops the first from memory
	mustClose(t, s)
	s, found := persisted(t, c, dir)
	wantUsed(t, s, app(1), monthly, 0)
	wantUsed(t, s, app(2), hourly, 1)
	if found.Entities != 1 {
		t.Errorf("%d entities", found.Entities)
	}
}

func TestWindowsThatEndedMeanwhileAreDropped(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	adjust(t, s, app(1), hourly, 5)
	adjust(t, s, app(1), monthly, 7)
	adjust(t, s, app(2), hourly, 5)
	mustClose(t, s)
	c.step(time.Hour)
	s, found := persisted(t, c, dir)
	if found.Entities != 1 || s.Len() != 1 {
		t.Errorf("%d entities are found, %d kept", found.Entities, s.Len())
	}
	wantUsed(t, s, app(1), hourly, 0)
	wantUsed(t, s, app(1), monthly, 7)
	hash, sh := s.shard(app(1))
	if n := len(sh.find(hash, app(1)).counters); n != 1 {
		t.Errorf("%d counters are kept", n)
	}
	c.step(31 * 24 * time.Hour)
	wantUsed(t, s, app(1), monthly, 0) // by the window that was read, no config has named one
}

// A machine starts with a clock that is years ahead, which is put right later.
func TestWindowsOfAWrongClockEnd(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	c.step(10 * 365 * 24 * time.Hour)
	s, _ := persisted(t, c, dir)
	for _, r := range everyKind {
		adjust(t, s, app(1), r, 5)
	}
	mustClose(t, s)
	c.step(-10 * 365 * 24 * time.Hour)
	s, _ = persisted(t, c, dir)
	for _, r := range everyKind {
		wantUsed(t, s, app(1), r, 5)
	}
	c.step(2 * 31 * 24 * time.Hour)
	for _, r := range everyKind {
		wantUsed(t, s, app(1), r, 0)
	}
}

func TestMoreEntitiesThanThereIsRoomForAreKept(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range 100 {
		adjust(t, s, app(i), monthly, 5)
	}
	mustClose(t, s)
	s = New(Options{Now: c.Now, MaxEntities: 10})
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 100 {
		wantUsed(t, s, app(i), monthly, 5)
	}
	r := &store.Reservation{Entity: app(100), Takes: []store.Take{{Rule: monthly, Limit: 10, Need: 1, Charge: 1}}}
	if _, err := s.Reserve(t.Context(), r, make([]store.Result, 1)); !errors.Is(err, store.ErrFull) {
		t.Errorf("got %v", err)
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	adjust(t, s, app(1), monthly, 5)
	other := c.store()
	_, err := other.Persist(dir)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	if other.Dir() != "" || s.Dir() != dir {
		t.Errorf("the directories are %q and %q", other.Dir(), s.Dir())
	}
	adjust(t, s, app(1), monthly, 5)
	mustClose(t, s)
	if _, err := other.Persist(dir); err != nil {
		t.Error(err)
	}
	defer other.Close()
	wantUsed(t, other, app(1), monthly, 10)
}

func TestDamagedFilesKeepWhatIsBeforeTheDamage(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	const n = 5
	for i := range n {
		adjust(t, s, app(i), monthly, 5)
		mustSync(t, s)
	}
	mustClose(t, s)
	data, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	for cut := range len(data) + 1 {
		torn := t.TempDir()
		if err := os.WriteFile(filepath.Join(torn, logName), data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s, found := persisted(t, c, torn)
		if found.Entities < before {
			t.Fatalf("%d of %d bytes hold %d entities, one less %d", cut, len(data), found.Entities, before)
		}
		before = found.Entities
		for i := range found.Entities {
			wantUsed(t, s, app(i), monthly, 5)
		}
		mustClose(t, s)
	}
	if before != n {
		t.Errorf("the whole file holds %d entities", before)
	}
}

func TestDirectoriesThatCannotBeUsedChangeNothing(t *testing.T) {
	c, file := newClock(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.store()
	adjust(t, s, app(1), monthly, 5)
	if _, err := s.Persist(filepath.Join(file, "dir")); err == nil || s.Dir() != "" {
		t.Fatalf("got %v", err)
	}
	wantUsed(t, s, app(1), monthly, 5)
	mustSync(t, s)

	dir := t.TempDir()
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Persist(filepath.Join(file, "dir")); err == nil || s.Dir() != dir {
		t.Errorf("got %v, the directory is %q", err, s.Dir())
	}
	adjust(t, s, app(1), monthly, 5)
	mustClose(t, s)
	s, _ = persisted(t, c, dir)
	wantUsed(t, s, app(1), monthly, 10)
}

func TestAnotherDirectoryGetsAll(t *testing.T) {
	c, first, second := newClock(), t.TempDir(), t.TempDir()
	s, _ := persisted(t, c, first)
	for i := range 100 {
		adjust(t, s, app(i), monthly, 5)
	}
	if _, err := s.Persist(second); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(first, logName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old file: %v", err)
	}
	adjust(t, s, app(1), monthly, 1)
	mustSync(t, s)
	after, _ := persisted(t, c, crashed(t, second))
	wantUsed(t, after, app(0), monthly, 5)
	wantUsed(t, after, app(1), monthly, 6)

	if _, err := s.Persist(first); err != nil { // and back
		t.Fatal(err)
	}
	mustClose(t, s)
	s, _ = persisted(t, c, first)
	wantUsed(t, s, app(1), monthly, 6)
}

func TestWhatIsFoundIsJoinedWithWhatWasCounted(t *testing.T) {
	c, dir, other := newClock(), t.TempDir(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for _, r := range everyKind {
		adjust(t, s, app(1), r, 5)
	}
	mustClose(t, s)
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	s = c.store()
	for _, r := range everyKind { // before the directory is there
		adjust(t, s, app(1), r, 2)
	}
	adjust(t, s, app(2), monthly, 2)
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store, want int64) {
		t.Helper()
		for _, r := range everyKind {
			wantUsed(t, s, app(1), r, want)
		}
		wantUsed(t, s, app(2), monthly, 2)
	}
	check(s, 7)
	mustSync(t, s)
	after, _ := persisted(t, c, crashed(t, dir))
	check(after, 7)

	// A copy of what was read before, and what was turned off for a time.
	if _, err := s.Persist(other); err != nil {
		t.Fatal(err)
	}
	check(s, 7)
	if _, err := s.Persist(""); err != nil {
		t.Fatal(err)
	}
	adjust(t, s, app(2), hourly, 3)
	if _, err := s.Persist(other); err != nil {
		t.Fatal(err)
	}
	check(s, 7)
	mustClose(t, s)
	s, _ = persisted(t, c, other)
	check(s, 7)
	wantUsed(t, s, app(2), hourly, 3)
}

func TestCallsWaitForTheCounts(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	before, _ := persisted(t, c, dir)
	adjust(t, before, app(1), monthly, 5)
	mustClose(t, before)

	s := New(Options{Now: c.Now, AwaitPersist: true})
	r := &store.Reservation{Entity: app(1), Takes: []store.Take{{Rule: monthly, Limit: 5, Need: 1}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if k, err := s.Reserve(ctx, r, make([]store.Result, 1)); k != nil || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, %v", k, err)
	}
	refused := make(chan error)
	go func() {
		var results [1]store.Result
		k, err := s.Reserve(t.Context(), r, results[:])
		if k != nil || !results[0].Exceeded {
			err = fmt.Errorf("got %v, %+v, %w", k, results[0], err)
		}
		refused <- err
	}()
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := <-refused; err != nil {
		t.Error(err)
	}
}

func TestCallsDoNotWaitWhereThereIsNoDirectory(t *testing.T) {
	s := New(Options{AwaitPersist: true})
	if _, err := s.Persist(""); err != nil {
		t.Fatal(err)
	}
	r := &store.Reservation{Entity: app(1), Takes: []store.Take{{Rule: monthly, Limit: 5, Need: 1}}}
	if k, err := s.Reserve(t.Context(), r, make([]store.Result, 1)); k == nil || err != nil {
		t.Errorf("got %v, %v", k, err)
	}
}
