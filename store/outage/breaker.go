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

// givenUp is an error of a call whose client has gone or had no more time. It says
// nothing of the remote.
type givenUp struct{ error }

func (g givenUp) Unwrap() error { return g.error }

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
			var g givenUp
			return errors.As(err, &g)
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

// ask has the remote do something on behalf of a call, unless the circuit is open.
// An error that does not wrap store.ErrUnavailable is not about the remote's state.
func (c *Counters) ask(ctx context.Context, do func() (*store.Ticket, error)) (*store.Ticket, error) {
	if c.isOpen.Load() {
		return nil, errDown
	}
	t, err := c.breaker.Execute(func() (*store.Ticket, error) {
		t, err := do()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = givenUp{err}
		case errors.Is(err, store.ErrUnavailable):
			c.failed(err)
		}
		return t, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return nil, errDown
	}
	return t, err
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
		} else if c.queue.pending() > 0 {
			_, _ = c.ask(context.Background(), func() (*store.Ticket, error) { return nil, c.deliver(context.Background()) })
		}
		if open || c.queue.pending() > 0 {
			timer.Reset(c.o.Probe)
		}
	}
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

// probe closes the circuit if the remote answers and has taken what is pending.
func (c *Counters) probe() {
	_, _ = c.breaker.Execute(func() (*store.Ticket, error) {
		ctx, cancel := context.WithTimeout(context.Background(), c.Timeout())
		defer cancel()
		err := c.remote.Ping(ctx)
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

// replay delivers what is pending. Calls go on meanwhile, so that the end is never
// quite reached under load.
func (c *Counters) replay() error {
	for range passes {
		for n := c.queue.pending(); n > 0; n -= chunk {
			select {
			case <-c.stop:
				return errDown
			default:
			}
			if err := c.deliver(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}

// chunk is how many batches are sent at once.
const chunk = 64

// deliver sends a batch each of some entities. The error is that of a remote that
// took none of several.
func (c *Counters) deliver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout())
	defer cancel()
	batches := c.queue.next(chunk)
	if len(batches) == 0 {
		return nil
	}
	return c.send(ctx, batches)
}

func (c *Counters) send(ctx context.Context, batches []*batch) error {
	out := make([]store.Batch, len(batches))
	for i, b := range batches {
		out[i] = b.Batch
	}
	var last error
	taken := 0
	for i, err := range c.remote.Charge(ctx, out) {
		if err != nil {
			last = err
			continue
		}
		taken++
		c.queue.remove(batches[i])
	}
	if taken > 0 {
		return nil
	}
	return last
}
