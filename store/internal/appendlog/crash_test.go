package appendlog_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// crashing is a log of numbers that rise by one, of which a rewrite keeps all. Whatever
// a process dies of, the next finds the first so many.
type crashing struct {
	disk    *crashtest.Disk
	path    string
	version byte

	dir     *appendlog.Dir
	log     *appendlog.Log
	rewrite *appendlog.Rewrite
	listed  int // of the records, how many the rewrite was given

	appended int
	written  int // of them, those that a process which is killed leaves for certain
	synced   int // those that a power cut does
}

// open opens the log, and tells what is wrong with what is found.
func (c *crashing) open() error {
	dir, err := appendlog.LockOn(c.disk, c.path)
	if err != nil {
		return err
	}
	found := 0
	log, _, err := dir.OpenSince("log", 1, c.version, func(record []byte) error {
		if want := number(found); string(record) != want {
			return fmt.Errorf("record %q stands where %q belongs", record, want)
		}
		found++
		return nil
	})
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	c.dir, c.log, c.rewrite = dir, log, nil
	if found < c.written || found > c.appended {
		return fmt.Errorf("found %d records of %d, %d of which were certain", found, c.appended, c.written)
	}
	c.appended, c.written = found, found
	return nil
}

// number is the record of that number, of a length of its own.
func number(n int) string { return fmt.Sprintf("%d%0*d", n, n%23+1, 0) }

func (c *crashing) sync() error {
	n := c.appended
	err := c.log.Sync()
	if err == nil {
		c.written, c.synced = n, n
	}
	return err
}

func (c *crashing) begin() {
	if c.rewrite == nil {
		c.rewrite, _ = c.log.Rewrite()
		c.listed = 0
	}
	if c.rewrite == nil {
		return
	}
	for n := c.appended; c.listed < n; c.listed++ {
		if c.rewrite.Append([]byte(number(c.listed))) != nil {
			return // Commit tells
		}
	}
}

// doom has the process die soon.
func (c *crashing) doom(r *rapid.T) {
	if rapid.Bool().Draw(r, "between") {
		c.disk.KillBetween(rapid.IntRange(0, 12).Draw(r, "acts"))
	} else {
		c.disk.Kill(rapid.IntRange(0, 300).Draw(r, "bytes"))
	}
}

// A process is killed between writing a record, or putting a new file in the place of the
// log, and syncing that. The next builds on what it finds, and then the power fails.
func TestWhatWasFoundIsCertain(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rewrite bool
		acts    int // that the process does yet
		found   int
	}{
		{"before the record is written", false, 0, 2},
		{"before the record is synced", false, 1, 3},
		{"before the new file is synced", true, 2, 2},
		{"before the new file is in place", true, 3, 2},
		{"before the directory is synced", true, 4, 3},
	} {
		for _, more := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, more %t", tt.name, more), func(t *testing.T) {
				c := &crashing{disk: crashtest.New(), path: t.TempDir(), version: 1}
				check := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				add := func() {
					t.Helper()
					check(c.log.Append([]byte(number(c.appended))))
					c.appended++
				}
				end := func() {
					t.Helper()
					c.disk.Kill(0)
					_ = c.log.Close() // which fails where something is to be written
					check(c.dir.Close())
					c.disk.Restart()
				}
				check(c.open())
				add()
				add()
				check(c.sync())
				add()
				c.disk.KillBetween(tt.acts)
				if tt.rewrite {
					c.begin()
					_ = c.rewrite.Commit()
				} else {
					_ = c.log.Sync()
				}
				if !c.disk.Dead() {
					t.Fatal("it lives on")
				}
				end()
				check(c.open())
				if c.appended != tt.found {
					t.Fatalf("found %d records, want %d", c.appended, tt.found)
				}
				if more {
					add()
					check(c.sync())
				}
				want := c.appended
				end()
				check(c.disk.CutPower(func(_ string, least, _ int) int { return least }))
				if err := c.open(); err != nil || c.appended != want {
					t.Fatalf("after a power cut: %d records of %d, %v", c.appended, want, err)
				}
				end()
			})
		}
	}
}

func TestWhatIsSyncedSurvivesAProcessThatDiesAnywhere(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := &crashing{disk: crashtest.New(), path: t.TempDir(), version: 1}
		if err := c.open(); err != nil {
			r.Fatal(err)
		}
		defer func() { _ = c.dir.Close() }()
		faulty := false
		crash := func() {
			c.disk.Kill(0)
			_ = errors.Join(c.log.Close(), c.dir.Close())
			cut := rapid.Bool().Draw(r, "power")
			if cut {
				c.written = c.synced
				if err := c.disk.CutPower(func(what string, least, most int) int {
					return rapid.IntRange(least, most).Draw(r, what)
				}); err != nil {
					r.Fatal(err)
				}
			}
			c.disk.Restart()
			faulty = false
			c.version = rapid.ByteRange(c.version, c.version+1).Draw(r, "version")
			for try := range 3 {
				if try == 0 && rapid.Bool().Draw(r, "dies at once") {
					c.doom(r)
				}
				err := c.open()
				if c.disk.Dead() {
					if err == nil {
						_ = c.log.Close()
						_ = c.dir.Close()
					}
					c.disk.Restart()
					continue
				}
				if err != nil {
					r.Fatal(err)
				}
				if cut {
					c.synced = c.appended
				}
				return
			}
			r.Fatal("it does not open")
		}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			switch rapid.IntRange(0, 9).Draw(r, "what") {
			case 0, 1, 2:
				if err := c.log.Append([]byte(number(c.appended))); err != nil {
					r.Fatal(err)
				}
				c.appended++
				if c.rewrite != nil && c.listed == c.appended-1 {
					c.listed++ // it is in both
				}
			case 3, 4:
				if err := c.sync(); err != nil && !faulty && !c.disk.Dead() {
					r.Fatal(err)
				}
			case 5:
				c.begin()
			case 6:
				if c.rewrite == nil || c.listed < c.appended {
					break
				}
				n := c.appended
				if err := c.rewrite.Commit(); err == nil {
					c.written, c.synced = n, n
				} else if !faulty && !c.disk.Dead() {
					r.Fatal(err)
				}
				c.rewrite = nil
			case 7:
				faulty = !faulty
				switch {
				case faulty && rapid.Bool().Draw(r, "syncs"):
					c.disk.FailSyncs(syscall.EIO)
				case faulty:
					c.disk.Fail(rapid.IntRange(0, 40).Draw(r, "room"), syscall.ENOSPC)
				default:
					c.disk.Fail(0, nil)
					c.disk.FailSyncs(nil)
				}
			case 8:
				c.doom(r)
			case 9:
				crash()
			}
			if c.disk.Dead() {
				crash()
			}
		}
		crash()
	})
}
