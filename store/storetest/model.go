package storetest

import (
	"math/big"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// model is the contract in its plainest form, with no thought of speed: it keeps
// every charge that was ever made and adds them up anew each time.
type model struct {
	counters map[modelKey]*modelCounter
	tickets  []*modelTicket
}

type modelKey struct {
	entity store.Entity
	rule   string
}

// modelCounter is a log of charges, each in the window of that number since the
// epoch; of a bucket, its level.
type modelCounter struct {
	charges []modelCharge
	granted bool // by Adjust, at some time
	level   *big.Rat
	at      int64 // when the bucket had that level
}

type modelCharge struct{ window, amount int64 }

type modelTicket struct {
	entity   store.Entity
	takes    []store.Take
	got      []int64 // held of each take
	at       int64   // when it was admitted
	deadline int64
	settled  bool
}

func newModel() *model { return &model{counters: make(map[modelKey]*modelCounter)} }

func (m *model) counter(e store.Entity, r *store.Rule) *modelCounter {
	key := modelKey{e, r.ID}
	if m.counters[key] == nil {
		m.counters[key] = &modelCounter{level: new(big.Rat)}
	}
	return m.counters[key]
}

// used returns what is used at an instant that is not before the last change.
func (c *modelCounter) used(r *store.Rule, now int64) *big.Int {
	length := r.Window.Length().Milliseconds()
	sum := new(big.Int)
	switch r.Window.Kind() {
	case store.KindFixed, store.KindRolling:
		previous := new(big.Int)
		for _, ch := range c.charges {
			switch ch.window {
			case now / length:
				sum.Add(sum, big.NewInt(ch.amount))
			case now/length - 1:
				previous.Add(previous, big.NewInt(ch.amount))
			}
		}
		if r.Window.Kind() == store.KindRolling {
			previous.Mul(previous, big.NewInt(length-now%length))
			sum.Add(sum, previous.Div(previous, big.NewInt(length))) // rounds down
		}
	case store.KindBucket:
		level := c.levelAt(r, now)
		sum.Add(level.Num(), new(big.Int).Sub(level.Denom(), big.NewInt(1)))
		sum.Div(sum, level.Denom()) // rounds up
	default: // nothing is kept
	}
	return sum
}

// levelAt returns what is missing in a bucket.
func (c *modelCounter) levelAt(r *store.Rule, now int64) *big.Rat {
	back := new(big.Rat).SetFrac(
		new(big.Int).Mul(big.NewInt(now-c.at), big.NewInt(r.Refill)),
		big.NewInt(r.Window.Length().Milliseconds()))
	level := new(big.Rat).Sub(c.level, back)
	if level.Sign() < 0 {
		return new(big.Rat)
	}
	return level
}

// change charges an amount to the window of an instant, or gives it back.
func (c *modelCounter) change(r *store.Rule, now, in, amount int64) {
	switch r.Window.Kind() {
	case store.KindFixed, store.KindRolling:
		c.charges = append(c.charges, modelCharge{in / r.Window.Length().Milliseconds(), amount})
	case store.KindBucket:
		level := c.levelAt(r, now)
		level.Add(level, new(big.Rat).SetInt64(amount))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
		c.level, c.at = level, now
	default: // nothing is kept
	}
}

// held adds up what calls hold that are neither settled nor lapsed.
func (m *model) held(e store.Entity, r *store.Rule, now int64) *big.Int {
	sum := new(big.Int)
	for _, k := range m.tickets {
		if k.settled || k.deadline <= now || k.entity != e {
			continue
		}
		for i, t := range k.takes {
			if t.Rule.ID == r.ID {
				sum.Add(sum, big.NewInt(k.got[i]))
			}
		}
	}
	return sum
}

// free returns Limit - used - held of a take, as the equation has it.
func (m *model) free(e store.Entity, t store.Take, now int64) *big.Int {
	free := big.NewInt(t.Limit)
	free.Sub(free, m.counter(e, t.Rule).used(t.Rule, now))
	if !t.IgnoreHeld {
		free.Sub(free, m.held(e, t.Rule, now))
	}
	return free
}

// reserve returns which takes exceed their limit, and a ticket if none does that
// matters.
func (m *model) reserve(e store.Entity, takes []store.Take, now int64, lease time.Duration) (exceeded []bool, k *modelTicket) {
	admitted := true
	k = &modelTicket{entity: e, takes: takes, at: now, deadline: now + lease.Milliseconds()}
	for _, t := range takes {
		free := m.free(e, t, now)
		over := free.Cmp(big.NewInt(t.Need)) < 0
		exceeded = append(exceeded, over)
		admitted = admitted && (!over || t.Shadow)

		got := big.NewInt(t.Hold)
		free.Sub(free, big.NewInt(t.Charge))
		if most := big.NewInt(t.HoldMost); free.Cmp(most) > 0 {
			free = most
		}
		if free.Cmp(got) > 0 {
			got = free
		}
		k.got = append(k.got, got.Int64())
	}
	if !admitted {
		return exceeded, nil
	}
	for _, t := range takes {
		m.counter(e, t.Rule).change(t.Rule, now, now, t.Charge)
	}
	m.tickets = append(m.tickets, k)
	return exceeded, k
}

func (m *model) settle(k *modelTicket, actual []int64, now int64) {
	if k.settled {
		return
	}
	k.settled = true
	for i, t := range k.takes {
		c := m.counter(k.entity, t.Rule)
		if more := actual[i] - t.Charge; more >= 0 {
			c.change(t.Rule, now, now, more)
		} else {
			c.change(t.Rule, now, k.at, more)
		}
	}
}
