package outage

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// errFull is made once: a flood must not cost allocations.
var errFull = fmt.Errorf("counting another consumer: %w", store.ErrFull)

// guests bounds how many consumers that clients can make up this replica has counted,
// at the remote and in what is pending for it: neither bounds them by itself. The
// operator's own are not among them.
type guests struct {
	most    int
	pending func(store.Entity) bool // an entity stays while this is true

	mu    sync.Mutex
	until map[store.Entity]time.Time // when nothing counts any more
	swept time.Time
}

// room tells whether the reservation's entity may be counted.
func (g *guests) room(r *store.Reservation, now time.Time) bool {
	if r.Known || r.Entity.Consumer == "" {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, in := g.until[r.Entity]; in || len(g.until) < g.most {
		return true
	}
	if now.Sub(g.swept).Abs() < time.Second {
		return false
	}
	g.swept = now
	for e, until := range g.until {
		if !now.Before(until) && !g.pending(e) {
			delete(g.until, e)
		}
	}
	return len(g.until) < g.most
}

// enter notes that the reservation was admitted.
func (g *guests) enter(r *store.Reservation, results []store.Result, now time.Time) {
	if r.Known || r.Entity.Consumer == "" {
		return
	}
	until := now.Add(r.Lease)
	for i := range r.Takes {
		if at := results[i].ResetAt; at.After(until) {
			until = at
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := r.Entity
	if g.until == nil {
		g.until = make(map[store.Entity]time.Time)
	}
	if _, in := g.until[e]; !in {
		e.Consumer = strings.Clone(e.Consumer) // or the request it is part of would stay
	}
	g.until[e] = until
}
