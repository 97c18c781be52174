package outage

import (
	"bytes"
	"cmp"
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
	known bool  // each sight says whether the file has it
	count int64 // bytes of those that it has

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
	var order []batchID
	found, rules := make(map[batchID]store.Batch), make(map[store.Rule]*store.Rule)
	taken := make(map[batchID]bool)
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
		case record[0] == kindTaken:
			var k batchID
			if k, err = readTaken(record[1:]); err == nil {
				taken[k] = true
			}
		case record[0] == kindSight, record[0] == kindTold:
			if g, err = readSight(record[0], record[1:]); err == nil {
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
		k := batchID{b.Origin, b.Seq}
		if _, again := found[k]; !again {
			order = append(order, k)
		}
		found[k] = b
	})
	if err != nil {
		return err
	}
	j.remote, j.exported = left.records, exported{gen: left.most, written: sums(left.records)}
	if len(bad) > 0 {
		j.damage = errors.Join(j.damage, j.setAside(len(bad), bad[0]))
	}
	// The remote takes those of an origin in their order only.
	slices.SortStableFunc(order, func(a, b batchID) int { return cmp.Compare(a.seq, b.seq) })
	for _, k := range order {
		if b := found[k]; !taken[k] && now.Sub(b.At) < Horizon {
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
	idle := !open && !j.written && n == 0
	j.queue.watch(!idle)
	if !idle && j.log.Unsynced() > 0 { // the last time failed: no more until that is done
		if err := j.log.Sync(); err != nil {
			return err
		}
	}
	// A call that the remote may have admitted, and that was counted here, is pending at
	// the remote to be given back. So what is pending there is looked up after, and
	// written before: the file never has the one without the other.
	var owed [][]byte
	taken, _ := j.queue.changes(func(record []byte) error { owed = append(owed, bytes.Clone(record)); return nil })
	for _, k := range taken {
		owed = append(owed, k.recordTaken())
	}
	remote := export()
	if idle && len(remote) == 0 {
		return nil
	}
	if !open && n == 0 && len(remote) == 0 && now.Sub(j.closed) >= settleFor {
		if err := j.empty(); err != nil {
			j.queue.again(taken) // it has them still
			return err
		}
		j.queue.watch(false)
		return nil
	}
	err := errors.Join(j.keepSights(open, false, j.log.Append), j.exported.changes(remote, j.log.Append))
	for _, record := range owed {
		err = errors.Join(err, j.log.Append(record))
	}
	if err != nil {
		j.known = false
		j.queue.again(taken)
	}
	live += j.count
	for _, r := range remote {
		live += int64(len(r))
	}
	if size := j.log.Size(); size > small && size > 2*live || size > j.most {
		return errors.Join(err, j.rewrite(open, export))
	}
	return errors.Join(err, j.sync())
}

// keepSights writes what the remote last told, for a process that starts in the same
// outage: what the file does not have, or all if it is a new one. While the circuit is
// closed that is of entities with charges that are pending, which may be set apart. Of
// more than there is room for, some are left out.
func (j *journal) keepSights(open, anew bool, write func([]byte) error) error {
	if j.seen == nil {
		return nil
	}
	if anew || !j.known {
		j.seen.unwritten()
		j.known, j.count = true, 0
	}
	put := func(record []byte, again bool) error {
		if n := int64(len(record)); !again {
			if j.count+n > j.most/4 {
				return nil
			}
			j.count += n
		}
		return write(record)
	}
	if open {
		return j.seen.all(j.now(), put)
	}
	for _, e := range j.queue.entities() {
		if err := j.seen.one(e, j.now(), put); err != nil {
			return err
		}
	}
	return nil
}

func (j *journal) sync() error {
	if j.log.Unsynced() == 0 {
		return nil
	}
	j.written = true
	return j.log.Sync()
}

// rewrite puts what is pending in the place of all that was written. As in write, what is
// pending at the remote is looked up after what is pending here.
func (j *journal) rewrite(open bool, export func() [][]byte) error {
	w, err := j.log.Rewrite()
	if err != nil {
		return err
	}
	err = j.queue.all(w.Append)
	remote := export()
	if j.exported.written = nil; len(remote) > 0 {
		err = errors.Join(err, j.exported.all(remote, w.Append))
	}
	if err = errors.Join(err, j.keepSights(open, true, w.Append)); err != nil {
		err = errors.Join(err, w.Abort())
	} else {
		err = w.Commit()
	}
	if err != nil {
		j.known = false // the old one is in use still, or the new one is not certain
		j.exported.doubt()
		return err
	}
	j.written = true
	return nil
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
	j.written, j.known, j.exported = false, false, exported{}
	return nil
}

// close writes what is left, and gives the directory back. In an outage that includes
// what the remote had told.
func (j *journal) close(open bool, remote [][]byte) error {
	if j == nil {
		return nil
	}
	var err error
	if n, _, _ := j.queue.state(); n == 0 && len(remote) == 0 && !open {
		if j.written {
			err = j.empty()
		}
	} else {
		err = j.rewrite(open, func() [][]byte { return remote })
	}
	return errors.Join(err, j.log.Close(), j.dir.Close())
}
