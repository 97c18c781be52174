package llmapp

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

const (
	// recently is how old counters may be that a caller is told again.
	recently = time.Second
	// recentMost bounds the counters that are remembered, in each of two generations of
	// some 100 bytes a counter. What goes beyond it is read anew each time.
	recentMost = 1 << 15
)

// Recent remembers for a second what was read of callers' own rules, so that who asks over
// and over does not have the store read all of it as often. What it remembers belongs to a
// consumer of an instance: two who count for the same one are told the same, and nobody
// is told anything else. The zero value remembers nothing.
type Recent struct {
	mu    sync.Mutex
	since time.Time // of the younger generation
	young map[reading]read
	old   map[reading]read
	count int // of counters in the younger generation
}

// reading is what was asked for.
type reading struct {
	store.Entity
	rules uint64 // hash of their ids, in order
}

// read is what the store said.
type read struct {
	results []store.Result // nobody writes to them
	current bool
	at      time.Time
}

var recentSeed = maphash.MakeSeed()

func readingOf(e store.Entity, infos []RuleInfo) reading {
	var h maphash.Hash
	h.SetSeed(recentSeed)
	for i := range infos {
		_, _ = h.WriteString(infos[i].Store.ID) // it never fails
		_ = h.WriteByte(0)
	}
	return reading{e, h.Sum64()}
}

// QuotasOf is App.QuotasOf, of which parts may be as old as a second. It also returns when
// the oldest of them was read, which is now if none is.
func (c *Recent) QuotasOf(a *App, r *http.Request, instances []Instance, now time.Time) (qs []Quota, at time.Time, current bool, err error) {
	at, current = now, true
	for _, in := range instances {
		by, ok := in.(RulesByCaller)
		if !ok {
			continue
		}
		consumer, infos := by.RulesOfCaller(r)
		if len(infos) == 0 {
			continue
		}
		e := store.Entity{Instance: in.ID(), Consumer: consumer}
		key := readingOf(e, infos)
		got, ok := c.get(key, now)
		if !ok || len(got.results) != len(infos) {
			got = read{at: now}
			if got.results, got.current, err = a.read(r.Context(), e, infos); err != nil {
				return nil, at, false, fmt.Errorf("reading counters: %w", err)
			}
			c.put(key, got, now)
		}
		if got.at.Before(at) {
			at = got.at
		}
		current = current && got.current
		qs = append(qs, quotas(in.ID(), infos, got.results)...)
	}
	return qs, at, current, nil
}

func (c *Recent) get(key reading, now time.Time) (read, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, ok := c.young[key]
	if !ok {
		got, ok = c.old[key]
	}
	age := now.Sub(got.at)
	return got, ok && age >= 0 && age < recently
}

func (c *Recent) put(key reading, got read, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.since); age < 0 || age >= recently || c.young == nil {
		c.since, c.count = now, 0
		c.young, c.old = make(map[reading]read), c.young
	}
	if c.count+len(got.results) > recentMost {
		return
	}
	c.count += len(got.results)
	c.young[key] = got
}
