package memory

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

const (
	// flushEvery is how often what has changed is written, so that a crash loses
	// less than a second.
	flushEvery = 500 * time.Millisecond
	// flushSize is how much is written before it is synced, in bytes.
	flushSize = 4 << 20
	// slack is how much a file grows beyond twice what matters before it is
	// rewritten, in bytes.
	slack = 4 << 20
	// rewriteAgain is when a rewrite that failed is tried again.
	rewriteAgain = time.Minute
)

// journal writes what the store counts to a file.
type journal struct {
	s    *Store
	dir  *appendlog.Dir
	log  *appendlog.Log
	keys *appendlog.Log
	// before is the log of the directory before, while all is being moved from there. It is
	// told of changes, too, for until that is done it is the one that a crash leaves.
	before *appendlog.Log
	stop   chan struct{}
	done   chan struct{}

	slack int64 // bytes; tests make it less

	mu      sync.Mutex // guards what follows, and is held while writing
	live    int64      // size of the file when it was rewritten last
	rewrote time.Time  // when that failed last
	failing bool
	spare   []*entity // lists that are used again
	all     []*entity
	buf     []byte
	marks   []int // ends of records in buf
}

func newJournal(s *Store, d *appendlog.Dir, l *appendlog.Log) *journal {
	return &journal{s: s, dir: d, log: l, stop: make(chan struct{}), done: make(chan struct{}), slack: slack}
}

// run writes until it is stopped.
func (j *journal) run() {
	defer close(j.done)
	t := time.NewTicker(flushEvery)
	defer t.Stop()
	for {
		select {
		case <-j.stop:
			return
		case <-t.C:
			j.tick()
		}
	}
}

func (j *journal) tick() {
	err := errors.Join(j.flush(), j.s.keys.flush())
	if err == nil {
		due, waiting := j.grown()
		if waiting {
			return // nothing is new: the file still grows
		}
		if due {
			err = j.rewrite()
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if failing := err != nil; failing != j.failing {
		j.failing = failing
		j.s.report(err)
	}
}

// grown tells whether the file is much larger than it has to be, and whether that
// is to wait, since to rewrite it failed just now.
func (j *journal) grown() (due, waiting bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.log.Size() <= 2*j.live+j.slack {
		return false, false
	}
	waiting = time.Since(j.rewrote) < rewriteAgain
	return !waiting, waiting
}

// halt ends run.
func (j *journal) halt() {
	close(j.stop)
	<-j.done
}

// resume goes on after halt.
func (j *journal) resume() {
	j.stop, j.done = make(chan struct{}), make(chan struct{})
	go j.run()
}

func (j *journal) close() error { return errors.Join(j.keys.Close(), j.log.Close(), j.dir.Close()) }

// remove deletes the files, after others have taken their place.
func (j *journal) remove() error { return errors.Join(j.keys.Remove(), j.log.Remove(), j.dir.Close()) }

// flush writes what has changed, and returns when it is on the disk. After an error
// nothing is forgotten: what could not be written is with the log, the rest in the
// lists of the shards.
func (j *journal) flush() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.flushLocked()
}

func (j *journal) flushLocked() error {
	if j.log.Unsynced() > 0 { // the last time failed: no more until that is done
		if err := j.sync(); err != nil {
			return fmt.Errorf("writing counts: %w", err)
		}
	}
	for i := range j.s.shards {
		sh := &j.s.shards[i]
		if err := errors.Join(j.collectOverrides(sh), j.collect(sh)); err != nil {
			return fmt.Errorf("writing counts: %w", err)
		}
	}
	if err := j.sync(); err != nil {
		return fmt.Errorf("writing counts: %w", err)
	}
	return nil
}

// append adds a record of what has changed.
func (j *journal) append(record []byte) error {
	err := j.log.Append(record)
	if j.before != nil {
		err = errors.Join(err, j.before.Append(record))
	}
	return err
}

// sync writes what was appended. A directory that is to be left may be full: what it lacks
// stays with its log.
func (j *journal) sync() error {
	if j.before != nil {
		_ = j.before.Sync()
	}
	return j.log.Sync()
}

// collect appends the records of a shard's entities that have changed.
func (j *journal) collect(sh *shard) error {
	sh.mu.Lock()
	list := sh.dirty
	if len(list) == 0 {
		sh.mu.Unlock()
		return nil
	}
	sh.dirty = j.spare[:0]
	sh.mu.Unlock()
	var first error
	for part := range slices.Chunk(list, batch) {
		j.encode(sh, part, true)
		if err := j.each(j.append); err != nil && first == nil {
			first = err // of a record that is too long, not of the disk
		}
		if j.log.Unsynced() < flushSize {
			continue
		}
		if err := j.sync(); err != nil && first == nil {
			first = err
		}
	}
	clear(list)
	j.spare = list
	return first
}

// collectOverrides appends the records of the limits in a shard that have changed.
func (j *journal) collectOverrides(sh *shard) error {
	sh.mu.Lock()
	j.buf, j.marks = j.buf[:0], j.marks[:0]
	for e := range sh.own.changed {
		j.buf = sh.own.appendRecord(j.buf, e)
		j.marks = append(j.marks, len(j.buf))
	}
	sh.own.changed = nil
	sh.mu.Unlock()
	return j.each(j.append)
}

// encodeOverrides puts the records of all limits in a shard into buf.
func (j *journal) encodeOverrides(sh *shard) {
	j.buf, j.marks = j.buf[:0], j.marks[:0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for e := range sh.own.limits {
		j.buf = sh.own.appendRecord(j.buf, e)
		j.marks = append(j.marks, len(j.buf))
	}
}

// encode puts the records of entities into buf. Those in the shard's list of
// changes are taken from it.
func (j *journal) encode(sh *shard, part []*entity, changed bool) {
	j.buf, j.marks = j.buf[:0], j.marks[:0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := j.s.now().UnixMilli()
	for _, e := range part {
		begin := len(j.buf)
		var n int
		if j.buf, n = e.appendRecord(j.buf, now); n == 0 && !changed {
			j.buf = j.buf[:begin] // nothing that a new file has to be told
			continue
		}
		j.marks = append(j.marks, len(j.buf))
		if changed {
			e.dirty = false
		}
	}
}

// each gives the records in buf to f.
func (j *journal) each(f func([]byte) error) (first error) {
	begin := 0
	for _, end := range j.marks {
		if err := f(j.buf[begin:end]); err != nil && first == nil {
			first = err
		}
		begin = end
	}
	return first
}

// rewrite makes the file as small as it can be. Calls go on meanwhile, and what
// they change is written as at any time.
func (j *journal) rewrite() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.rewriteLocked(); err != nil {
		j.rewrote = time.Now()
		return fmt.Errorf("rewriting counts: %w", err)
	}
	j.live, j.rewrote = j.log.Size(), time.Time{}
	return nil
}

func (j *journal) rewriteLocked() error {
	w, err := j.log.Rewrite()
	if err != nil {
		return err
	}
	if err := w.Append(j.s.mark); err != nil {
		return errors.Join(err, w.Abort())
	}
	flushed := time.Now()
	for i := range j.s.shards {
		sh := &j.s.shards[i]
		j.encodeOverrides(sh)
		if err := j.each(w.Append); err != nil {
			return errors.Join(err, w.Abort())
		}
		sh.mu.Lock()
		j.all = append(j.all[:0], sh.ends...)
		sh.mu.Unlock()
		for part := range slices.Chunk(j.all, batch) {
			j.encode(sh, part, false)
			if err := j.each(w.Append); err != nil {
				return errors.Join(err, w.Abort())
			}
		}
		clear(j.all)
		if time.Since(flushed) < j.s.apart {
			continue
		}
		if err := j.flushLocked(); err != nil {
			return errors.Join(err, w.Abort())
		}
		flushed = time.Now()
	}
	j.all = nil
	return w.Commit()
}
