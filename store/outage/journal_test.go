package outage

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// crash leaves counters as a process that is killed does, but gives the directory
// back, as the system would.
func crash(t *testing.T, c *Counters) {
	t.Helper()
	c.closing.Do(func() {
		close(c.stop)
		c.done.Wait()
		if err := errors.Join(c.journal.Load().log.Close(), c.journal.Load().dir.Close()); err != nil {
			t.Error(err)
		}
	})
}

// written has the file be as it is a second after an outage began.
func written(t *testing.T, c *Counters) {
	t.Helper()
	path := journalPath(c.o.Dir)
	wait(t, "the file", func() bool {
		c.queue.mu.Lock()
		clean := c.queue.changed != nil && len(c.queue.changed) == 0
		c.queue.mu.Unlock()
		info, err := os.Stat(path)
		return clean && err == nil && info.Size() == c.journal.Load().size() && info.Size() > 20
	})
}

func TestChargesOutliveTheProcess(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*testing.T, *Counters)
	}{
		{"that is stopped", func(t *testing.T, c *Counters) {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		{"that is killed", func(t *testing.T, c *Counters) { written(t, c); crash(t, c) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, s := t.TempDir(), newServer(nil)
			c, f := setup(t, s, Options{Dir: dir})
			cut(t, c, f)
			f.pending = [][]byte{[]byte("one"), []byte("two")}
			use(t, c, day, 7)
			use(t, c, day, 8)
			tt.end(t, c)

			c, f = setup(t, s, Options{Dir: dir})
			f.set(errGone, false)
			c.Start()
			if s := c.Status(); s.Pending != 1 {
				t.Errorf("%d pending after the restart, want 1", s.Pending)
			}
			if got := string(bytes.Join(f.restored, []byte(" "))); got != "one two" {
				t.Errorf("restored %q, want what the remote had pending", got)
			}
			use(t, c, day, 5)
			heal(t, c, f)
			if n := used(t, s, day); n != 20 {
				t.Errorf("%d charged, want 20", n)
			}
		})
	}
}

// A batch that was taken just before the process died is sent again by the next one,
// under the same number.
func TestKilledBetweenAcknowledgementAndDeletion(t *testing.T) {
	dir, s := t.TempDir(), newServer(nil)
	c, f := setup(t, s, Options{Dir: dir})
	cut(t, c, f)
	use(t, c, day, 7)
	written(t, c)
	heal(t, c, f)
	crash(t, c)

	c, f = setup(t, s, Options{Dir: dir})
	c.Start()
	heal(t, c, f)
	if n := used(t, s, day); n != 7 {
		t.Errorf("%d charged, want 7", n)
	}
}

func TestFileIsEmptiedAfterAnOutage(t *testing.T) {
	now, step := midday()
	c, f := setup(t, newServer(nil), Options{Dir: t.TempDir(), Now: now})
	cut(t, c, f)
	use(t, c, day, 7)
	written(t, c)
	heal(t, c, f)
	wait(t, "the file to be empty", func() bool { step(settleFor); return c.Status().JournalBytes < 20 })
}

func TestDirectoryOfAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	d, err := appendlog.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	reported := make(chan error, 1)
	s := newServer(nil)
	c, f := setup(t, s, Options{Dir: dir, OnError: func(err error) { reported <- err }})
	c.Start()
	if err := <-reported; !errors.Is(err, appendlog.ErrLocked) || c.Status().JournalError == "" {
		t.Errorf("reported %v", err)
	}
	cut(t, c, f)
	use(t, c, day, 1)
	if err := d.Close(); err != nil { // the other process has ended
		t.Fatal(err)
	}
	wait(t, "the directory", func() bool { return c.Status().JournalError == "" })
	written(t, c)
	heal(t, c, f)
	if n := used(t, s, day); n != 1 {
		t.Errorf("%d charged, want 1", n)
	}
}

// A reload may follow the other in an outage: the counters in between never had the
// directory. They are not to be closed before they can keep what they have to hand over.
func TestCountersThatNeverHadTheDirectoryLoseNothing(t *testing.T) {
	dir := t.TempDir()
	s := newServer(nil)
	locked := func(err error) {
		if !errors.Is(err, appendlog.ErrLocked) {
			t.Errorf("reported %v", err)
		}
	}
	before, _ := setup(t, s, Options{Dir: dir})
	before.Start()
	between, f := setup(t, s, Options{Dir: dir, OnError: locked})
	between.o.every = time.Hour // it does not ask again
	if !between.Safe() {
		t.Error("counters that nobody has used are not safe to close")
	}
	between.Start()
	cut(t, between, f)
	f.mu.Lock()
	f.pending = [][]byte{[]byte("a settlement")}
	f.mu.Unlock()
	use(t, between, day, 7)
	if between.Safe() {
		t.Error("charges that have no place are safe")
	}
	if !before.Safe() {
		t.Error("counters with a directory are not safe to close")
	}
	closed := make(chan error, 1)
	go func() { closed <- between.Close(t.Context()) }()
	if err := before.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Errorf("closing: %v", err)
	}
	after, g := setup(t, s, Options{Dir: dir})
	after.Start()
	wait(t, "handed over", func() bool { return used(t, s, day) == 7 })
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := g.restored; len(got) != 1 || string(got[0]) != "a settlement" {
		t.Errorf("the remote's own are %q", got)
	}
}

func TestLossIsSaidAtTheEnd(t *testing.T) {
	c, f := setup(t, newServer(nil), Options{})
	cut(t, c, f)
	use(t, c, day, 1)
	if err := c.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("got %v, want that charges are lost", err)
	}
}

func TestIdentityStays(t *testing.T) {
	dir := t.TempDir()
	if got, err := readIdentity(dir); err != nil || got != "" {
		t.Errorf("got %q, %v from an empty directory", got, err)
	}
	c, _ := setup(t, newServer(nil), Options{Dir: dir})
	c.Start()
	wait(t, "the identity", func() bool { got, err := readIdentity(dir); return err == nil && got == "me" })
	for _, content := range []string{"", "{", `{"identity":"me","host":"another machine"}`} {
		if err := os.WriteFile(filepath.Join(dir, identityName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readIdentity(dir); err != nil || got != "" {
			t.Errorf("got %q, %v from %q, want none", got, err, content)
		}
	}
}

func TestNoRoomForRecords(t *testing.T) {
	now, step := midday()
	s := newServer(now)
	c, f := setup(t, s, Options{Now: now, JournalCap: 2000, Dir: t.TempDir()})
	cut(t, c, f)
	for range 100 {
		c.Settle(admit(t, c, take(minute, 1<<40, 1), hold(day, 1<<40, 1)), []int64{1, 10})
		step(time.Minute)
	}
	st := c.Status()
	if !st.Saturated || st.Pending > 20 {
		t.Errorf("status %+v, want few records", st)
	}
	written(t, c)
	if n := c.journal.Load().size(); n > 2000 {
		t.Errorf("the file has %d bytes, want at most 2000", n)
	}
	heal(t, c, f)
	if n := used(t, s, day); n != 1000 {
		t.Errorf("%d charged, want 1000", n)
	}
	if c.Status().Saturated {
		t.Error("still saturated")
	}
}

func TestBatchesAreAsManyAsWindows(t *testing.T) {
	q := newQueue(1 << 30)
	start := time.Date(2026, 5, 6, 12, 0, 30, 0, time.UTC)
	bucket := &store.Rule{ID: "bucket", Window: must(store.Bucket(time.Hour)), Refill: 10}
	for i := range 120 {
		at := start.Add(time.Duration(i) * time.Minute)
		q.add(store.Entity{Consumer: "by day"}, at, []store.Amount{{Rule: day, Amount: 1}})
		q.add(store.Entity{Consumer: "by minute"}, at, []store.Amount{{Rule: day, Amount: 1}, {Rule: minute, Amount: 1}})
		q.add(store.Entity{Consumer: "by bucket"}, at, []store.Amount{{Rule: bucket, Amount: 1}})
	}
	for consumer, want := range map[string]int{"by day": 1, "by minute": 120, "by bucket": 120} {
		l := q.lanes[store.Entity{Consumer: consumer}]
		if len(l.batches) != want {
			t.Errorf("%s: %d batches, want %d", consumer, len(l.batches), want)
		}
	}
}

func TestSentBatchesStay(t *testing.T) {
	q := newQueue(0) // there is room for none
	q.add(entity, time.Now(), []store.Amount{{Rule: day, Amount: 1}})
	first := q.first(entity)
	q.add(entity, time.Now(), []store.Amount{{Rule: day, Amount: 2}})
	if first.Lines[0].Amount != 1 || q.pending() != 2 {
		t.Errorf("what was sent became %+v, %d batches", first.Batch, q.pending())
	}
	q.remove(first)
	q.remove(first)
	if next := q.first(entity); next == nil || next.Seq <= first.Seq || q.pending() != 1 {
		t.Errorf("next is %+v", next)
	}
}

func TestAmountsStopAtTheEnds(t *testing.T) {
	const most, least = 1<<63 - 1, -1 << 63
	for _, tt := range []struct{ a, b, want int64 }{{1, 2, 3}, {most, 1, most}, {least, -1, least}, {most, least, -1}, {most, most, most}} {
		if got := addUp(tt.a, tt.b); got != tt.want {
			t.Errorf("%d + %d = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

func TestCloseOfUnusedCounters(t *testing.T) {
	c := New(func(string) Remote { t.Error("opened"); return nil }, Options{})
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func FuzzReadBatch(f *testing.F) {
	for _, r := range []*store.Rule{
		day, minute, flight,
		{ID: "fixed", Window: must(store.Fixed(90 * time.Second))},
		{ID: "rolling", Window: must(store.Rolling(time.Hour))},
		{ID: "bucket", Window: must(store.Bucket(time.Minute)), Refill: 7},
	} {
		b := batch{Batch: store.Batch{Entity: entity, Origin: "0123456789abcdef", Seq: 3, At: time.UnixMilli(1), Lines: []store.Amount{{Rule: r, Amount: -5}}}}
		f.Add(b.record(nil)[1:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := readBatch(data, make(map[store.Rule]*store.Rule))
		if err != nil {
			return
		}
		k := batch{Batch: b}
		record := k.record(nil)
		again, err := readBatch(record[1:], make(map[store.Rule]*store.Rule))
		if err != nil {
			t.Fatalf("%+v is not read again: %v", b, err)
		}
		if more := (&batch{Batch: again}).record(nil); !bytes.Equal(record, more) {
			t.Errorf("%q became %q", record, more)
		}
	})
}
