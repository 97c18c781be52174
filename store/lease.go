package store

import (
	"context"
	"sync"
	"time"
)

// Leases keeps the holds of live calls alive: it renews their tickets three times
// in a lease, until they are settled. It runs only while there are tickets.
type Leases struct {
	counters Counters
	onError  func(error)

	wake chan struct{} // the lease has changed

	mu      sync.Mutex
	lease   time.Duration
	tickets map[*Ticket]struct{}
	running bool
}

// NewLeases returns a keeper for the tickets of a store. onError, which may be nil,
// is told of renewals that failed.
func NewLeases(c Counters, lease time.Duration, onError func(error)) *Leases {
	return &Leases{counters: c, lease: lease, onError: onError, wake: make(chan struct{}, 1), tickets: make(map[*Ticket]struct{})}
}

// Lease is how long a hold lives without being renewed.
func (l *Leases) Lease() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease
}

// SetLease changes it, for calls to come and, at once, for those at work: a shorter
// one wants renewals that come sooner.
func (l *Leases) SetLease(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == d {
		return
	}
	l.lease = d
	select {
	case l.wake <- struct{}{}:
	default: // it is to wake anyway
	}
}

// Keep starts to renew a ticket.
func (l *Leases) Keep(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets[t] = struct{}{}
	if !l.running {
		l.running = true
		go l.run()
	}
}

// Len returns how many tickets are being renewed.
func (l *Leases) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tickets)
}

// Settle stops to renew a ticket and settles it.
func (l *Leases) Settle(t *Ticket, actual []int64) {
	l.mu.Lock()
	delete(l.tickets, t)
	l.mu.Unlock()
	l.counters.Settle(t, actual)
}

func (l *Leases) run() {
	for {
		timer := time.NewTimer(l.Lease() / 3)
		select {
		case <-timer.C:
		case <-l.wake:
			timer.Stop()
		}
		l.mu.Lock()
		if len(l.tickets) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		lease := l.lease
		batch := make([]*Ticket, 0, len(l.tickets))
		for t := range l.tickets {
			batch = append(batch, t)
		}
		l.mu.Unlock()
		if err := l.counters.Renew(context.Background(), batch, lease); err != nil && l.onError != nil {
			l.onError(err)
		}
	}
}
