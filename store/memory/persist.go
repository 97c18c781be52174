package memory

import (
	"errors"
	"fmt"

	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// logName is the file in the directory.
const logName = "counters.log"

var (
	// ErrLocked means that another process keeps its counts in the directory.
	ErrLocked = appendlog.ErrLocked
	// ErrNewer means that a newer version wrote what is in the directory.
	ErrNewer = appendlog.ErrNewer
)

// Persist reads what an earlier process has left in dir, and from then on writes
// there what is counted, every half second: of a process that is killed, no more
// than what was counted in its last second is lost. The directory is made if there
// is none, and belongs to this process until Close.
//
// Where the store has another directory, all is moved to the new one. An empty dir
// is as Close. After an error, which wraps ErrLocked or ErrNewer where that is the
// reason, the counts are kept as before.
//
// What was counted before is added to what an earlier process has left. Of what is
// found in a directory later, the larger of both counts: it may be a copy of what
// was read before. What this process has written itself, there or in what is a copy
// now, is not read again: nothing comes back that was cleared, granted or taken away
// meanwhile.
func (s *Store) Persist(dir string) (Restored, error) {
	s.persisting.Lock()
	defer s.persisting.Unlock()
	defer s.gate.open()
	old := s.journal
	if dir == "" {
		return Restored{}, s.unpersist()
	}
	if old != nil && old.dir.Path() == dir {
		return Restored{}, nil
	}
	j, loaded, found, err := s.open(dir)
	if err != nil {
		return found, err
	}
	if old == nil {
		if err := s.keys.use(j.keys, loaded); err != nil {
			s.track(false)
			return found, errors.Join(err, j.close())
		}
		s.journal = j
		go j.run()
		return found, nil
	}
	// The old files stay in use until the new ones have all.
	old.halt()
	if err := s.move(old, j, loaded); err != nil {
		old.resume()
		return found, err
	}
	s.journal = j
	go j.run()
	if err := old.remove(); err != nil {
		// All is in the new file. What is left of the old one is not more.
		s.report(err)
	}
	return found, nil
}

// move has all written to the new files. If that cannot be, what was found there is written
// to the old ones, and only then are the new ones removed.
func (s *Store) move(old, j *journal, loaded *keysLoading) error {
	j.before = old.log
	err := j.rewrite()
	if err == nil {
		err = s.keys.use(j.keys, loaded)
	}
	j.before = nil
	if err == nil {
		return nil
	}
	s.touchAll()
	loaded.mixed = true
	if lost := errors.Join(s.keys.use(old.keys, loaded), old.flush()); lost != nil {
		return errors.Join(err, lost, j.close()) // the new files have what no other has
	}
	return errors.Join(err, j.remove())
}

// touchAll has all that there is written.
func (s *Store) touchAll() {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, e := range sh.ends {
			sh.touch(e)
		}
		for e := range sh.own.limits {
			sh.own.note(e)
		}
		sh.mu.Unlock()
	}
}

// open takes a directory and what is in it.
func (s *Store) open(dir string) (*journal, *keysLoading, Restored, error) {
	d, err := appendlog.LockOn(s.disk, dir)
	if err != nil {
		return nil, nil, Restored{}, err
	}
	l := s.newLoading()
	log, rec, err := d.OpenSince(logName, oldestVersion, recordVersion, l.visit)
	if err != nil {
		return nil, nil, Restored{}, errors.Join(err, d.Close())
	}
	found := l.found
	keysLog, keys, err := openKeys(d, &found)
	if err != nil {
		return nil, nil, found, errors.Join(err, log.Close(), d.Close())
	}
	found.Dropped, found.SetAside = rec.Dropped, rec.SetAside
	j := newJournal(s, d, log)
	j.keys = keysLog
	if rec.Records > 0 {
		j.live = log.Size() / int64(rec.Records) * int64(found.Entities)
	}
	s.track(true)
	s.adopt(l, !s.restored)
	s.restored = true
	if err := s.claimFile(j, l); err != nil {
		if s.track(s.journal != nil); s.journal != nil {
			s.touchAll()
		}
		return nil, nil, found, errors.Join(err, j.close())
	}
	return j, keys, found, nil
}

// claimFile marks a file of which all is taken in. One of which this process knows
// better than the file what is in it is written anew: by move, where there is a directory
// before, which is to be told of all changes meanwhile.
func (s *Store) claimFile(j *journal, l *loading) error {
	if l.known {
		if s.journal != nil {
			return nil
		}
		return j.rewrite()
	}
	if err := j.log.Append(s.mark); err != nil {
		return fmt.Errorf("marking counts: %w", err)
	}
	return nil
}

// track begins or ends to note what changes.
func (s *Store) track(on bool) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.tracked = on
		if !on {
			for _, e := range sh.dirty {
				e.dirty = false
			}
			sh.dirty = nil
			sh.own.changed = nil
		}
		sh.mu.Unlock()
	}
}

// Dir is where counts are written, empty where they are in memory only.
func (s *Store) Dir() string {
	s.persisting.Lock()
	defer s.persisting.Unlock()
	if s.journal == nil {
		return ""
	}
	return s.journal.dir.Path()
}

// Sync writes what has been counted, without waiting for the next half second. It
// does nothing if the store has no directory.
func (s *Store) Sync() error {
	s.persisting.Lock()
	defer s.persisting.Unlock()
	if s.journal == nil {
		return nil
	}
	return errors.Join(s.journal.flush(), s.keys.flush())
}

// flush writes as Sync does, but for keys.
func (s *Store) flush() error {
	s.persisting.Lock()
	defer s.persisting.Unlock()
	if s.journal == nil {
		return nil
	}
	return s.journal.flush()
}

// Close writes what has been counted and gives the directory back. The store stays
// usable, in memory only.
func (s *Store) Close() error {
	s.persisting.Lock()
	defer s.persisting.Unlock()
	return s.unpersist()
}

func (s *Store) unpersist() error {
	j := s.journal
	if j == nil {
		return nil
	}
	s.journal = nil
	j.halt()
	err := errors.Join(j.flush(), s.keys.flush())
	s.track(false)
	return errors.Join(err, s.keys.use(nil, nil), j.close())
}
