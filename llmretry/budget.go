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
	budgetOwn   = 0.5  // the same of one consumer: the rest is left to others
	budgetFirst = 10.0 // what there is at the beginning
	budgetMost  = 100.0
	// budgetSaved is what one consumer can save up: the rest of what all have is others'.
	budgetSaved = 10.0
)

// budget is a token bucket of retries. All calls of a handler share one, and those of each
// consumer another, so that nobody's failures use up what others need.
type budget struct {
	floor float64 // what flows in, in retries a second
	most  float64

	mu   sync.Mutex
	left float64
	at   time.Time
}

func (b *budget) init(floor, most float64, now time.Time) {
	b.floor, b.most, b.left, b.at = floor, most, min(budgetFirst, most), now
}

// call pays in for a call.
func (b *budget) call() { b.add(budgetShare) }

// giveBack takes back a take.
func (b *budget) giveBack() { b.add(1) }

func (b *budget) add(n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = min(b.left+n, b.most)
}

// take takes a retry, if there is one and more are left than spare.
func (b *budget) take(now time.Time, spare float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow(now)
	if b.left < 1 || b.left <= spare {
		return false
	}
	b.left--
	return true
}

// taken is what has been taken lately, of a budget that was full.
func (b *budget) taken(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow(now)
	return b.most - b.left
}

func (b *budget) flow(now time.Time) {
	b.left = min(b.left+max(now.Sub(b.at).Seconds(), 0)*b.floor, b.most)
	b.at = now
}
