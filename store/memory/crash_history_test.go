package memory

import (
	"math"
	"slices"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/counter"
)

// history is what something has been, oldest first, since it was certain to outlive the
// power. Each state is there in all forms that time has given it: to be rolled is no
// change.
type history[T any] struct {
	states [][]T
	killed int // the first that a process which is killed may leave
	cut    int // the first that a power cut may
}

func (h *history[T]) now() int { return len(h.states) - 1 }

// certain has the state of that place, or a later one, outlive the machine.
func (h *history[T]) certain(at int) { h.killed, h.cut = max(h.killed, at), max(h.cut, at) }

// find takes what a process has found for all that it may be, and forgets the others. It
// returns false if there is none.
func (h *history[T]) find(cut bool, same func(T) bool) bool {
	least := h.killed
	if cut {
		least = h.cut
	}
	is := func(forms []T) bool { return slices.ContainsFunc(forms, same) }
	first := slices.IndexFunc(h.states[least:], is)
	if first < 0 {
		return false
	}
	first += least
	last := first
	for i := range h.states {
		if i > first && is(h.states[i]) {
			last = i
		}
	}
	if cut {
		h.cut = first
	}
	h.states = slices.Clone(h.states[h.cut : last+1])
	h.killed, h.cut = first-h.cut, 0
	return true
}

// counts are the counters of an entity, by their rules.
type counts map[string]counter.State

// countsOf are those that a store has, without what says nothing.
func (s *Store) countsOf(name store.Entity) counts {
	hash, sh := s.shard(name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e, c := sh.find(hash, name), counts{}
	for _, r := range everyKind {
		if e == nil {
			break
		}
		if i := e.find(r, math.MaxInt); i >= 0 {
			c[r.ID] = e.counters[i].State
		}
	}
	return c
}

// at are counts as they are to be read at a time, by a process that begins or goes on.
func (c counts) at(now int64, begins bool) counts {
	rolled := counts{}
	for _, r := range everyKind {
		s, ok := c[r.ID]
		if !ok {
			continue
		}
		bucket := r.Window.Kind() == store.KindBucket
		if begins && s.Start > now+r.Window.Length().Milliseconds() { // of a clock that was wrong
			if s.Start = now; bucket {
				s.Prev = 0
			} else {
				s.Start, _ = r.Window.Span(now)
			}
		}
		s.Roll(r, now)
		if s.Idle(r, now) > now {
			rolled[r.ID] = s
		}
	}
	return rolled
}
