// Package outage keeps limits working while the store that replicas share cannot be
// reached.
//
// A circuit breaker stands before the remote store. Once a few calls have failed it
// opens, and from then on calls wait for nothing: they are counted in the process,
// or admitted uncounted, or refused, as the policy says. A ping in the background
// finds out when the remote is back.
//
// Whatever the policy, what calls have used in an outage is charged to the remote
// afterwards, exactly once, in the windows that it was used in. Meanwhile it is kept
// in a file, so that a restart does not lose it.
package outage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// Policy says what becomes of calls in an outage.
type Policy uint8

const (
	// Local counts them in the process, starting from what the remote last said.
	Local Policy = iota
	// Allow admits them, whatever the limits.
	Allow
	// Deny fails them with store.ErrUnavailable.
	Deny
)

// String is the policy's name.
func (p Policy) String() string {
	switch p {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	default:
		return "local"
	}
}

// ParsePolicy reads a policy's name: local, allow or deny.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "local":
		return Local, nil
	case "allow":
		return Allow, nil
	case "deny":
		return Deny, nil
	default:
		return 0, fmt.Errorf("on_outage %q is none of local, allow, deny", s)
	}
}

// Defaults of the options.
const (
	defaultFailures   = 3
	defaultProbe      = 250 * time.Millisecond
	defaultTimeout    = 250 * time.Millisecond
	defaultJournalCap = 64 << 20
)

// Options say how outages are bridged. The zero value is usable.
type Options struct {
	// Policy is what becomes of calls. The default is Local.
	Policy Policy
	// Replicas is how many processes share the remote: with Local, each takes its part
	// of what was left. 0 is the default: this process takes all that was left, and
	// calls that must never pass a limit fail.
	Replicas int
	// Dir is where charges are kept that the remote has not taken yet, and the
	// identity of this replica. It belongs to one process at a time. Where it is
	// empty or cannot be used, they are kept in memory only.
	Dir string
	// JournalCap bounds the files, in bytes. What no longer fits is added to records
	// that are there, which then do not tell windows apart any more. The default is
	// 64 MiB.
	JournalCap int64
	// Failures in a row open the circuit. The default is 3.
	Failures int
	// Probe is how often the remote is tried while the circuit is open. The default
	// is 250ms.
	Probe time.Duration
	// Timeout bounds what a call waits for in all. The remote's own timeout is the
	// same. The default is 250ms.
	Timeout time.Duration
	// MaxEntities is how many consumers are counted locally, and how many that are not
	// known this replica has counted at the remote. The default is that of the memory
	// store.
	MaxEntities int
	// Before are counters of the same remote that these take the place of, with other
	// options. They may be in use yet. What they know of the use of limits is shared, and
	// their MaxEntities and Now are kept. Nil for none.
	Before *Counters
	// Now is the clock of local counting. The default is time.Now.
	Now func() time.Time

	// OnOpen is told that the circuit opened, and why; OnClose that it closed, and how
	// long it was open; OnError of trouble with the files, at most once a minute. They
	// are called by one goroutine, but OnError.
	OnOpen  func(err error)
	OnClose func(open time.Duration)
	OnError func(err error)

	every time.Duration // how often files are written; for tests
}

// Counters is a store of counters that others share, or a stand-in while it cannot
// be reached.
type Counters struct {
	open func(identity string) Remote
	o    Options
	now  func() time.Time

	policy   atomic.Uint32
	replicas atomic.Int64

	once    sync.Once
	opened  atomic.Bool
	remote  Remote
	breaker *gobreaker.CircuitBreaker[*store.Ticket]
	*ledger
	spread  spread
	apart   apart
	began   time.Time
	newest  atomic.Int64 // since began, when the newest call began that the remote has served
	guests  guests
	feeler  string // the origin of batches that charge nothing
	queue   *queue
	journal atomic.Pointer[journal] // nil without a usable directory

	isOpen      atomic.Bool
	since       atomic.Int64 // Unix milliseconds of the opening
	outstanding atomic.Int64 // tickets that are not settled
	wake        chan struct{}
	stop        chan struct{}
	done        sync.WaitGroup
	closing     sync.Once
	renewing    sync.Mutex

	mu         sync.Mutex // guards what follows
	lastErr    error
	journalErr error
	errors     limited
}

// errDown is made once: an outage must not cost allocations.
var errDown = fmt.Errorf("the shared counters cannot be reached: %w", store.ErrUnavailable)

// New returns counters that nothing has been done for yet: the remote is opened, the
// directory locked and goroutines are started by Start or the first call. open is
// given the identity that the remote had in a former process, empty if that is not
// known; it must not block.
func New(open func(identity string) Remote, o Options) *Counters {
	c := &Counters{open: open, o: o, now: o.Now, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	c.o.Failures = cmp.Or(o.Failures, defaultFailures)
	c.o.Probe = cmp.Or(o.Probe, defaultProbe)
	c.o.every = cmp.Or(o.every, journalEvery)
	c.o.JournalCap = cmp.Or(o.JournalCap, defaultJournalCap)
	if c.now == nil {
		c.now = time.Now
	}
	c.o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	c.apart.failures, c.apart.first, c.feeler = c.o.Failures, c.o.Probe, randomID()
	c.began = time.Now()
	if c.ledger = newLedger(&c.o); o.Before != nil {
		c.ledger, c.o.Before = o.Before.ledger, nil // lest they stay for as long as these
	}
	c.Set(o.Policy, o.Replicas)
	return c
}

// Set changes what may change while the counters are in use. Nothing that is pending
// is lost.
func (c *Counters) Set(p Policy, replicas int) {
	c.policy.Store(uint32(p))
	c.replicas.Store(int64(replicas))
}

// Policy is the one in force.
func (c *Counters) Policy() Policy { return Policy(c.policy.Load()) }

// Timeout is what a call waits for at most.
func (c *Counters) Timeout() time.Duration { return c.o.Timeout }

// Start opens the remote and takes up what a former process has left to charge. A
// directory that cannot be used is reported to OnError.
func (c *Counters) Start() {
	c.once.Do(func() {
		c.begin()
		c.done.Go(c.run)
		if c.o.Dir != "" {
			c.done.Go(c.keepJournal)
		}
	})
}

// begin is Start without what goes on in the background.
func (c *Counters) begin() {
	c.queue = newQueue(c.o.JournalCap / 2)
	c.queue.dir = c.o.Dir
	c.counts(c.queue.origin)
	c.join(c.queue)
	c.guests.most, c.guests.pending = cmp.Or(c.o.MaxEntities, memory.DefaultMaxEntities), c.queue.has
	c.breaker = c.newBreaker()
	j, err := c.takeDirectory()
	c.remote = c.open(j.identity())
	c.noteJournal(errors.Join(err, c.useJournal(j)))
	c.opened.Store(true)
}

// Remote is the store behind, which is opened if it was not.
func (c *Counters) Remote() Remote {
	c.Start()
	return c.remote
}

// Outstanding is how many admitted calls have not been settled.
func (c *Counters) Outstanding() int { return int(c.outstanding.Load()) }

// Close hands over what is pending until ctx is done, keeps the rest in the
// directory, and ends. It is for when all calls have ended: what is settled later is
// not charged. The error is of what is lost, or may be.
func (c *Counters) Close(ctx context.Context) error {
	c.once.Do(func() { c.remote = nil }) // it was never used
	if c.remote == nil {
		return nil
	}
	var err error
	c.closing.Do(func() {
		close(c.stop)
		c.done.Wait()
		if c.isOpen.Load() { // there is nothing to be gained by waiting
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.Timeout())
			defer cancel()
		} else {
			c.flush(ctx)
		}
		closeErr := c.remote.Close(ctx)
		rest := c.remote.Export()
		j := c.journal.Load()
		if j == nil && c.queue.pending()+len(rest) > 0 {
			j, rest = c.takeOver(rest)
		}
		c.queue.close(j != nil) // before another can read the file
		c.prune(nil)
		if j != nil {
			err = j.close(c.isOpen.Load(), rest)
		} else if n := c.queue.pending() + len(rest); n > 0 {
			err = errors.Join(fmt.Errorf("closing store: %d charges are lost, as there is no directory to keep them in", n), closeErr)
		}
	})
	return err
}

// Safe tells whether to close the counters would lose nothing: all is handed over, or there
// is a directory to keep it in. Other counters of this process may have it still.
func (c *Counters) Safe() bool {
	return !c.opened.Load() || c.journal.Load() != nil || c.Pending() == 0
}

// flush sends all charges, until ctx is done or none gets through.
func (c *Counters) flush(ctx context.Context) {
	c.apart.pardon()
	for failures := 0; failures < c.o.Failures && ctx.Err() == nil; {
		sent, err := c.deliver(ctx)
		switch {
		case !sent:
			return
		case err != nil:
			failures++
		default:
			failures = 0
		}
	}
}

// report tells of trouble, at most once a minute.
func (c *Counters) report(err error) {
	c.mu.Lock()
	due := c.errors.due(c.now())
	c.mu.Unlock()
	if due && c.o.OnError != nil {
		c.o.OnError(err)
	}
}

// limited is due at most once a minute.
type limited struct{ last time.Time }

func (l *limited) due(now time.Time) bool {
	if !l.last.IsZero() && now.Sub(l.last) < time.Minute {
		return false
	}
	l.last = now
	return true
}
