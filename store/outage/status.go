package outage

import "time"

// Status is what an operator wants to know of the remote.
type Status struct {
	// Open is set while the remote is not called.
	Open bool
	// Since is when it opened, the zero time if it is not open.
	Since time.Time
	// LastError is why the remote could not be reached the last time, empty if it
	// always could.
	LastError string
	// Pending is how many batches of charges, and settlements of the remote's own,
	// wait for it.
	Pending int
	// JournalBytes is the length of the files they are kept in.
	JournalBytes int64
	// JournalError is why they are not, empty if all is well.
	JournalError string
	// Saturated is set once there was no room for further records: charges are in full,
	// but windows were not told apart any more. It is unset when all is handed over.
	Saturated bool
	// Outstanding is how many admitted calls have not ended.
	Outstanding int
}

// Status tells how things are. It asks nobody.
func (c *Counters) Status() Status {
	c.Start()
	_, _, full := c.queue.state()
	s := Status{
		Open: c.Away(), Pending: c.Pending(), Saturated: full, Outstanding: c.Outstanding(),
		JournalBytes: c.journal.Load().size(),
	}
	if s.Open {
		s.Since = time.UnixMilli(c.since.Load())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastErr != nil {
		s.LastError = c.lastErr.Error()
	}
	if c.journalErr != nil {
		s.JournalError = c.journalErr.Error()
	}
	return s
}

// Away tells whether the remote is not called.
func (c *Counters) Away() bool { return c.isOpen.Load() }

// Pending is Status.Pending.
func (c *Counters) Pending() int {
	c.Start()
	return c.queue.pending() + c.remote.Pending()
}
