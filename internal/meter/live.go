package meter

import (
	"sync"
	"time"
)

// finishMost is how long Finish waits.
const finishMost = 5 * time.Second

// live are the calls on their way whose use is counted.
type live struct {
	mu    sync.Mutex
	calls map[*drain]struct{}
	none  chan struct{} // closed when the last has been settled; nil while nobody waits
}

func (l *live) add(d *drain) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[*drain]struct{})
	}
	l.calls[d] = struct{}{}
}

func (l *live) remove(d *drain) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, d)
	if len(l.calls) == 0 && l.none != nil {
		close(l.none)
		l.none = nil
	}
}

// cancel ends the calls upstream, and returns what is closed when all are settled.
func (l *live) cancel() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.none == nil {
		l.none = make(chan struct{})
	}
	none := l.none
	if len(l.calls) == 0 {
		close(none)
		l.none = nil
	}
	for d := range l.calls {
		d.cancel()
	}
	return none
}

// Finish cancels the calls that are still on their way and waits until they are
// settled, but no longer than five seconds; it tells whether they are. It is for a
// process that is about to end, when its servers have been shut down: a call whose
// client has gone, or which has outlasted the grace period, would otherwise cost
// nothing.
func (m *Meter) Finish() bool {
	timeout := time.NewTimer(finishMost)
	defer timeout.Stop()
	select {
	case <-m.live.cancel():
		return true
	case <-timeout.C:
		return false
	}
}
