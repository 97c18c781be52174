package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

const (
	// journalEvery is how often what has changed is written and synced; as much may be
	// lost in a crash.
	journalEvery = time.Second
	// settleFor is how long after an outage the remote's own settlements are kept. It
	// sends them at once, and has them acknowledged long before that.
	settleFor = 10 * time.Second
	// takeOverMost is for how long counters that close try to get the directory that they
	// could not have until then.
	takeOverMost = time.Second
	// small is a length at which a file is not worth being made smaller.
	small = 1 << 20

	logName      = "pending.log"
	identityName = "replica.json"
)

// ErrDamaged means that charges that were kept in a file cannot be read any more, and
// are lost.
var ErrDamaged = errors.New("charges are lost")

// journal is the directory where a replica keeps who it is, and what the remote has
// yet to be charged with. Batches are numbered, so that those of a file that is out
// of date may be sent again. Its methods are for one goroutine, and work on nil.
type journal struct {
	dir   *appendlog.Dir
	log   *appendlog.Log
	most  int64
	queue *queue
	token string // the remote's identity, as the file has it

	seen  *seen // nil in tests
	now   func() time.Time
	known bool  // the file has what the remote told before the outage
	count int64 // bytes of that

	remote   [][]byte // what a former process left: of the remote's
	batches  []store.Batch
	sights   []sighted
	exported exported
	written  bool      // there are records in the file
	closed   time.Time // when the circuit was first found closed since it was written
	damage   error     // what could not be read, until it is told
}

// openJournal takes the directory for this process, and puts what it finds there
// into the queue. It returns nil for no directory, or one that cannot be used.
func openJournal(path string, most int64, q *queue, now time.Time) (*journal, error) {
	if path == "" {
		return nil, nil
	}
	dir, err := appendlog.Lock(path)
	if err != nil {
		return nil, fmt.Errorf("keeping charges in memory only: %w", err)
	}
	j := &journal{dir: dir, most: most, queue: q}
	if err := j.open(now); err != nil {
		return nil, errors.Join(fmt.Errorf("keeping charges in memory only: %w", err), dir.Close())
	}
	return j, nil
}

func (j *journal) open(now time.Time) (err error) {
	if j.token, err = readIdentity(j.dir.Path()); err != nil {
		return err
	}
	type id struct {
		origin string
		seq    int64
	}
	var order []id
	found, rules := make(map[id]store.Batch), make(map[store.Rule]*store.Rule)
	sights := make(map[store.Entity]sighted)
	var left generations
	var bad []error
	j.log, j.damage, err = j.replay(func(record []byte) {
		j.written = true
		var b store.Batch
		var g sighted
		err := errRecord
		switch {
		case len(record) == 0:
		case record[0] == kindRemote, record[0] == kindWhole:
			err = left.read(record[0], record[1:])
		case record[0] == kindBatch:
			b, err = readBatch(record[1:], rules)
		case record[0] == kindSight:
			if g, err = readSight(record[1:]); err == nil {
				g.own = sights[g.entity].own
				sights[g.entity] = g
			}
		case record[0] == kindOwn:
			if g.entity, g.own, err = readOwn(record[1:]); err == nil {
				g.counters = sights[g.entity].counters
				sights[g.entity] = g
			}
		}
		if err != nil {
			bad = append(bad, err)
			return
		}
		if record[0] != kindBatch {
			return
		}
		k := id{b.Origin, b.Seq}
		if _, again := found[k]; !again {
			order = append(order, k)
		}
		found[k] = b
	})
	if err != nil {
		return err
	}
	j.remote, j.exported = left.records, exported{gen: left.last, written: sums(left.records)}
	if len(bad) > 0 {
		j.damage = errors.Join(j.damage, j.setAside(len(bad), bad[0]))
	}
	// The remote takes those of an origin in their order only.
	slices.SortStableFunc(order, func(a, b id) int { return cmp.Compare(a.seq, b.seq) })
	for _, k := range order {
		if b := found[k]; now.Sub(b.At) < Horizon {
			j.queue.restore(b)
			j.batches = append(j.batches, b)
		}
	}
	j.sights = slices.Collect(maps.Values(sights))
	return nil
}

// replay reads the file. Damage is what it has lost.
func (j *journal) replay(visit func(record []byte)) (log *appendlog.Log, damage, err error) {
	log, found, err := j.dir.Open(logName, recordVersion, func(record []byte) error { visit(record); return nil })
	if err == nil && found.Dropped > 0 {
		damage = fmt.Errorf("%w: %d bytes at the end of %q were cut off", ErrDamaged, found.Dropped, j.path())
		if found.SetAside != "" {
			damage = fmt.Errorf("%w: the file is now %q", ErrDamaged, found.SetAside)
		}
	}
	return log, damage, err
}

func (j *journal) path() string { return filepath.Join(j.dir.Path(), logName) }

// setAside keeps a copy of a file of which some records are whole but say nothing
// that is understood, such as a time zone that this machine does not know. The others
// are good.
func (j *journal) setAside(n int, reason error) error {
	to := j.path() + ".unread"
	told := fmt.Errorf("%w: %d records cannot be read, such as: %w; a copy is %q", ErrDamaged, n, reason, to)
	data, err := os.ReadFile(j.path())
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		return errors.Join(told, fmt.Errorf("copying charges: %w", err))
	}
	return told
}

// identity is what the remote was called in a former process, empty if it is not
// known.
func (j *journal) identity() string {
	if j == nil {
		return ""
	}
	return j.token
}

func (j *journal) size() int64 {
	if j == nil {
		return 0
	}
	return j.log.Size()
}

// write brings the file up to what is pending. It is called once in a while.
func (j *journal) write(open bool, export func() [][]byte, now time.Time) error {
	n, live, _ := j.queue.state()
	if open {
		j.closed = time.Time{}
	} else if j.closed.IsZero() {
		j.closed = now
	}
	if !open && !j.written && n == 0 {
		j.queue.watch(false)
		return nil
	}
	j.queue.watch(true)
	if j.log.Unsynced() > 0 { // the last time failed: no more until that is done
		if err := j.log.Sync(); err != nil {
			return err
		}
	}
	remote := export()
	if !open {
		remote = j.exported.lasting(remote)
	}
	if !open && n == 0 && len(remote) == 0 && now.Sub(j.closed) >= settleFor {
		j.queue.watch(false)
		return j.empty()
	}
	if !open {
		j.known, j.count = false, 0
	} else if !j.known {
		if err := j.keepSights(j.log.Append); err != nil {
			return err
		}
	}
	err := errors.Join(j.exported.changes(remote, j.log.Append), j.queue.changes(j.log.Append))
	live += j.count
	for _, r := range remote {
		live += int64(len(r))
	}
	if size := j.log.Size(); size > small && size > 2*live || size > j.most {
		return errors.Join(err, j.rewrite(remote))
	}
	return errors.Join(err, j.sync())
}

// keepSights writes what the remote last told, for a process that starts in the same
// outage. Of more than there is room for, some are left out.
func (j *journal) keepSights(write func([]byte) error) error {
	if j.seen == nil {
		return nil
	}
	j.known, j.count = true, 0
	return j.seen.all(j.now(), j.most/4, func(record []byte) error {
		j.count += int64(len(record))
		return write(record)
	})
}

func (j *journal) sync() error {
	if j.log.Unsynced() == 0 {
		return nil
	}
	j.written = true
	return j.log.Sync()
}

// rewrite puts what is pending in the place of all that was written.
func (j *journal) rewrite(remote [][]byte) error {
	w, err := j.log.Rewrite()
	if err != nil {
		return err
	}
	if j.known {
		err = j.keepSights(w.Append)
	}
	if len(remote) > 0 {
		err = errors.Join(err, j.exported.all(remote, w.Append))
	}
	if err = errors.Join(err, j.queue.all(w.Append)); err != nil {
		return errors.Join(err, w.Abort())
	}
	j.written = true
	return w.Commit()
}

// empty is after all is handed over.
func (j *journal) empty() error {
	w, err := j.log.Rewrite()
	if err != nil {
		return err
	}
	if err := w.Commit(); err != nil {
		return err
	}
	j.written, j.exported = false, exported{}
	return nil
}

// close writes what is left, and gives the directory back. In an outage that includes
// what the remote had told.
func (j *journal) close(open bool, remote [][]byte) error {
	if j == nil {
		return nil
	}
	var err error
	j.known = open
	if n, _, _ := j.queue.state(); n == 0 && len(remote) == 0 && !open {
		if j.written {
			err = j.empty()
		}
	} else {
		err = j.rewrite(remote)
	}
	return errors.Join(err, j.log.Close(), j.dir.Close())
}

// takeDirectory takes it for this process. A process that is ending may have it still.
func (c *Counters) takeDirectory() (*journal, error) {
	j, err := openJournal(c.o.Dir, c.o.JournalCap, c.queue, c.now())
	if j != nil {
		j.seen, j.now = c.seen, c.now
	}
	return j, err
}

// useJournal takes up what a former process has left to charge. The remote is there.
func (c *Counters) useJournal(j *journal) error {
	if j == nil {
		return nil
	}
	c.journal.Store(j)
	if j.damage != nil && c.o.OnError != nil { // told once, so never held back
		c.o.OnError(j.damage)
	}
	j.damage = nil
	c.takeUp(j.sights, j.batches)
	j.sights, j.batches = nil, nil
	if len(j.remote) == 0 {
		return nil
	}
	if err := c.remote.Restore(j.remote); err != nil {
		return fmt.Errorf("restoring settlements: %w", err)
	}
	j.remote = nil
	return nil
}

// takeOver is for counters that close and have nowhere to keep what the remote has not
// taken: those that had the directory may have closed since. It returns nil if they have
// not, and otherwise the records of the remote that the file is to have.
func (c *Counters) takeOver(rest [][]byte) (*journal, [][]byte) {
	for deadline := time.Now().Add(takeOverMost); ; time.Sleep(takeOverMost / 20) {
		j, err := c.takeDirectory()
		if j != nil {
			c.takeUp(j.sights, j.batches)
			rest = append(j.remote, rest...)
			j.remote = nil
			return j, rest
		}
		if !errors.Is(err, appendlog.ErrLocked) || time.Now().After(deadline) {
			return nil, rest
		}
	}
}

// keepJournal writes the file until the counters are closed.
func (c *Counters) keepJournal() {
	tick := time.NewTicker(c.o.every)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.noteJournal(c.tendJournal())
	}
}

func (c *Counters) tendJournal() error {
	j := c.journal.Load()
	if j == nil {
		j, err := c.takeDirectory()
		if err != nil {
			return err
		}
		c.nudge() // there may be something to deliver
		return c.useJournal(j)
	}
	away := c.Away() || c.stuck()
	err := errors.Join(j.keepIdentity(c.remote.Identity()), j.write(away, c.remote.Export, c.now()))
	if err != nil {
		return fmt.Errorf("writing charges: %w", err)
	}
	return nil
}

// stuck tells whether what calls have used waits for a remote that does not answer. The
// circuit opens for calls that fail; of one that has ended when the remote goes away,
// and no other that follows, only this finds out.
func (c *Counters) stuck() bool {
	if c.remote.Pending() == 0 {
		return false
	}
	_, err := c.ask(context.Background(), store.Entity{}, func() (*store.Ticket, error) {
		return nil, c.ping(context.Background())
	})
	return err != nil
}

// noteJournal remembers what is wrong with the files, and tells of it.
func (c *Counters) noteJournal(err error) {
	c.mu.Lock()
	c.journalErr = err
	c.mu.Unlock()
	if err != nil {
		c.report(err)
	}
}
