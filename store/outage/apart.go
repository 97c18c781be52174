package outage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

const (
	// apartMost is how long an entity is set apart at most before it is tried again.
	apartMost = 30 * time.Second
	// apartEntities bounds how many entities' failures are remembered.
	apartEntities = 10_000
)

// errApart is made once, as errDown.
var errApart = fmt.Errorf("the shared counters of this consumer cannot be reached: %w", store.ErrUnavailable)

// apart remembers entities that the remote does not serve though it may serve others:
// a key of theirs is of another type, or on a node of a cluster that is away. Their
// calls are counted here. They must neither keep others from the remote nor wait.
type apart struct {
	failures int           // in a row that set an entity apart
	first    time.Duration // for which it is set apart at first

	n        atomic.Int32 // entities
	mu       sync.Mutex
	entities map[store.Entity]*trouble
}

// trouble is what an entity has had since it was served last.
type trouble struct {
	failures int
	// certain is set once it failed while the remote did answer.
	certain bool
	delay   time.Duration // zero until it is set apart
	until   time.Time
}

// ask tells whether the entity is not to be tried now, and whether it is known that the
// remote does answer others. Of an entity set apart one call in a delay tries.
func (a *apart) ask(e store.Entity) (blocked, known bool) {
	if a.n.Load() == 0 {
		return false, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.entities[e]
	if t == nil || t.delay == 0 {
		return false, false
	}
	now := time.Now()
	if now.Before(t.until) {
		return true, t.certain
	}
	t.until = now.Add(t.delay)
	return false, t.certain
}

// waits is whether the entity is not to be tried now.
func (a *apart) waits(e store.Entity) bool {
	if a.n.Load() == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.entities[e]
	return t != nil && t.delay > 0 && time.Now().Before(t.until)
}

// failed counts a failure of a call that began at an instant. It is certain if the
// remote was seen to answer others.
func (a *apart) failed(e store.Entity, began time.Time, certain bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.entities[e]
	if t == nil {
		if len(a.entities) >= apartEntities {
			return
		}
		if a.entities == nil {
			a.entities = make(map[store.Entity]*trouble)
		}
		t = new(trouble)
		e.Consumer = strings.Clone(e.Consumer) // or the request it is part of would stay
		a.entities[e] = t
		a.n.Add(1)
	}
	t.certain = t.certain || certain
	t.failures++
	// Of calls that were under way when it was set apart, none adds to the delay.
	if t.failures < a.failures || t.delay > 0 && began.Before(t.until.Add(-t.delay)) {
		return
	}
	t.delay = min(max(a.first, 2*t.delay), apartMost)
	t.until = time.Now().Add(t.delay)
}

// refused sets an entity apart that the remote did not serve when it was seen to
// serve others, or to answer at least.
func (a *apart) refused(e store.Entity) {
	for range a.failures {
		a.failed(e, time.Now(), true)
		if a.waits(e) {
			return
		}
	}
}

// served forgets the entity's failures.
func (a *apart) served(e store.Entity) {
	if a.n.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.entities[e] != nil {
		delete(a.entities, e)
		a.n.Add(-1)
	}
}

// pardon has all tried at once, since what failed them may be over. Those that fail
// again wait for longer than before. It returns those whose failures may have been the
// remote's own.
func (a *apart) pardon() (doubtful []store.Entity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e, t := range a.entities {
		t.until = time.Time{}
		if !t.certain {
			doubtful = append(doubtful, e)
		}
	}
	return doubtful
}

// examine finds out of entities that failed in an outage, and have nothing pending
// that would tell, whether the remote serves them: it is asked to charge nothing.
func (c *Counters) examine(ctx context.Context, entities []store.Entity) error {
	var batches []*batch
	for _, e := range entities {
		switch {
		case c.queue.has(e): // its charges have told
		case len(batches) == chunk:
			c.apart.served(e) // it may show again
		default:
			batches = append(batches, &batch{Batch: store.Batch{Entity: e, Origin: c.feeler, Seq: time.Now().UnixMicro(), At: c.now()}})
		}
	}
	if len(batches) == 0 {
		return nil
	}
	return c.send(ctx, batches)
}
