package outage

import (
	"errors"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// manual is counters whose background is the test, with what it was before it is killed.
func manual(t *testing.T, f *fake, o Options) *Counters {
	t.Helper()
	o.Failures, o.Probe, o.Timeout = 1, 2, 10*time.Second
	o.OnError = func(err error) { t.Errorf("told %v", err) }
	c := New(func(string) Remote { return f }, o)
	c.once.Do(c.begin)
	return c
}

// killed leaves them as kill -9 does.
func killed(t *testing.T, c *Counters) {
	t.Helper()
	if j := c.journal.Load(); j != nil {
		if err := errors.Join(j.log.Close(), j.dir.Close()); err != nil {
			t.Error(err)
		}
	}
	c.closing.Do(func() {})
}

func write(t *testing.T, c *Counters) {
	t.Helper()
	if err := c.tendJournal(); err != nil {
		t.Error(err)
	}
}

// What calls of the remote's use that end in an outage counts for a process that starts
// in it, as what was used before does.
func TestSettledInAnOutageCountsAfterAKill(t *testing.T) {
	now, _ := midday()
	dir, f := t.TempDir(), &fake{server: newServer(now)}
	c := manual(t, f, Options{Dir: dir, Now: now})
	k := admit(t, c, hold(day, 1000, 1))
	f.set(errGone, false)
	use(t, c, minute, 1) // is counted here
	write(t, c)
	c.Settle(k, []int64{500})
	write(t, c)
	killed(t, c)
	c = manual(t, f, Options{Dir: dir, Now: now})
	use(t, c, minute, 1)
	if n := used(t, c, day); n < 500 {
		t.Errorf("believes %d used, want 500", n)
	}
	killed(t, c)
}

// So does what was counted here, and charged in a moment in which the remote was there.
func TestChargedInAnOutageCountsAfterAKill(t *testing.T) {
	now, _ := midday()
	dir, f := t.TempDir(), &fake{server: newServer(now)}
	c := manual(t, f, Options{Dir: dir, Now: now})
	f.set(errGone, false)
	use(t, c, day, 500)
	write(t, c)
	f.set(nil, false)
	wait(t, "the end of the outage", func() bool { c.probe(); return !c.Away() && c.queue.pending() == 0 })
	f.set(errGone, false)
	use(t, c, day, 1)
	if err := c.journal.Load().rewrite(true, c.remote.Export); err != nil {
		t.Fatal(err)
	}
	killed(t, c)
	c = manual(t, f, Options{Dir: dir, Now: now})
	use(t, c, minute, 1)
	if n := used(t, c, day); n != 501 {
		t.Errorf("believes %d used, want 501", n)
	}
	killed(t, c)
}

// Nor does it count twice where the file could not be written in between.
func TestChargedWhileAWriteFailsCountsOnceAfterAKill(t *testing.T) {
	for _, tc := range []struct {
		name string
		fail func(*Counters, *journal, func()) error // charge charges what is pending
	}{
		{name: "appended", fail: func(c *Counters, j *journal, charge func()) error {
			tooLong := make([]byte, appendlog.MaxRecord+1)
			return j.write(true, func() [][]byte { charge(); return [][]byte{tooLong} }, c.now())
		}},
		{name: "emptied", fail: func(c *Counters, j *journal, charge func()) error {
			charge()
			log := j.log
			j.log, j.closed = brokenLog(t), c.now().Add(-settleFor)
			defer func() { j.log = log }()
			return j.write(false, c.remote.Stuck, c.now())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, _ := midday()
			dir, f := t.TempDir(), &fake{server: newServer(now)}
			c := manual(t, f, Options{Dir: dir, Now: now})
			f.set(errGone, false)
			use(t, c, day, 500)
			write(t, c)
			err := tc.fail(c, c.journal.Load(), func() {
				f.set(nil, false)
				wait(t, "the end of the outage", func() bool { c.probe(); return !c.Away() && c.queue.pending() == 0 })
			})
			if err == nil {
				t.Error("no error of a file that cannot be written")
			}
			cut(t, c, f)
			write(t, c)
			killed(t, c)
			c = manual(t, f, Options{Dir: dir, Now: now})
			cut(t, c, f)
			if n := used(t, c, day); n != 500 {
				t.Errorf("believes %d used, want 500", n)
			}
			killed(t, c)
		})
	}
}

// Nor what the remote took before the file was first written by a process.
func TestChargedRightAfterAStartCountsOnceAfterAKill(t *testing.T) {
	now, _ := midday()
	dir, f := t.TempDir(), &fake{server: newServer(now)}
	c := manual(t, f, Options{Dir: dir, Now: now})
	f.set(errGone, false)
	use(t, c, day, 500)
	write(t, c)
	killed(t, c)
	f.set(nil, false)
	c = manual(t, f, Options{Dir: dir, Now: now})
	c.handOver()
	if n := c.queue.pending(); n > 0 {
		t.Fatalf("%d batches are pending", n)
	}
	cut(t, c, f)
	write(t, c)
	killed(t, c)
	c = manual(t, f, Options{Dir: dir, Now: now})
	cut(t, c, f)
	if n := used(t, c, day); n != 500 {
		t.Errorf("believes %d used, want 500", n)
	}
	killed(t, c)
}

// brokenLog is one that takes nothing.
func brokenLog(t *testing.T) *appendlog.Log {
	t.Helper()
	dir, err := appendlog.Lock(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, _, err := dir.Open(logName, recordVersion, func([]byte) error { return nil })
	if err := errors.Join(err, log.Close(), dir.Close()); err != nil {
		t.Fatal(err)
	}
	return log
}

// A call that was given up and counted here while the file was written is in it with what
// the remote has to give back, or not at all.
func TestFileHasNoChargeWithoutWhatIsGivenBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		most int64 // of the file's bytes
	}{
		{name: "appended", most: 1 << 20},
		{name: "written anew", most: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			q := newQueue(1 << 20)
			j, err := openJournal(dir, tc.most, q, now)
			if err != nil {
				t.Fatal(err)
			}
			var back [][]byte
			meanwhile := func() [][]byte { // a call is given up right after each look
				is := back
				back = append(back, []byte{byte(len(back))})
				q.add(entity, now, []store.Amount{{Rule: day, Amount: 1}})
				return is
			}
			for range 3 {
				if err := j.write(true, meanwhile, now); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(j.log.Close(), j.dir.Close()); err != nil {
				t.Fatal(err)
			}
			j, err = openJournal(dir, tc.most, newQueue(1<<20), now)
			if err != nil || len(j.batches) != 1 || len(j.remote) == 0 {
				t.Fatalf("got %v with %v", j, err)
			}
			if n := j.batches[0].Lines[0].Amount; n > int64(len(j.remote)) {
				t.Errorf("%d are charged, and %d given back", n, len(j.remote))
			}
			if err := errors.Join(j.log.Close(), j.dir.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the remote has pending is in the file once that is written after an error, also if
// it is what a file was to have that could not be written anew.
func TestExportedIsWrittenAfterDoubt(t *testing.T) {
	e := exported{}
	none := func([]byte) error { return nil }
	for _, records := range [][][]byte{nil, {[]byte("a")}} {
		if err := e.all(records, none); err != nil {
			t.Fatal(err)
		}
		e.doubt()
		written := false
		if err := e.changes(records, func([]byte) error { written = true; return nil }); err != nil || !written {
			t.Errorf("%q are written: %t, %v", records, written, err)
		}
	}
}

// A generation that has broken off is not part of a later one.
func TestGenerationThatBrokeOffIsLeftOut(t *testing.T) {
	var file [][]byte
	write := func(r []byte) error { file = append(file, r); return nil }
	read := func() (g generations) {
		for _, r := range file {
			if err := g.read(r[0], r[1:]); err != nil {
				t.Fatal(err)
			}
		}
		return g
	}
	e := exported{}
	if err := errors.Join(e.all([][]byte{[]byte("a")}, write), e.all([][]byte{[]byte("b"), []byte("c")}, write)); err != nil {
		t.Fatal(err)
	}
	file = file[:len(file)-2]
	e = exported{gen: read().most}
	if err := e.all([][]byte{[]byte("d")}, write); err != nil {
		t.Fatal(err)
	}
	if g := read(); len(g.records) != 1 || string(g.records[0]) != "d" {
		t.Errorf("read %q, want d", g.records)
	}
}
