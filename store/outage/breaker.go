package outage

import (
	"context"
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// passes is how often what came in meanwhile is delivered before the circuit closes
// with some of it pending still; a call of such an entity delivers it itself.
const passes = 3

// excused is an error that says nothing of the remote as a whole: the client has gone
// or had no more time, the call waited for others here, or others were served.
type excused struct{ error }

func (e excused) Unwrap() error { return e.error }

func (c *Counters) newBreaker() *gobreaker.CircuitBreaker[*store.Ticket] {
	return gobreaker.NewCircuitBreaker[*store.Ticket](gobreaker.Settings{
		// Half of it, lest a probe comes a moment too early each time.
		Timeout:     c.o.Probe / 2,
		MaxRequests: 1,
		ReadyToTrip: func(n gobreaker.Counts) bool { return int(n.ConsecutiveFailures) >= c.o.Failures },
		IsSuccessful: func(err error) bool {
			return err == nil || !errors.Is(err, store.ErrUnavailable)
		},
		IsExcluded: func(err error) bool {
			var e excused
			return errors.As(err, &e)
		},
		OnStateChange: c.stateChanged,
	})
}

// stateChanged is called under the breaker's lock. Half-open is open for calls.
func (c *Counters) stateChanged(_ string, from, to gobreaker.State) {
	switch {
	case from == gobreaker.StateClosed:
		c.since.Store(c.now().UnixMilli())
		c.isOpen.Store(true)
	case to == gobreaker.StateClosed:
		c.isOpen.Store(false)
	default:
		return
	}
	c.nudge()
}

// nudge has the background look at what there is to do.
func (c *Counters) nudge() {
	select {
	case c.wake <- struct{}{}:
	default: // it is to look anyway
	}
}

// ask has the remote do something on behalf of a call, unless the circuit is open or
// the entity set apart. The entity is zero where it is about several. An error that
// does not wrap store.ErrUnavailable is not about the remote's state.
//
// A failure counts only if no call has been served that began later. So one consumer's
// trouble is not taken for an outage while there are others.
func (c *Counters) ask(ctx context.Context, e store.Entity, do func() (*store.Ticket, error)) (*store.Ticket, error) {
	if c.isOpen.Load() {
		return nil, errDown
	}
	blocked, known := c.apart.ask(e)
	if blocked {
		return nil, errApart
	}
	began := time.Now()
	t, err := c.breaker.Execute(func() (*store.Ticket, error) {
		t, err := do()
		switch {
		case err == nil:
			c.answered(began)
			c.apart.served(e)
		case ctx.Err() != nil, errors.Is(err, store.ErrBusy):
			err = excused{err}
		case errors.Is(err, store.ErrUnavailable):
			c.failed(err)
			if e != (store.Entity{}) {
				c.apart.failed(e, began, false)
			}
			if known || c.newest.Load() > int64(began.Sub(c.began)) {
				err = excused{err}
			}
		}
		return t, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return nil, errDown
	}
	return t, err
}

// answered notes that a call was served which began at an instant.
func (c *Counters) answered(began time.Time) {
	at := int64(began.Sub(c.began))
	for last := c.newest.Load(); at > last && !c.newest.CompareAndSwap(last, at); {
		last = c.newest.Load()
	}
}

// failed remembers why the remote could not be reached.
func (c *Counters) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr = err
}

// run probes the remote while the circuit is open, and delivers charges while it is
// closed.
func (c *Counters) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	open, opened := false, time.Time{}
	for {
		select {
		case <-c.stop:
			return
		case <-c.wake:
		case <-timer.C:
		}
		if now := c.isOpen.Load(); now != open {
			open = now
			if open {
				opened = time.Now()
			}
			c.tell(open, opened)
		}
		if open {
			c.probe()
			if !c.isOpen.Load() {
				c.nudge()
			}
		} else {
			c.handOver()
		}
		if open || c.queue.pending() > 0 {
			timer.Reset(c.o.Probe)
		}
	}
}

// handOver sends a batch each of some entities while the circuit is closed.
func (c *Counters) handOver() {
	batches := c.queue.next(chunk, c.apart.waits)
	if len(batches) == 0 {
		return
	}
	_, _ = c.ask(context.Background(), store.Entity{}, func() (*store.Ticket, error) {
		return nil, c.send(context.Background(), batches)
	})
}

func (c *Counters) tell(open bool, opened time.Time) {
	switch {
	case open && c.o.OnOpen != nil:
		c.mu.Lock()
		err := c.lastErr
		c.mu.Unlock()
		c.o.OnOpen(err)
	case !open && c.o.OnClose != nil:
		c.o.OnClose(time.Since(opened))
	}
}

// probe closes the circuit if the remote answers. What is pending has been delivered
// by then, but of entities that it does not serve.
func (c *Counters) probe() {
	_, _ = c.breaker.Execute(func() (*store.Ticket, error) {
		err := c.ping(context.Background())
		if err == nil {
			err = c.replay()
		}
		if err != nil {
			c.failed(err)
			return nil, errors.Join(err, errDown)
		}
		return nil, nil
	})
}

func (c *Counters) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout())
	defer cancel()
	return c.remote.Ping(ctx)
}

// replay delivers what is pending. Calls go on meanwhile, so that the end is never
// quite reached under load.
func (c *Counters) replay() error {
	doubtful := c.apart.pardon()
	for range passes {
		for n := c.queue.pending(); n > 0; n -= chunk {
			select {
			case <-c.stop:
				return errDown
			default:
			}
			if sent, err := c.deliver(context.Background()); err != nil {
				return err
			} else if !sent {
				break // the rest is of entities set apart
			}
		}
	}
	return c.examine(context.Background(), doubtful)
}

// chunk is how many batches are sent at once.
const chunk = 64

// deliver sends a batch each of some entities, and tells whether there were any.
func (c *Counters) deliver(ctx context.Context) (sent bool, err error) {
	batches := c.queue.next(chunk, c.apart.waits)
	if len(batches) == 0 {
		return false, nil
	}
	return true, c.send(ctx, batches)
}

// send sends batches of different entities. The error is that of a remote that took
// none, and does not answer either: one that does has something against these
// entities, which are set apart then.
func (c *Counters) send(ctx context.Context, batches []*batch) error {
	bounded, cancel := context.WithTimeout(ctx, c.Timeout())
	defer cancel()
	errs := c.charge(bounded, batches)
	taken := 0
	for i, b := range batches {
		if errs[i] == nil {
			taken++
			c.apart.served(b.Entity)
		}
	}
	if taken == 0 && c.ping(ctx) != nil {
		return errors.Join(errs...)
	}
	for i, b := range batches {
		if errs[i] != nil && !errors.Is(errs[i], store.ErrBusy) {
			c.failed(errs[i])
			c.apart.refused(b.Entity)
		}
	}
	return nil
}

// charge has the remote take batches, and drops those that it took.
func (c *Counters) charge(ctx context.Context, batches []*batch) []error {
	out := make([]store.Batch, len(batches))
	for i, b := range batches {
		out[i] = b.Batch
	}
	errs := c.remote.Charge(ctx, out)
	for i, b := range batches {
		if errs[i] == nil && c.queue.remove(b) {
			c.seen.delivered(&b.Batch, c.now())
		}
	}
	return errs
}
