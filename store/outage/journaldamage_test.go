package outage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

func TestTornFileKeepsWhatIsWhole(t *testing.T) {
	dir := t.TempDir()
	c, f := setup(t, newServer(nil), Options{Dir: dir})
	cut(t, c, f)
	for i := range 3 {
		e := store.Entity{Instance: "apps", Consumer: fmt.Sprint("team-", i)}
		c.queue.add(e, time.Now(), []store.Amount{{Rule: day, Amount: 10}, {Rule: minute, Amount: 1}})
	}
	written(t, c)
	crash(t, c)
	whole, err := os.ReadFile(journalPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for n := range len(whole) + 1 {
		dir := t.TempDir()
		if err := os.WriteFile(journalPath(dir), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		q := newQueue(1 << 20)
		j, err := openJournal(dir, 1<<20, q, time.Now())
		if err != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		got := q.pending()
		if got < last || got > 3 {
			t.Fatalf("cut at %d: %d batches, after %d", n, got, last)
		}
		for _, l := range q.lanes {
			if b := l.batches[0]; len(b.Lines) != 2 || b.Lines[0].Amount != 10 || b.Lines[1].Amount != 1 {
				t.Fatalf("cut at %d: read %+v", n, b.Batch)
			}
		}
		last = got
		if err := j.close(false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if last != 3 {
		t.Errorf("%d batches in the whole file, want 3", last)
	}
}

func TestDamageIsToldAndTheRestIsRead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		damage func([]byte) []byte
	}{
		{"a changed byte", func(b []byte) []byte { b[len(b)-3] ^= 1; return b }},
		{"a torn end", func(b []byte) []byte { return b[:len(b)-5] }},
		{"a changed beginning", func(b []byte) []byte { b[0] ^= 1; return b }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			c, f := setup(t, newServer(nil), Options{Dir: dir})
			cut(t, c, f)
			use(t, c, day, 7)
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(journalPath(dir))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(journalPath(dir), tt.damage(data), 0o600); err != nil {
				t.Fatal(err)
			}
			var told []error
			c, _ = setup(t, newServer(nil), Options{Dir: dir, OnError: func(err error) { told = append(told, err) }})
			c.Start()
			if len(told) != 1 || !errors.Is(told[0], ErrDamaged) {
				t.Errorf("told %v, want once of the damage", told)
			}
		})
	}
}

func TestRecordThatIsNotUnderstoodIsSetAside(t *testing.T) {
	dir := t.TempDir()
	d, err := appendlog.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, _, err := d.Open(logName, recordVersion, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	good := batch{Batch: store.Batch{Entity: entity, Origin: "0123456789abcdef", Seq: 3, At: time.Now(), Lines: []store.Amount{{Rule: day, Amount: 5}}}}
	for _, r := range [][]byte{[]byte("?"), {}, good.record(nil)} {
		if err := log.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(log.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(journalPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	var told []error
	c, f := setup(t, newServer(nil), Options{Dir: dir, OnError: func(err error) { told = append(told, err) }})
	f.set(errGone, false)
	c.Start()
	if c.Pending() != 1 || len(told) != 1 || !errors.Is(told[0], ErrDamaged) {
		t.Errorf("%d pending, told %v", c.Pending(), told)
	}
	if aside, err := os.ReadFile(journalPath(dir) + ".unread"); err != nil || !bytes.Equal(aside, before) {
		t.Errorf("set aside is %q, %v", aside, err)
	}
}

// While the disk is full, what waits for it must not grow with time.
func TestFullDiskCostsNoMemory(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no full device")
	}
	c, f := setup(t, newServer(nil), Options{Dir: t.TempDir(), OnError: func(error) {}})
	c.Start()
	close(c.stop) // the journal is for one goroutine: this one
	c.done.Wait()
	f.set(errGone, false)
	for range defaultFailures {
		use(t, c, day, 1)
	}
	path := journalPath(c.o.Dir)
	if err := errors.Join(os.Rename(path, path+".away"), os.Symlink("/dev/full", path)); err != nil {
		t.Fatal(err)
	}
	j := c.journal.Load()
	most := 0
	for range 100 {
		use(t, c, day, 1)
		if err := c.tendJournal(); err == nil {
			t.Fatal("a full disk took it")
		}
		if most == 0 {
			most = j.log.Unsynced()
		}
	}
	if n := j.log.Unsynced(); n > most {
		t.Errorf("%d bytes wait for the disk, %d did at first", n, most)
	}
	if err := errors.Join(os.Remove(path), os.Rename(path+".away", path), c.tendJournal()); err != nil || j.log.Unsynced() != 0 {
		t.Errorf("after there was room: %v", err)
	}
	_ = errors.Join(j.log.Close(), j.dir.Close())
	c.closing.Do(func() {})
}
