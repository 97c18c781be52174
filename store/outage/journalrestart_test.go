package outage

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// The remote skips a batch that comes after a later one of its origin. So they are handed
// over in the order that they were made in, whatever the file has them in.
func TestBatchesOfAFileAreChargedInOrder(t *testing.T) {
	const n = 20
	for _, order := range []string{"as written", "the last first"} {
		t.Run(order, func(t *testing.T) {
			now, step := midday()
			dir, s := t.TempDir(), newServer(now)
			c, f := setup(t, s, Options{Dir: dir, Now: now})
			c.o.every = time.Hour
			cut(t, c, f)
			for range n { // each is of a minute of its own
				c.Settle(admit(t, c, take(minute, 1<<40, 1), hold(day, 1<<40, 1)), []int64{1, 10})
				step(time.Minute)
			}
			j := c.journal.Load()
			var records [][]byte
			j.queue.watch(true)
			if _, err := j.queue.changes(func(r []byte) error { records = append(records, bytes.Clone(r)); return nil }); err != nil {
				t.Fatal(err)
			}
			if order != "as written" {
				slices.Reverse(records)
			}
			var last int64
			for _, r := range records {
				b, err := readBatch(r[1:], make(map[store.Rule]*store.Rule))
				if err != nil {
					t.Fatal(err)
				}
				if order == "as written" && b.Seq <= last {
					t.Errorf("batch %d is written after %d", b.Seq, last)
				}
				last = b.Seq
				if err := j.log.Append(r); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.log.Sync(); err != nil {
				t.Fatal(err)
			}
			crash(t, c)

			c, f = setup(t, s, Options{Dir: dir, Now: now})
			c.Start()
			heal(t, c, f)
			if got := used(t, s, day); got != 10*n || len(s.applied) != n {
				t.Errorf("%d tokens are charged with %d batches, want %d with %d", got, len(s.applied), 10*n, n)
			}
		})
	}
}

func FuzzReadRemote(f *testing.F) {
	f.Add(byte(kindRemote), []byte("\x01one"))
	f.Add(byte(kindWhole), []byte("\x01"))
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		g := generations{open: map[uint64][][]byte{1: {[]byte("one")}}}
		before := len(g.records)
		if err := g.read(kind, data); err != nil && len(g.records) != before {
			t.Errorf("an error, and %q", g.records)
		}
	})
}

func TestExportedRecordsOfTheLastWholeGeneration(t *testing.T) {
	var file [][]byte
	write := func(r []byte) error { file = append(file, bytes.Clone(r)); return nil }
	var e exported
	read := func(records [][]byte) string {
		var g generations
		for _, r := range records {
			if err := g.read(r[0], r[1:]); err != nil {
				t.Fatal(err)
			}
		}
		return string(bytes.Join(g.records, []byte(" ")))
	}
	for _, step := range []string{"a", "a b", "b a", "c a", ""} {
		records := bytes.Fields([]byte(step))
		if err := e.changes(records, write); err != nil {
			t.Fatal(err)
		}
		if got := read(file); len(got) != len(step) {
			t.Errorf("read %q, want %q", got, step)
		}
	}
	if want := 2 + 3 + 0 + 3 + 1; len(file) != want {
		t.Errorf("%d records, want %d", len(file), want)
	}
	if got := read(file[:len(file)-2]); got != "a b" {
		t.Errorf("cut in a generation: read %q, want the one before", got)
	}
}

// Settlements of the remote's that it cannot hand over stay in the file however long
// the circuit is closed.
func TestFileKeepsWhatTheRemoteHasPending(t *testing.T) {
	now, step := midday()
	dir := t.TempDir()
	c, f := setup(t, newServer(now), Options{Dir: dir, Now: now})
	f.pending = [][]byte{[]byte("SETTLEMENT")}
	cut(t, c, f)
	has := func() bool { b, _ := os.ReadFile(journalPath(dir)); return bytes.Contains(b, []byte("SETTLEMENT")) }
	wait(t, "the settlement in the file", has)
	f.set(nil, false)
	wait(t, "the end of the outage", func() bool { return !c.Away() })
	ticks := func(n int) { // of the journal
		for range n {
			step(settleFor)
			if err := c.tendJournal(); err != nil {
				t.Error(err)
			}
		}
	}
	close(c.stop) // the journal is for one goroutine: this one
	c.done.Wait()
	ticks(3)
	if !has() {
		t.Error("the settlement is forgotten")
	}
	f.mu.Lock()
	f.pending = nil
	f.mu.Unlock()
	ticks(3)
	if has() || c.journal.Load().size() > 20 {
		t.Error("the file is not emptied")
	}
	if err := errors.Join(c.journal.Load().log.Close(), c.journal.Load().dir.Close()); err != nil {
		t.Error(err)
	}
	c.closing.Do(func() {})
}

// In an outage neither a restart nor other options give out the limits anew.
func TestLimitsHoldOverRestartsInAnOutage(t *testing.T) {
	for _, tt := range []struct {
		name    string
		killed  bool
		reloads bool
	}{{"stopped", false, false}, {"killed", true, false}, {"with other options", false, true}} {
		t.Run(tt.name, func(t *testing.T) {
			now, step := midday()
			dir, s := t.TempDir(), newServer(now)
			c, f := setup(t, s, Options{Dir: dir, Now: now})
			for range 20 {
				use(t, c, day, 1)
			}
			cut(t, c, f)
			total := 20
			for life := range 3 {
				for range 30 + 100*(life/2) {
					if k, _, err := reserve(c, false, take(day, 100, 1)); err != nil {
						t.Fatal(err)
					} else if k != nil {
						total++
						c.Settle(k, []int64{1})
					}
				}
				if life == 2 {
					break
				}
				before := c
				if tt.killed {
					written(t, c)
					crash(t, c)
				} else if err := c.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				step(time.Minute)
				o := Options{Dir: dir, Now: now}
				if tt.reloads {
					o.Before = before
				}
				c, f = setup(t, s, o)
				f.set(errGone, false)
			}
			if total != 100 {
				t.Errorf("admitted %d, want 100", total)
			}
			heal(t, c, f)
			if n := used(t, s, day); n != 100 {
				t.Errorf("%d charged in the end, want 100", n)
			}
		})
	}
}

// The file is empty but for what the remote had told, where all was used up before.
func TestUsedUpStaysSoOverARestart(t *testing.T) {
	now, _ := midday()
	dir, s := t.TempDir(), newServer(now)
	c, f := setup(t, s, Options{Dir: dir, Now: now})
	c.Settle(admit(t, c, take(day, 10, 10)), []int64{10})
	cut(t, c, f)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, f = setup(t, s, Options{Dir: dir, Now: now})
	f.set(errGone, false)
	if k, _, err := reserve(c, false, take(day, 10, 1)); k != nil || err != nil {
		t.Errorf("got %v, %v, want a refusal", k, err)
	}
}

func FuzzReadSight(f *testing.F) {
	g := sight{counters: []counter{{id: "tokens per day", kind: store.KindCalendar, used: 5, held: 1, at: 1, reset: 1 << 40, lapse: 7}}}
	f.Add(byte(kindSight), g.record(nil, entity, 2)[0][1:])
	f.Add(byte(kindTold), g.recordTold(entity)[1:])
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		g, err := readSight(kind, data)
		if err != nil {
			return
		}
		for _, r := range g.record(nil, g.entity, 0) {
			if _, err := readSight(r[0], r[1:]); err != nil {
				t.Errorf("%+v is not read again: %v", g, err)
			}
		}
	})
}
