package outage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog"
)

// This file is what counters do with their directory.

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
	c.prune(c.queue)
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
	away := c.Away() || c.stuck(j.written)
	export := c.remote.Export
	if !away { // others come and go
		export = c.remote.Stuck
	}
	err := errors.Join(j.keepIdentity(c.remote.Identity()), j.write(away, export, c.now()))
	if err != nil {
		return fmt.Errorf("writing charges: %w", err)
	}
	return nil
}

// stuck tells whether what calls have used waits for a remote that does not answer. The
// circuit opens for calls that fail; of one that has ended when the remote goes away,
// and no other that follows, only this finds out. While there are records in the file it
// is asked, too, or a process that starts in an outage would forget what they say.
func (c *Counters) stuck(written bool) bool {
	if c.remote.Pending() == 0 && !written {
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
