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
