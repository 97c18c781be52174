package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// renewals is a store that notes when which lease was renewed.
type renewals struct {
	Counters
	began time.Time

	mu      sync.Mutex
	at      []time.Duration
	leases  []time.Duration
	tickets int
	settled int
}

func (r *renewals) Renew(_ context.Context, tickets []*Ticket, lease time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.leases, r.tickets = append(r.at, time.Since(r.began)), append(r.leases, lease), len(tickets)
	return errors.New("no store")
}

func (r *renewals) Settle(*Ticket, []int64) { r.settled++ }

func TestLeasesAreRenewedThreeTimesInTheirLifeUntilTheyAreSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &renewals{began: time.Now()}
		failed := 0
		l := NewLeases(r, 90*time.Second, func(error) { failed++ })
		a, b := new(Ticket), new(Ticket)
		l.Keep(a)
		l.Keep(b)
		time.Sleep(70 * time.Second)
		synctest.Wait()
		if want := []time.Duration{30 * time.Second, 60 * time.Second}; !slices.Equal(r.at, want) || r.tickets != 2 || failed != 2 {
			t.Errorf("renewed at %v, %d tickets, %d errors told", r.at, r.tickets, failed)
		}
		l.Settle(a, nil)
		l.Settle(b, nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(r.at) != 2 || r.settled != 2 {
			t.Errorf("renewed %d times, settled %d", len(r.at), r.settled)
		}
	}) // and no goroutine is left, or the test would not end
}

// A call that is admitted under a shorter lease than those before it must not wait for
// the renewal that they had been due.
func TestShorterLeaseActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &renewals{began: time.Now()}
		l := NewLeases(r, 10*time.Minute, nil)
		ticket := new(Ticket)
		l.Keep(ticket)
		synctest.Wait()
		l.SetLease(3 * time.Second)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		if want := []time.Duration{0, time.Second, 2 * time.Second}; !slices.Equal(r.at, want) {
			t.Errorf("renewed at %v, want %v", r.at, want)
		}
		if l.Lease() != 3*time.Second || slices.Max(r.leases) != 3*time.Second {
			t.Errorf("leases %v", r.leases)
		}
		l.Settle(ticket, nil)
		time.Sleep(time.Minute)
	})
}

// A config that is replaced may end a call by the keeper of another one.
func TestTicketsAreDroppedByTheKeeperThatHasThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &renewals{began: time.Now()}
		a, b := NewLeases(r, 90*time.Second, nil), NewLeases(r, 90*time.Second, nil)
		mine, theirs, last := new(Ticket), new(Ticket), new(Ticket)
		a.Keep(mine)
		a.Keep(last)
		b.Keep(theirs)
		b.Settle(mine, nil)
		if a.Len() != 1 || b.Len() != 1 {
			t.Errorf("%d and %d tickets are kept, want one each", a.Len(), b.Len())
		}
		a.Settle(last, nil)
		b.Settle(theirs, nil)
		b.Settle(theirs, nil)
		if a.Len() != 0 || b.Len() != 0 || r.settled != 4 {
			t.Errorf("%d and %d tickets are kept in the end, %d settled", a.Len(), b.Len(), r.settled)
		}
		time.Sleep(time.Hour) // both have stopped by then
	})
}
