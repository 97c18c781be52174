// Package crashtest is a disk on which processes die: in the middle of a write, between
// two steps of a rewrite, or by the power that fails, which takes with it what was
// written and not synced.
//
// It writes to files of the system, that are read there by who comes next, but syncs
// nothing: what a power cut leaves is worked out.
package crashtest

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// ErrKilled is what a process would see of its disk if it were not dead.
var ErrKilled = errors.New("the process is dead")

// never is more steps than any process has.
const never = 1 << 62

// Disk is one that a process dies on. It is safe for use by many goroutines.
type Disk struct {
	mu   sync.Mutex
	left int   // bytes and acts until the process dies
	acts int   // acts alone until it does
	err  error // what all writes fail with, nil if they do not
	room int   // bytes that are written yet before
	sync error // what syncing fails with, nil if it does not
	// names are the files by their paths as a process sees them, certain those that a
	// directory is certain to have.
	names, certain map[string]*content
}

// content is that of a file, by whatever name.
type content struct {
	data   []byte
	synced []byte
	// from and to are what a sync that failed has left: it never gets to the disk unless it
	// is written again.
	from, to int
}

// New returns a disk on which nobody dies yet.
func New() *Disk {
	return &Disk{left: never, acts: never, names: make(map[string]*content), certain: make(map[string]*content)}
}

// Kill has the process die after so many bytes that it writes, each other act of it, as to
// sync or to rename, being one more.
func (d *Disk) Kill(bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = bytes
}

// KillBetween has the process die after so many acts, of which writes are whole.
func (d *Disk) KillBetween(acts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acts = acts
}

// Dead tells whether it has died.
func (d *Disk) Dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left < 0 || d.acts < 0
}

// Fail has the disk be full, or broken, once so many bytes more are written: nothing can
// be written or synced from then on. With nil it is in order again.
func (d *Disk) Fail(room int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room, d.err = room, err
}

// FailSyncs has all syncing fail, and writing not. What was written before is taken for
// clean then, as systems do: a sync that succeeds later says nothing of it.
func (d *Disk) FailSyncs(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sync = err
}

// Restart is the end of a process that was killed: another finds what it has written. Three
// faults in a row, of a sync, the process and the power, are not gone into.
func (d *Disk) Restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.acts, d.err, d.sync = never, never, nil, nil
	for _, c := range d.names {
		c.from, c.to = 0, 0
	}
}

// CutPower is the end of a process and of the machine: what was not synced is there in
// part. pick chooses from least to most: how many bytes of a file there are, and which
// of two sets of names, 1 for the later one.
func (d *Disk) CutPower(pick func(what string, least, most int) int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.acts, d.err, d.sync = never, never, nil, nil
	names := d.certain
	if pick("names", 0, 1) == 1 {
		names = d.names
	}
	var errs []error
	for path := range d.names {
		if names[path] == nil {
			errs = append(errs, os.Remove(path))
		}
	}
	found := make(map[string]*content)
	for _, path := range slices.Sorted(maps.Keys(names)) {
		c := names[path]
		n := pick(filepath.Base(path), min(len(c.synced), len(c.data)), len(c.data))
		data := c.data[:n]
		errs = append(errs, os.WriteFile(path, data, 0o600))
		found[path] = &content{data: data, synced: data}
	}
	d.names, d.certain = found, maps.Clone(found)
	return errors.Join(errs...)
}

// unsyncable is why nothing can be synced, nil if it can. mu is locked.
func (d *Disk) unsyncable() error {
	if d.err != nil && d.room == 0 {
		return d.err
	}
	return d.sync
}

// act is one of a process, but for writing. mu is locked.
func (d *Disk) act() error {
	d.left--
	d.acts--
	if d.left < 0 || d.acts < 0 {
		return ErrKilled
	}
	return nil
}

// known is what there is at a path, nil for nothing. mu is locked. Somebody may have cut
// it off meanwhile, who reads it.
func (d *Disk) known(path string) *content {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	c := d.names[path]
	if c == nil {
		c = &content{synced: data}
		d.names[path], d.certain[path] = c, c
	}
	c.data = data
	return c
}

// Open implements appendlog.Disk.
func (d *Disk) Open(path string, flag int) (appendlog.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.act(); err != nil {
		return nil, err
	}
	before := d.known(path)
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if before == nil || flag&os.O_TRUNC != 0 {
		before = new(content)
		d.names[path] = before
	}
	return &file{d, f, before}, nil
}

// Rename implements appendlog.Disk.
func (d *Disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.act(); err != nil {
		return err
	}
	d.known(from)
	d.known(to)
	if err := os.Rename(from, to); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

// Remove implements appendlog.Disk.
func (d *Disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.act(); err != nil {
		return err
	}
	d.known(path)
	if err := os.Remove(path); err != nil {
		return err
	}
	delete(d.names, path)
	return nil
}

// SyncDir implements appendlog.Disk.
func (d *Disk) SyncDir(dir string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.act(); err != nil {
		return err
	}
	if err := d.unsyncable(); err != nil {
		return err
	}
	in := func(path string, _ *content) bool { return filepath.Dir(path) == filepath.Clean(dir) }
	maps.DeleteFunc(d.certain, in)
	for path, c := range d.names {
		if in(path, c) {
			d.certain[path] = c
		}
	}
	return nil
}

// file is one that is open.
type file struct {
	d *Disk
	f *os.File
	c *content
}

// WriteAt implements appendlog.File.
func (f *file) WriteAt(b []byte, at int64) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	n, fault := len(b), error(nil)
	if f.d.err != nil && n > f.d.room {
		n, fault = f.d.room, f.d.err
	}
	f.d.room -= min(n, f.d.room)
	if f.d.acts--; f.d.acts < 0 {
		return 0, ErrKilled
	}
	if n > f.d.left {
		n, fault = max(0, f.d.left), ErrKilled
		f.d.left = -1
	} else {
		f.d.left -= n
	}
	n, err := f.f.WriteAt(b[:n], at)
	f.c.data = append(f.c.data, make([]byte, max(0, int(at)+n-len(f.c.data)))...)
	copy(f.c.data[at:], b[:n])
	if int(at) <= f.c.from && int(at)+n >= f.c.to {
		f.c.from, f.c.to = 0, 0
	}
	return n, errors.Join(fault, err)
}

// Sync implements appendlog.File.
func (f *file) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.act(); err != nil {
		return err
	}
	c := f.c
	if err := f.d.unsyncable(); err != nil {
		c.from, c.to = len(c.synced), len(c.data)
		return err
	}
	if c.from < c.to {
		c.synced = slices.Clone(c.data[:c.from])
	} else {
		c.synced = slices.Clone(c.data)
	}
	return nil
}

// Close implements appendlog.File.
func (f *file) Close() error { return f.f.Close() }

// Interface guard
var _ appendlog.Disk = (*Disk)(nil)
