package memory

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// patience is how long a call waits for counts that are being read.
const patience = 10 * time.Second

// gate holds back calls until what was used before is known. The zero value is
// open. It is opened once.
type gate struct {
	closed atomic.Bool
	opened chan struct{}
	once   sync.Once
}

// shut closes the gate. It must not be in use yet.
func (g *gate) shut() {
	g.opened = make(chan struct{})
	g.closed.Store(true)
}

func (g *gate) open() {
	g.once.Do(func() {
		if g.opened != nil {
			g.closed.Store(false)
			close(g.opened)
		}
	})
}

// pass waits for the gate to be open. A store that nobody opens is used as it is.
func (g *gate) pass(ctx context.Context) error {
	if !g.closed.Load() {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.opened:
	case <-timer.C:
		g.open()
	case <-ctx.Done():
		return fmt.Errorf("waiting for the counts to be read: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}
