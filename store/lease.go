package store

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Leases keeps the holds of live calls alive: it renews their tickets three times
// in a lease, until they are settled. It runs only while there are tickets.
type Leases struct {
	counters Counters
	onError  func(error)

	wake chan struct{} // the lease has changed

	lease atomic.Int64 // a time.Duration

	mu      sync.Mutex
	ring    Ticket // begins and ends the list of those that are kept, and is none of them
	kept    int
	running bool
}

// NewLeases returns a keeper for the tickets of a store. onError, which may be nil,
// is told of renewals that failed.
func NewLeases(c Counters, lease time.Duration, onError func(error)) *Leases {
	l := &Leases{counters: c, onError: onError, wake: make(chan struct{}, 1)}
	l.lease.Store(int64(lease))
	l.ring.prev, l.ring.next = &l.ring, &l.ring
	return l
}

// Lease is how long a hold lives without being renewed.
func (l *Leases) Lease() time.Duration { return time.Duration(l.lease.Load()) }

// SetLease changes it, for calls to come and, at once, for those at work: a shorter
// one wants renewals that come sooner.
func (l *Leases) SetLease(d time.Duration) {
	if time.Duration(l.lease.Swap(int64(d))) == d {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default: // it is to wake anyway
	}
}

// Keep starts to renew a ticket, which no other keeper has.
func (l *Leases) Keep(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.keeper != nil {
		return
	}
	last := l.ring.prev
	t.keeper, t.prev, t.next = l, last, &l.ring
	last.next, l.ring.prev = t, t
	l.kept++
	if !l.running {
		l.running = true
		go l.run()
	}
}

// Len returns how many tickets are being renewed.
func (l *Leases) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// Settle stops to renew a ticket, whichever keeper has it, and settles it.
func (l *Leases) Settle(t *Ticket, actual []int64) {
	if t.keeper != nil {
		t.keeper.drop(t)
	}
	l.counters.Settle(t, actual)
}

// drop takes a ticket out of the list that it is in.
func (l *Leases) drop(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.prev.next, t.next.prev = t.next, t.prev
	t.keeper, t.prev, t.next = nil, nil, nil
	l.kept--
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
		if l.kept == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		lease := l.Lease()
		batch := make([]*Ticket, 0, l.kept)
		for t := l.ring.next; t != &l.ring; t = t.next {
			batch = append(batch, t)
		}
		l.mu.Unlock()
		if err := l.counters.Renew(context.Background(), batch, lease); err != nil && l.onError != nil {
			l.onError(err)
		}
	}
}
