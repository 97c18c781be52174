package outage

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	// small is a length at which a file is not worth being made smaller.
	small = 1 << 20

	logName      = "pending.log"
	identityName = "replica.json"
)

// journal is the directory where a replica keeps who it is, and what the remote has
// yet to be charged with. Batches are numbered, so that those of a file that is out
// of date may be sent again. Its methods are for one goroutine, and work on nil.
type journal struct {
	dir   *appendlog.Dir
	log   *appendlog.Log
	most  int64
	queue *queue
	token string // the remote's identity, as the file has it

	remote  [][]byte          // what a former process left of the remote's
	last    [sha256.Size]byte // of the remote's records that were written last
	written bool              // there are records in the file
	closed  time.Time         // when the circuit was first found closed since it was written
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
	var bad error
	note := func(err error) {
		if bad == nil {
			bad = err
		}
	}
	j.log, _, err = j.dir.Open(logName, recordVersion, func(record []byte) error {
		j.written = true
		if len(record) > 0 && record[0] == kindRemote {
			records, err := readRemote(record[1:])
			note(err)
			j.remote = records
			return nil
		}
		if len(record) == 0 || record[0] != kindBatch {
			note(errRecord)
			return nil
		}
		b, err := readBatch(record[1:], rules)
		note(err)
		k := id{b.Origin, b.Seq}
		if _, again := found[k]; !again {
			order = append(order, k)
		}
		found[k] = b
		return nil
	})
	if err != nil {
		return err
	}
	if bad != nil {
		// It is kept for whoever wants to look; nothing says what it was worth.
		return errors.Join(fmt.Errorf("reading %q: %w", filepath.Join(j.dir.Path(), logName), bad), j.log.Close())
	}
	for _, k := range order {
		if b := found[k]; now.Sub(b.At) < Horizon {
			j.queue.restore(b)
		}
	}
	return nil
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
	switch {
	case open:
		j.queue.watch(true)
	case !j.written:
		j.queue.watch(false)
		return nil
	case n == 0 && now.Sub(j.closed) >= settleFor:
		j.queue.watch(false)
		return j.empty()
	}
	if err := j.changes(export()); err != nil {
		return err
	}
	if size := j.log.Size(); size > small && size > 2*live || size > j.most {
		return j.rewrite(export())
	}
	return j.sync()
}

// changes appends what is not in the file as it is now.
func (j *journal) changes(remote [][]byte) error {
	record := remoteRecord(remote)
	if sum := sha256.Sum256(record); sum != j.last && (len(remote) > 0 || j.last != [sha256.Size]byte{}) {
		if err := j.log.Append(record); err != nil {
			return err
		}
		j.last = sum
	}
	return j.queue.changes(j.log.Append)
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
	if len(remote) > 0 {
		err = w.Append(remoteRecord(remote))
	}
	if err = errors.Join(err, j.queue.all(w.Append)); err != nil {
		return errors.Join(err, w.Abort())
	}
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
	j.written, j.last = false, [sha256.Size]byte{}
	return nil
}

// close writes what is left, and gives the directory back.
func (j *journal) close(remote [][]byte) error {
	if j == nil {
		return nil
	}
	var err error
	if n, _, _ := j.queue.state(); n == 0 && len(remote) == 0 {
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
	return openJournal(c.o.Dir, c.o.JournalCap, c.queue, c.now())
}

// useJournal takes up what a former process has left to charge. The remote is there.
func (c *Counters) useJournal(j *journal) error {
	if j == nil {
		return nil
	}
	c.journal.Store(j)
	if len(j.remote) == 0 {
		return nil
	}
	if err := c.remote.Restore(j.remote); err != nil {
		return fmt.Errorf("restoring settlements: %w", err)
	}
	j.remote = nil
	return nil
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
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout())
	defer cancel()
	_, err := c.ask(context.Background(), func() (*store.Ticket, error) { return nil, c.remote.Ping(ctx) })
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

// replica is the content of the file that says who this is.
type replica struct {
	// Identity is the remote's word for it.
	Identity string `json:"identity"`
	// Host is where it was written: a directory that was copied to another machine must
	// not make one replica of two.
	Host string `json:"host"`
}

// readIdentity returns what the directory says, empty for nothing that is of use.
func readIdentity(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, identityName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the replica's identity: %w", err)
	}
	var r replica
	if err := json.Unmarshal(data, &r); err == nil && r.Host == host() {
		return r.Identity, nil
	}
	return "", nil
}

// keepIdentity writes what the remote is called by now.
func (j *journal) keepIdentity(identity string) error {
	if identity == j.token {
		return nil
	}
	data, err := json.Marshal(replica{Identity: identity, Host: host()})
	if err != nil {
		return fmt.Errorf("writing the replica's identity: %w", err)
	}
	path := filepath.Join(j.dir.Path(), identityName)
	temp := path + ".tmp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("writing the replica's identity: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("writing the replica's identity: %w", err)
	}
	j.token = identity
	return nil
}

// host is the machine's name, empty where it has none.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
