package outage

import (
	"context"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Horizon is how long after its time a batch may be sent, and a remote must tell
// batches apart. It is longer than a month, so that no window of the calendar ends
// later.
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
	Charge(ctx context.Context, batches []store.Batch) []error

	// Identity is what the remote is given when it is opened in the next process, to
	// take this one's place. It may change, and may be empty.
	Identity() string

	// Pending is how many settlements, and calls whose fate is unknown, wait for the
	// server.
	Pending() int

	// Export returns what is pending, in the remote's own form, such that giving it
	// to Restore in another process applies nothing twice, even if this one goes on
	// to send it meanwhile. It may be called after Close.
	Export() [][]byte

	// Stuck is Export for while the server answers: of entities alone of which it has
	// failed to take something.
	Stuck() [][]byte

	// Restore takes back what another process has exported, before anything else.
	Restore(records [][]byte) error

	// Close sends what is pending until ctx is done, and ends the connections.
	Close(ctx context.Context) error
}
