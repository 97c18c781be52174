package memory

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

func override(t testing.TB, s *Store, e store.Entity, r *store.Rule, limit int64) {
	t.Helper()
	if err := s.Override(t.Context(), e, r.ID, &limit); err != nil {
		t.Fatal(err)
	}
}

func wantOwn(t testing.TB, s *Store, e store.Entity, want map[string]int64) {
	t.Helper()
	got, err := s.OverridesOf(t.Context(), e)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%s has limits of its own %v (%v), want %v", e.Consumer, got, err, want)
	}
}

// What was told to be set is there after a crash, without waiting for the next write.
func TestOwnLimitsSurviveACrashAtOnce(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	override(t, s, app(1), hourly, 5)
	override(t, s, app(1), monthly, 7)
	override(t, s, app(2), hourly, 8)
	override(t, s, store.Entity{Instance: "shared"}, hourly, 9)
	override(t, s, app(1), hourly, 6)
	if err := s.Override(t.Context(), app(2), hourly.ID, nil); err != nil {
		t.Fatal(err)
	}
	adjust(t, s, app(1), hourly, 3)
	mustSync(t, s)
	c.step(100 * 24 * time.Hour) // no counter is left
	next, found := persisted(t, c, crashed(t, dir))
	if found.Unread != 0 || found.Entities != 0 {
		t.Errorf("found %+v", found)
	}
	wantOwn(t, next, app(1), map[string]int64{hourly.ID: 6, monthly.ID: 7})
	wantOwn(t, next, app(2), nil)
	wantOwn(t, next, store.Entity{Instance: "shared"}, map[string]int64{hourly.ID: 9})
	if got := read(t, next, app(1), hourly)[0]; got.Limit != 6 || !got.Overridden || got.Used != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestOwnLimitsSurviveRewritesAndMoves(t *testing.T) {
	c, dir, other := newClock(), t.TempDir(), t.TempDir()
	s, _ := persisted(t, c, dir)
	for i := range 100 {
		override(t, s, app(i), hourly, int64(i))
		if i%2 == 0 {
			if err := s.Override(t.Context(), app(i), hourly.ID, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	size := func(dir string) int64 {
		info, err := os.Stat(filepath.Join(dir, logName))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size(dir)
	if err := s.journal.rewrite(); err != nil {
		t.Fatal(err)
	}
	if after := size(dir); after >= before {
		t.Errorf("%d bytes before a rewrite and %d after", before, after)
	}
	check := func(s *Store) {
		t.Helper()
		for i := range 100 {
			var want map[string]int64
			if i%2 == 1 {
				want = map[string]int64{hourly.ID: int64(i)}
			}
			wantOwn(t, s, app(i), want)
		}
	}
	rewritten, _ := persisted(t, c, crashed(t, dir))
	check(rewritten)
	if _, err := s.Persist(other); err != nil {
		t.Fatal(err)
	}
	check(s)
	moved, _ := persisted(t, c, crashed(t, other))
	check(moved)
}

// Of limits that are found in a directory, those that were set here meanwhile win.
func TestOwnLimitsOfADirectoryGiveWay(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	override(t, s, app(1), hourly, 1)
	override(t, s, app(1), monthly, 2)
	override(t, s, app(2), hourly, 3)
	mustClose(t, s)

	s = c.store()
	override(t, s, app(1), hourly, 10)
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	wantOwn(t, s, app(1), map[string]int64{hourly.ID: 10, monthly.ID: 2})
	wantOwn(t, s, app(2), map[string]int64{hourly.ID: 3})
	mustClose(t, s)
	s, _ = persisted(t, c, dir)
	wantOwn(t, s, app(1), map[string]int64{hourly.ID: 10, monthly.ID: 2})
	mustClose(t, s)
}

// Of limits that are found in a directory, those that were taken away meanwhile stay so:
// the directory was not in use then, or is a copy from before.
func TestOwnLimitsThatWereTakenAwayStayAway(t *testing.T) {
	c, dir, copied := newClock(), t.TempDir(), t.TempDir()
	s, _ := persisted(t, c, dir)
	remove := func(e store.Entity, r *store.Rule) {
		t.Helper()
		if err := s.Override(t.Context(), e, r.ID, nil); err != nil {
			t.Fatal(err)
		}
	}
	persist := func(dir string) {
		t.Helper()
		if _, err := s.Persist(dir); err != nil {
			t.Fatal(err)
		}
	}
	override(t, s, app(1), hourly, 1)
	override(t, s, app(1), monthly, 2)
	override(t, s, app(2), hourly, 3)
	override(t, s, app(3), hourly, 4)
	if err := os.CopyFS(copied, os.DirFS(crashed(t, dir))); err != nil {
		t.Fatal(err)
	}
	check := func(s *Store) {
		t.Helper()
		wantOwn(t, s, app(1), map[string]int64{monthly.ID: 2})
		wantOwn(t, s, app(2), nil)
		wantOwn(t, s, app(3), map[string]int64{hourly.ID: 9})
	}

	persist("")
	remove(app(1), hourly)
	remove(app(2), hourly)
	remove(app(3), hourly)
	override(t, s, app(3), hourly, 9)
	persist(dir)
	check(s)
	mustSync(t, s)
	next, _ := persisted(t, c, crashed(t, dir))
	check(next)

	persist(copied)
	check(s)
	next, _ = persisted(t, c, crashed(t, copied))
	check(next)
	persist("")
	persist(copied)
	check(s)
	mustClose(t, s)
	next, _ = persisted(t, c, copied)
	check(next)
}

func TestOwnLimitsHaveRoomInAFullStore(t *testing.T) {
	s := New(Options{MaxEntities: 2})
	for i := range 2 {
		adjust(t, s, app(i), hourly, 1)
	}
	take := func(e store.Entity) error {
		_, err := s.Reserve(t.Context(), &store.Reservation{Entity: e, Lease: time.Minute, Takes: []store.Take{{Rule: hourly, Limit: 5, Need: 1, Charge: 1}}}, make([]store.Result, 1))
		return err
	}
	override(t, s, app(7), hourly, 10)
	if err := take(app(7)); err != nil {
		t.Errorf("an operator has named it, and it finds no room: %v", err)
	}
	if err := take(app(8)); err == nil {
		t.Error("another finds room")
	}
}

func TestOwnLimitsOfEntitiesAreNoneOfOthers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := New(Options{})
		names := rapid.SampledFrom([]store.Entity{
			{Instance: "a", Consumer: "b"}, {Instance: "ab"}, {Instance: "a"}, {Instance: "b", Consumer: "a"}, {Instance: "a", Consumer: "b\x00"},
		})
		rules := rapid.SampledFrom([]*store.Rule{hourly, monthly})
		want := make(map[store.Entity]map[string]int64)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			e, r, limit := names.Draw(rt, "entity"), rules.Draw(rt, "rule"), rapid.Int64Range(-1, 9).Draw(rt, "limit")
			if limit < 0 {
				delete(want[e], r.ID)
				if err := s.Override(t.Context(), e, r.ID, nil); err != nil {
					rt.Fatal(err)
				}
				continue
			}
			if want[e] == nil {
				want[e] = make(map[string]int64)
			}
			want[e][r.ID] = limit
			override(t, s, e, r, limit)
		}
		for e, limits := range want {
			if got, err := s.OverridesOf(t.Context(), e); err != nil || !maps.Equal(got, limits) {
				rt.Errorf("%+v has %v (%v), want %v", e, got, err, limits)
			}
		}
	})
}

// Limits are set while calls come and the file is written.
func TestOwnLimitsAreSetWhileCountsAreWritten(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				override(t, s, app(w), hourly, int64(i))
				adjust(t, s, app(w), hourly, 1)
				if i%10 == 0 {
					if err := s.journal.rewrite(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	mustSync(t, s)
	next, _ := persisted(t, c, crashed(t, dir))
	for w := range 8 {
		wantOwn(t, next, app(w), map[string]int64{hourly.ID: 19})
		wantUsed(t, next, app(w), hourly, 20)
	}
}

// A version that does not know such limits must not take the file and leave them out, nor
// this one refuse what it wrote.
func TestVersionsBeforeOwnLimits(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	ignored := func([]byte) error { return nil }
	d, err := appendlog.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := d.Open(logName, 1, ignored)
	if err != nil {
		t.Fatal(err)
	}
	record, _ := entityOf("app 1", used(monthly, 5)).appendRecord(nil, at)
	name, _, err := newDecoder().decode(record)
	if err := errors.Join(err, l.Append(record), l.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}

	s, found := persisted(t, c, dir)
	if found.Entities != 1 || found.Unread != 0 {
		t.Errorf("found %+v", found)
	}
	wantUsed(t, s, name, monthly, 5)
	override(t, s, name, monthly, 7)
	mustClose(t, s)
	if d, err = appendlog.Lock(dir); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Open(logName, 1, ignored); !errors.Is(err, ErrNewer) {
		t.Errorf("a version before: got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = persisted(t, c, dir)
	wantUsed(t, s, name, monthly, 5)
	wantOwn(t, s, name, map[string]int64{monthly.ID: 7})
}

func TestRecordsOfLimitsThatAreNotUnderstood(t *testing.T) {
	var o overrides
	limit := int64(300)
	o.set(app(1), hourly.ID, &limit)
	good := o.appendRecord(nil, app(1))
	for n := range good {
		name, limits, err := newDecoder().decodeOverrides(good[:n])
		if err == nil && (len(limits) > 0 || name.Instance == "") {
			t.Errorf("%d of %d bytes: got %+v %v", n, len(good), name, limits)
		}
	}
	for name, record := range map[string][]byte{
		"no instance":        {0, 0, 1, 'c'},
		"less than nothing":  append(appendText(appendText(appendText(appendText(nil, ""), "i"), "c"), "r"), 1),
		"a text beyond all":  {0, 200, 1, 'x'},
		"a limit that is no": append(appendText(appendText(appendText(appendText(nil, ""), "i"), "c"), "r"), 0x80),
	} {
		if _, _, err := newDecoder().decodeOverrides(record); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

// BenchmarkReserveOverridden is of an entity with limits of its own, and of one without
// beside such.
func BenchmarkReserveOverridden(b *testing.B) {
	for i, name := range []string{"others", "own"} {
		b.Run(name, func(b *testing.B) {
			s := New(Options{})
			for j := range 100 {
				override(b, s, app(j+1000), hourly, 1<<60)
			}
			if name == "own" {
				override(b, s, app(i), hourly, 1<<60)
			}
			r := store.Reservation{Entity: app(i), Known: true, Lease: time.Minute, Takes: []store.Take{{Rule: hourly, Limit: 1 << 60, Need: 1, Hold: 1}}}
			results, actual := make([]store.Result, 1), []int64{1}
			b.ReportAllocs()
			for b.Loop() {
				k, err := s.Reserve(b.Context(), &r, results)
				if err != nil || k == nil {
					b.Fatal(fmt.Sprint(k, err))
				}
				s.Settle(k, actual)
			}
		})
	}
}

// Nobody has read the directory yet, of which a limit is taken away.
func TestALimitThatIsTakenAwayBeforeItIsReadDoesNotComeBack(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	before, _ := persisted(t, c, dir)
	override(t, before, app(1), monthly, 7)
	override(t, before, app(1), hourly, 8)
	mustClose(t, before)
	s := c.store()
	if err := s.Override(t.Context(), app(1), monthly.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	wantOwn(t, s, app(1), map[string]int64{hourly.ID: 8})
	mustClose(t, s)
	next, _ := persisted(t, c, dir)
	wantOwn(t, next, app(1), map[string]int64{hourly.ID: 8})
}
