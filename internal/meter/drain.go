package meter

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/usage"
)

const (
	// drainsMost bounds the calls that go on without a client at one time. Past it the
	// upstream is cancelled at once, and the call is charged by estimate.
	drainsMost = 1000
	// drainsShare is how many of them may be of one caller, so that no key that hangs up
	// again and again takes what others need.
	drainsShare = drainsMost / 4
)

// drains counts the calls that go on without a client.
type drains struct {
	mu  sync.Mutex
	all int
	by  map[string]int // by caller; those without a key are not told apart
}

// take takes a place, or none where none is left.
func (d *drains) take(who string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == drainsMost || who != "" && d.by[who] == drainsShare {
		return false
	}
	if d.by == nil {
		d.by = make(map[string]int)
	}
	d.all++
	d.by[who]++
	return true
}

// count is how many places are taken.
func (d *drains) count() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(d.all)
}

// release gives a place back.
func (d *drains) release(who string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all--
	if d.by[who]--; d.by[who] == 0 {
		delete(d.by, who)
	}
}

// drain lets a call outlive its client: the upstream is read on for a while, since
// what was used comes last in an answer.
//
// It is the context of the handlers behind. While they are at work for a call whose use
// is counted, it has the values and the deadline of the client's and ends when the drain
// does. Before and after it is no different from the client's. All of it may be called
// from any goroutine.
type drain struct {
	m       *Meter
	who     string          // whose share of the places it takes
	client  context.Context // ends when the client has gone
	work    context.Context // ends later
	cancel  context.CancelFunc
	unwatch func() bool
	wait    time.Duration
	begun   atomic.Bool // the fields above are set, and not only client
	over    atomic.Bool // the handlers have returned

	mu    sync.Mutex
	timer *time.Timer // set once the client has gone
	place bool        // one of the meter's places is taken
}

// outlive keeps the handlers behind at work when the client goes, until end is called. It
// does so once, for calls whose use somebody counts, and is false for all others: they
// are cancelled with their client, as ever.
func (c *Call) outlive(r *http.Request) bool {
	wait := time.Duration(c.m.drain.Load())
	d := &c.ownDrain
	client := d.client
	if wait < 0 || c.drain != nil || c.tap.resp == nil || c.Endpoint.Class != usage.Spending || client.Err() != nil {
		return false
	}
	d.m, d.who, d.wait = c.m, caller(r), wait
	if deadline, ok := client.Deadline(); ok {
		d.work, d.cancel = context.WithDeadline(context.Background(), deadline)
	} else {
		d.work, d.cancel = context.WithCancel(context.Background())
	}
	d.unwatch = context.AfterFunc(client, func() { d.left() })
	c.drain = d
	c.m.live.add(d)
	d.begun.Store(true)
	return true
}

// left begins the drain: the client has gone, or takes no more. It is false if there is
// nothing any more to be drained.
func (d *drain) left() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over.Load() {
		return false
	}
	if d.timer != nil {
		return true
	}
	wait := d.wait
	if d.place = d.m.drains.take(d.who); !d.place {
		wait = 0
	}
	d.timer = time.AfterFunc(wait, d.cancel)
	return true
}

// end ends the drain, and what still runs of the call upstream.
func (d *drain) end() {
	d.unwatch()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over.Store(true)
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.place {
		d.m.drains.release(d.who)
	}
	d.cancel()
}

// stopped tells whether the time to drain is over.
func (d *drain) stopped() bool { return d.work.Err() != nil }

// gone tells whether the client has gone.
func (d *drain) gone() bool { return d.client.Err() != nil }

// now is the context that counts at this moment.
func (d *drain) now() context.Context {
	if !d.working() {
		return d.client
	}
	return d.work
}

// working tells whether the drain decides when the handlers behind end.
func (d *drain) working() bool { return d.begun.Load() && !d.over.Load() }

// Deadline implements context.Context.
func (d *drain) Deadline() (time.Time, bool) { return d.client.Deadline() }

// Done implements context.Context.
func (d *drain) Done() <-chan struct{} { return d.now().Done() }

// Err implements context.Context.
func (d *drain) Err() error { return d.now().Err() }

// Value implements context.Context. What package context keeps for itself in there, under
// a pointer to an int, is that of the context whose end counts.
func (d *drain) Value(key any) any {
	if _, own := key.(*int); own && d.working() {
		if v := d.work.Value(key); v != nil {
			return v
		}
	}
	return d.client.Value(key)
}
