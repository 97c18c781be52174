package outage

import (
	"context"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Horizon is how long after it was applied a batch may come again. A remote must
// tell batches apart for that long; batches that are older are not sent any more.
// It is longer than a month, so that no window of the calendar ends later.
const Horizon = 35 * 24 * time.Hour

// Remote is what is needed of the store whose outages are bridged. Its own timeout
// bounds every call; its errors wrap store.ErrUnavailable.
//
// Tickets that it admitted it settles by itself, exactly once, however long it
// takes to reach the server: Settle neither waits nor fails.
type Remote interface {
	store.Counters

	// Ping returns nil if the server answers and takes writes.
	Ping(ctx context.Context) error

	// Charge applies batches, which are of different entities, and returns an error
	// for each, nil for those that are applied. A batch is skipped, as one that was
	// applied, if its entity has seen one of the same Origin with an equal or higher
	// Seq. So a batch whose fate is unknown can be sent again.
	Charge(ctx context.Context, batches []Batch) []error

	// Pending is how many settlements, and calls whose fate is unknown, wait for the
	// server.
	Pending() int

	// Export returns what is pending, in the remote's own form, such that giving it
	// to Restore in another process applies nothing twice, even if this one goes on
	// to send it meanwhile. It may be called after Close.
	Export() [][]byte

	// Restore takes back what another process has exported, before anything else.
	Restore(records [][]byte) error

	// Close sends what is pending until ctx is done, and ends the connections.
	Close(ctx context.Context) error
}

// Batch is what calls of one entity have used during an outage.
type Batch struct {
	Entity store.Entity
	// Origin is the process that made the batch, 16 hexadecimal digits.
	Origin string
	// Seq rises with each batch of an origin, from 1 on.
	Seq int64
	// At is when it was used. It is charged to the windows that At lies in, of rolling
	// windows also if it is the one before the current; windows that are over are
	// left alone.
	At time.Time
	// Lines name each rule at most once.
	Lines []Amount
}

// Amount is what a batch charges to one counter.
type Amount struct {
	Rule *store.Rule
	// Amount is given back if negative, of what was charged in the same window; a
	// token bucket gets it back up to full.
	Amount int64
}
