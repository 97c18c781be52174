// Package store keeps the counters that limits are checked against.
//
// A store counts and decides; it knows nothing of HTTP, tokens or prices. All
// amounts are integers of whatever unit a rule has: requests, tokens, seconds,
// or picodollars (10⁻¹² USD, so that an int64 holds $9.2M).
package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Entity names whose counters are meant: one consumer's within one instance, or
// the one counter that everybody shares there. All counters of an entity are
// checked and changed together.
type Entity struct {
	// Instance is the id of a limiter, or of the pool it counts with.
	Instance string
	// Consumer is the encoded key of the consumer. Empty means the counter that
	// all callers of the instance share.
	Consumer string
}

// Rule names one counter of an entity. Rules live as long as their config and
// are compared by ID, so that the counter outlives a config that is replaced by
// an equal or an edited one. The amount is no part of a rule: a limit that is
// raised acts on what has been used already.
type Rule struct {
	// ID is unique within an entity: unit, window, zone and model block.
	ID string
	// Window says when the counter starts again. It must not be nil. With None,
	// only holds count: what is charged to the counter is not kept.
	Window *Window
	// Refill is what a token bucket gets back in the length of its window, evenly;
	// Take.Limit is then what it holds when full. Zero for all other windows. A
	// bucket that was granted more than it holds loses that at the same rate.
	Refill int64
}

// Take is what a call wants from one counter. The call is admitted if for all
// takes without Shadow
//
//	used + held + Need <= Limit
//
// where held is what other calls hold and have not settled, or nothing if
// IgnoreHeld is set. Sums stop at the ends of int64 instead of wrapping around.
type Take struct {
	Rule *Rule
	// Limit is what is checked against, unless the entity has a limit of its own
	// for the rule; see Overrides.
	Limit int64
	// Need is what must be free, at least 1.
	Need int64
	// Charge is used up at once, and given back only if the call is cancelled.
	Charge int64
	// Hold is kept free for this call until it is settled. It counts in every
	// window that is current meanwhile.
	Hold int64
	// HoldMost, if larger than Hold, asks for as much as is free between the two,
	// by the equation above and after Charge. What was got stands in Result.Got.
	HoldMost int64
	// IgnoreHeld admits by what is used alone.
	IgnoreHeld bool
	// Shadow reports that the limit is reached, and takes all the same.
	Shadow bool
}

// Reservation is what a call wants from one entity, all or nothing.
type Reservation struct {
	Entity Entity
	// Known is set where the operator named the consumer (an application with a
	// key), so that there are only so many. A store that is full refuses a
	// consumer that is new and not known, and never a known one.
	Known bool
	// Strict is set where the call must never pass a limit, whatever becomes of the
	// store. A store that counts by itself for a while, because it cannot reach what
	// it shares its counters with, fails such a call with ErrUnavailable unless it
	// knows that its own part of what is left cannot be exceeded.
	Strict bool
	// Takes name each rule at most once.
	Takes []Take
	// Lease is how long what is held stays so without being renewed or settled.
	// It also keeps the place of a consumer that is new, until its call is charged.
	Lease time.Duration
	// Room is where the ticket may be put: an empty one, whose Lines have capacity for as
	// many as there are takes. A store need not use it. Nil is none.
	Room *Ticket
}

// Result is the state of one counter, after the take if it was admitted.
type Result struct {
	// Limit is the amount that was checked against: the entity's own where it has one,
	// and then Overridden is set.
	Limit int64
	// Used is what has been charged in the current window; it may exceed Limit.
	Used int64
	// Held is what calls hold that are not settled, this call's hold included.
	Held int64
	// Got is what this call holds.
	Got int64
	// ResetAt is when all that is used will be free again: the end of a fixed
	// window; for rolling windows and token buckets the instant by which the last
	// of it has decayed. The zero time for a counter without a window.
	ResetAt time.Time
	// WindowStart is when the current window began; for rolling windows and
	// token buckets the instant one window ago.
	WindowStart time.Time
	// RetryAfter is the time after which Need is free if nothing else is charged,
	// where Exceeded is set, else 0. Where only unsettled calls stand in the way,
	// it is a second. A need that is larger than the limit is never free: then it
	// is the time to ResetAt, or a second where nothing is used. Whole
	// milliseconds, rounded up.
	RetryAfter time.Duration
	// Exceeded is set if this rule refused the call, or, with Shadow, would have.
	Exceeded bool
	// Overridden is set if Limit is the entity's own.
	Overridden bool
	// Unknown is set by a Refuser alone, of a counter that it knows nothing of. But for
	// Limit all else is then zero.
	Unknown bool
}

// Remaining is what is left for further calls, never below zero.
func (r *Result) Remaining() int64 {
	return max(0, r.Limit-r.Used-r.Held)
}

// Line is what a ticket holds of one counter.
type Line struct {
	Rule *Rule
	// Held is released when the ticket is settled.
	Held int64
	// Charged was used up at admission, in the window that began at ChargedIn
	// (Unix milliseconds, as Window.Span has it).
	Charged   int64
	ChargedIn int64
}

// Ticket is an admitted reservation. It must be settled, exactly once; a store
// ignores a second time. It must be used by one goroutine at a time, except that
// it may be settled while it is being renewed.
type Ticket struct {
	Entity Entity
	// Lines correspond to the takes of the reservation.
	Lines []Line
	// Deadline is when the holds lapse if they are not renewed, in Unix milliseconds.
	Deadline int64

	// Private and Mark are the store's own.
	Private any
	Mark    Mark

	// The keeper that has it, and those beside it in its list, which it guards; nil while
	// none has it.
	keeper     *Leases
	prev, next *Ticket
}

// Mark is what a store may note of a ticket.
type Mark struct {
	Hash    uint64
	Place   int32
	Settled bool
}

// Reading is what is to be read of one entity. Results correspond to Rules, in a slice that
// has their length; see Counters.Read.
type Reading struct {
	Entity
	Rules   []*Rule
	Results []Result
}

// ManyReader are counters that read many entities faster than one after the other.
type ManyReader interface {
	// ReadAll is Counters.Read of each. After an error some results may be filled.
	ReadAll(ctx context.Context, readings []Reading) error
}

// ReadAll reads many entities of c, together if it can. Errors are those of Counters.Read.
func ReadAll(ctx context.Context, c Counters, readings []Reading) error {
	if many, ok := c.(ManyReader); ok {
		return many.ReadAll(ctx, readings)
	}
	for i := range readings {
		if err := c.Read(ctx, readings[i].Entity, readings[i].Rules, readings[i].Results); err != nil {
			return err
		}
	}
	return nil
}

// Refuser are counters that remember for a moment what made them refuse a call.
type Refuser interface {
	// Refuses tells whether a call is known to be refused by some of its takes, whatever
	// the others are, without asking what the counters are shared with. The results are
	// filled as by a refusal then, but for those that are Unknown; else they say nothing.
	// With often, it tells that only of an entity whose calls are refused so often that no
	// more of them are to ask: others are told all by Reserve.
	Refuses(r *Reservation, results []Result, often bool) bool
}

// Refuses asks c if it is a Refuser. No others know.
func Refuses(c Counters, r *Reservation, results []Result, often bool) bool {
	knows, ok := c.(Refuser)
	return ok && knows.Refuses(r, results, often)
}

// Counters is a store of counters. It is safe for use by many goroutines.
//
// Errors mean that the store could not do what was asked, never that a limit is
// reached. They wrap ErrUnavailable or ErrFull.
type Counters interface {
	// Reserve checks all takes and takes all or none of them, at one instant. The
	// results correspond to the takes, in a slice that has their length; they are
	// filled in both cases. A ticket is returned if and only if the call is
	// admitted. A refusal leaves every counter as it was. Neither r nor the results
	// are looked at any more once it has returned.
	Reserve(ctx context.Context, r *Reservation, results []Result) (*Ticket, error)

	// Settle ends a ticket: what is held is released, and actual, which
	// corresponds to the ticket's lines, is charged whole to the current window,
	// past the limit too. Amounts that are missing or negative are zero.
	//
	// Of a line with an amount charged at admission only the difference is
	// settled. What is more is charged to the current window. What is less is given
	// back to the window it was charged in, if that is still the current one or,
	// of a rolling window, the one before; a token bucket gets it back up to full.
	//
	// The holds of a ticket whose deadline has passed are released already, but it
	// is charged all the same. Settle neither waits nor fails; a following Reserve
	// in this process sees it.
	Settle(t *Ticket, actual []int64)

	// Renew puts the deadline of tickets that are not settled to a lease from
	// now. Holds that had lapsed count again.
	Renew(ctx context.Context, tickets []*Ticket, lease time.Duration) error

	// Read fills the state of an entity's counters, without taking anything. Limit is
	// the entity's own where it has one, else zero. Exceeded and RetryAfter are left
	// zero.
	Read(ctx context.Context, e Entity, rules []*Rule, results []Result) error

	// Entities lists the consumers of an instance that have counters here, or limits
	// of their own, in ascending order of their keys, at most n of them, and only those after the
	// given key. The counter that all share is not among them.
	Entities(ctx context.Context, instance, after string, n int) ([]Entity, error)

	// Adjust charges amounts to the current windows of counters, or grants them if
	// negative, all at one instant or none. A grant larger than what is used gives
	// that much more room in this window: used is then negative. The amounts name
	// each rule at most once. A store that is full adjusts all the same.
	Adjust(ctx context.Context, e Entity, amounts ...Amount) error

	// Clear has nothing be used any more of all counters of an entity, grants
	// included, of whatever rules they are. What calls hold stays held, and what they
	// use is charged when they end. What they were charged at admission and are given
	// back is then a grant.
	Clear(ctx context.Context, e Entity) error

	Overrides
}

var (
	// ErrUnavailable means that the store could not be reached in time.
	ErrUnavailable = errors.New("store unavailable")
	// ErrBusy means that a call has waited too long in this process, behind others,
	// while the store did answer. It says nothing of the store's health. It wraps
	// ErrUnavailable.
	ErrBusy = fmt.Errorf("too many calls at once: %w", ErrUnavailable)
	// ErrFull means that there is no room for the counters of another consumer.
	ErrFull = errors.New("store full")
)
