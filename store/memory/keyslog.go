package memory

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

const (
	// keysName is the file of keys in the directory.
	keysName = "keys.log"
	// keysVersion is that of its records.
	keysVersion = 1
)

// A record of a key is its revision (a varint), when it was deleted (a varint of Unix
// milliseconds, 0 if it was not), and the key's own record, or its id if it was
// deleted. The last one of an id holds.

func (k *Keys) record(id string) (b []byte) {
	if key := k.byID[id]; key != nil {
		b = binary.AppendVarint(b, key.Revision)
		b = binary.AppendVarint(b, 0)
		if key.Damaged {
			return append(b, k.damaged[id]...)
		}
		return append(b, key.Record()...)
	}
	g := k.gone[id]
	b = binary.AppendVarint(b, g.revision)
	b = binary.AppendVarint(b, g.at)
	return append(b, id...)
}

var errKeyRecord = errors.New("reading a key: its record is too short")

// parseRecord reads a record. A key that was deleted has its time of that. Of one that
// cannot be read, which is an error, the id and the revision may be known.
func parseRecord(record []byte) (key store.Key, at int64, err error) {
	revision, n := binary.Varint(record)
	if n <= 0 {
		return key, 0, errKeyRecord
	}
	record = record[n:]
	at, n = binary.Varint(record)
	if n <= 0 {
		return key, 0, errKeyRecord
	}
	record = record[n:]
	if at != 0 {
		key = store.Key{ID: string(record), Deleted: true}
	} else if key, err = store.ParseKey(record); err != nil {
		key = store.Key{ID: store.RecordID(record), Disabled: true, Damaged: true}
	}
	key.Revision = revision
	return key, at, err
}

// write puts what has become of keys on the disk. writing is locked.
func (k *Keys) write(ids ...string) error {
	if k.log == nil || len(ids) == 0 {
		return nil
	}
	k.mu.RLock()
	records := make([][]byte, len(ids))
	for i, id := range ids {
		records[i] = k.record(id)
	}
	live := len(k.byID) + len(k.gone)
	k.mu.RUnlock()
	var err error
	for _, record := range records {
		err = errors.Join(err, k.log.Append(record))
	}
	if err == nil {
		err = k.log.Sync()
	}
	if err != nil {
		return fmt.Errorf("writing the key %q, which is changed in memory and not on the disk: %w: %w", ids[0], store.ErrUnavailable, err)
	}
	if k.records += len(ids); k.records > 2*live+1000 {
		_ = k.rewrite(k.log) // the file is right, only larger than it could be
	}
	return nil
}

// flush tries again to write what could not be written.
func (k *Keys) flush() error {
	k.writing.Lock()
	defer k.writing.Unlock()
	return k.sync()
}

// sync is flush with writing locked.
func (k *Keys) sync() error {
	switch {
	case k.log == nil:
		return nil
	case k.lacking:
		if err := k.rewrite(k.log); err != nil {
			return err
		}
		k.lacking = false
	}
	// Nothing waits after a rewrite but, where that failed, to sync the directory.
	if err := k.log.Sync(); err != nil {
		return fmt.Errorf("writing keys: %w", err)
	}
	return nil
}

// use has keys written to a log from now on, or nowhere. What was read is taken in, and a
// log that is not what is in memory then is written anew, at one instant: no key is issued
// or revoked in between. After an error keys are written as before, and the log before is
// to have what was read: flush sees to that.
func (k *Keys) use(l *appendlog.Log, from *keysLoading) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	if l != nil {
		k.join(from)
		k.records = from.records
		if from.mixed || from.records > 2*len(from.last)+1000 {
			if err := k.rewrite(l); err != nil {
				k.lacking = k.log != nil // what was taken in is in memory alone
				return err
			}
		}
	}
	k.log, k.lacking = l, false
	return nil
}

// rewrite makes a log of nothing but what there is. writing is locked.
func (k *Keys) rewrite(l *appendlog.Log) error {
	k.mu.RLock()
	records := make([][]byte, 0, len(k.byID)+len(k.gone))
	for id := range k.byID {
		records = append(records, k.record(id))
	}
	for id := range k.gone {
		records = append(records, k.record(id))
	}
	k.mu.RUnlock()
	w, err := l.Rewrite()
	if err != nil {
		return fmt.Errorf("rewriting keys: %w", err)
	}
	for _, r := range records {
		if err := w.Append(r); err != nil {
			return fmt.Errorf("rewriting keys: %w", errors.Join(err, w.Abort()))
		}
	}
	if err := w.Commit(); err != nil {
		return fmt.Errorf("rewriting keys: %w", err)
	}
	k.records = len(records)
	return nil
}

// keysLoading are the keys of a file, as far as it has been read.
type keysLoading struct {
	last    map[string]loadedKey
	records int
	mixed   bool // the file is not what is in memory
	joined  bool
	found   *Restored
}

type loadedKey struct {
	store.Key
	at  int64
	raw []byte // of a damaged one, which is kept as it is
}

func (l *keysLoading) visit(record []byte) error {
	key, at, _ := parseRecord(record)
	if key.ID == "" {
		l.found.KeysUnread++
		return nil
	}
	if key.Revision >= l.last[key.ID].Revision {
		from := loadedKey{Key: key, at: at}
		if key.Damaged { // it may have said that the key is disabled: what was before must not work
			_, n := binary.Varint(record)
			_, m := binary.Varint(record[n:])
			from.raw = bytes.Clone(record[n+m:])
		}
		l.last[key.ID] = from
	}
	return nil
}

// openKeys reads the file of keys of a directory.
func openKeys(d *appendlog.Dir, found *Restored) (*appendlog.Log, *keysLoading, error) {
	l := &keysLoading{last: make(map[string]loadedKey), found: found}
	log, rec, err := d.Open(keysName, keysVersion, l.visit)
	if err != nil {
		return nil, nil, err
	}
	l.records = rec.Records
	found.KeysDropped, found.KeysSetAside = rec.Dropped, rec.SetAside
	for _, k := range l.last {
		if !k.Deleted {
			found.Keys++
		}
	}
	return log, l, nil
}

// join takes what was read in, once. Of a key that is there in two states the later
// holds. writing is locked.
func (k *Keys) join(l *keysLoading) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.joined {
		return
	}
	l.joined = true
	l.mixed = l.mixed || len(k.order) > 0 || len(k.buried) > 0
	later := make([]loadedKey, 0, len(l.last))
	for id, from := range l.last {
		if max(k.revision(id), k.buried[id]) < from.Revision {
			later = append(later, from)
		}
	}
	later = k.takeable(later)
	// All let go of their secrets before any takes one: it may have been another's.
	for i := range later {
		if old := k.drop(later[i].ID); old != 0 {
			k.sum = store.AddRevision(k.sum, old, 0)
			k.ids = nil
		}
	}
	for i := range later {
		k.take(&later[i])
	}
	slices.SortFunc(k.order, func(a, b change) int { return cmp.Compare(a.revision, b.revision) })
	k.prune()
}

// takeable are the keys that can be taken in together, in their order: those that are left
// once no secret is that of a key that stays as it is, or of an earlier one. The others are of
// a copy of the file in which a key had another id. One that is refused stays as it is, with
// its secrets, which may have been another's since: that is to be refused then, too. mu is
// locked.
func (k *Keys) takeable(later []loadedKey) []loadedKey {
	slices.SortFunc(later, func(a, b loadedKey) int { return cmp.Compare(a.Revision, b.Revision) })
	coming := make(map[string]bool, len(later))
	for i := range later {
		coming[later[i].ID] = true
	}
	for before := -1; before != len(later); {
		before = len(later)
		secrets := make(map[store.KeyHash]bool, len(later))
		later = slices.DeleteFunc(later, func(from loadedKey) bool {
			if from.Deleted {
				return false
			}
			hashes := from.Hashes()
			for _, h := range hashes {
				if other := k.byHash[h]; secrets[h] || other != nil && !coming[other.ID] {
					coming[from.ID] = false
					return true
				}
			}
			for _, h := range hashes {
				secrets[h] = true
			}
			return false
		})
	}
	return later
}

// take takes a key in as it was read. mu is locked.
func (k *Keys) take(from *loadedKey) {
	if from.Deleted {
		k.bury(from.ID, gone{from.Revision, from.at})
		return
	}
	key := from.Key
	if k.set(&key); key.Damaged {
		k.damaged[key.ID] = from.raw
	}
}
