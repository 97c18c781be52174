package llmretry

import (
	"sync"
	"time"
)

// Bounds of retries, so that they cannot become a storm: when everything fails, a provider
// gets a fifth more calls, and not three times as many.
const (
	budgetShare = 0.2  // retries that each call pays in for
	budgetFloor = 1.0  // retries a second, whatever comes
	budgetFirst = 10.0 // what there is at the beginning
	budgetMost  = 100.0
)

// budget is a token bucket of retries, which all calls of a handler share.
type budget struct {
	mu   sync.Mutex
	left float64
	at   time.Time
}

func (b *budget) init(now time.Time) { b.left, b.at = budgetFirst, now }

// call pays in for a call.
func (b *budget) call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+budgetShare, budgetMost)
}

// take takes a retry, or nothing if none is left.
func (b *budget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+now.Sub(b.at).Seconds()*budgetFloor, budgetMost)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
