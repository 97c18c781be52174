package outage

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

	logName   = "pending.log"
	tokenName = "replica.json"
)

// journal is the directory where a replica keeps who it is, and what the remote has
// yet to be charged with. Batches are numbered, so that those of a file that is out
// of date may be sent again. Its methods are for one goroutine, and work on nil.
type journal struct {
	dir   *appendlog.Dir
	log   *appendlog.Log
	most  int64
	queue *queue
	token string

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
	if j.token, err = readToken(j.dir.Path()); err != nil {
		return err
	}
	type id struct {
		origin string
		seq    int64
	}
	var order []id
	found, rules := make(map[id]Batch), make(map[store.Rule]*store.Rule)
	var bad error
	j.log, _, err = j.dir.Open(logName, recordVersion, func(record []byte) error {
		j.written = true
		switch {
		case len(record) > 0 && record[0] == kindBatch:
			b, err := readBatch(record[1:], rules)
			if err != nil {
				bad = err
				return nil
			}
			k := id{b.Origin, b.Seq}
			if _, again := found[k]; !again {
				order = append(order, k)
			}
			found[k] = b
		case len(record) > 0 && record[0] == kindRemote:
			records, err := readRemote(record[1:])
			if err != nil {
				bad = err
				return nil
			}
			j.remote = records
		default:
			bad = errRecord
		}
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

// identity is the same for this replica at each start, as far as it can be kept.
func (j *journal) identity() string {
	if j == nil {
		return randomID()
	}
	return j.token
}

// takeRemote returns what a former process left of the remote's own.
func (j *journal) takeRemote() [][]byte {
	if j == nil {
		return nil
	}
	return j.remote
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
	record := remoteRecord(nil, remote)
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
		err = w.Append(remoteRecord(nil, remote))
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
		err := c.journal.write(c.isOpen.Load(), c.remote.Export, c.now())
		if err != nil {
			err = fmt.Errorf("writing charges: %w", err)
			c.report(err)
		}
		c.mu.Lock()
		c.journalErr = err
		c.mu.Unlock()
	}
}

// replica is the content of the file that says who this is.
type replica struct {
	Token string `json:"token"`
	// Host is where it was made: a directory that was copied to another machine must
	// not make one replica of two.
	Host string `json:"host"`
}

var tokenFormat = regexp.MustCompile(`^[0-9a-f]{16}$`)

// readToken returns the token of the directory, and makes one if there is none.
func readToken(dir string) (string, error) {
	path := filepath.Join(dir, tokenName)
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the replica's identity: %w", err)
	}
	var r replica
	if json.Unmarshal(bytes.TrimSpace(data), &r) == nil && tokenFormat.MatchString(r.Token) && r.Host == host {
		return r.Token, nil
	}
	r = replica{Token: randomID(), Host: host}
	if data, err = json.Marshal(r); err != nil {
		return "", fmt.Errorf("writing the replica's identity: %w", err)
	}
	temp := path + ".tmp"
	if err := errors.Join(os.WriteFile(temp, data, 0o600), os.Rename(temp, path)); err != nil {
		return "", fmt.Errorf("writing the replica's identity: %w", err)
	}
	return r.Token, nil
}
