package memory

import (
	"context"
	"slices"
	"strings"
	"unique"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// batch is how many entities are looked at under a lock at once.
const batch = 256

// Entities implements store.Counters. It fails as Reserve does. It looks at all entities of
// the store, but keeps the first n names only, and holds no lock for long. One
// that comes or goes meanwhile may be missed.
func (s *Store) Entities(ctx context.Context, instance, after string, n int) ([]store.Entity, error) {
	if n <= 0 {
		return nil, nil
	}
	if err := s.gate.pass(ctx); err != nil {
		return nil, err
	}
	var (
		names  []string
		all    []*entity
		wanted []*entity
		handle = unique.Make(instance)
		last   string // of a full page so far
		full   bool
	)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		all = append(all[:0], sh.ends...)
		sh.mu.Unlock()

		// Names never change, so they are compared without the lock.
		wanted = wanted[:0]
		for _, e := range all {
			// What all share has no name, and thus is not after any.
			if e.instance != handle || e.consumer <= after || full && e.consumer > last {
				continue
			}
			wanted = append(wanted, e)
		}
		for part := range slices.Chunk(wanted, batch) {
			names = s.appendLive(names, sh, part)
		}
		names = sh.appendOverridden(names, instance, after)
		if len(names) >= n {
			names = ordered(names)
		}
		if len(names) >= n {
			clear(names[n:])
			names = names[:n]
			last, full = names[n-1], true
		}
	}
	names = ordered(names)
	names = names[:min(n, len(names))]

	entities := make([]store.Entity, len(names))
	for i, name := range names {
		entities[i] = store.Entity{Instance: strings.Clone(instance), Consumer: name}
	}
	return entities, nil
}

// ordered are names in ascending order, each once: who has counters may have limits too.
func ordered(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// appendOverridden appends the names of those that have limits of their own.
func (sh *shard) appendOverridden(names []string, instance, after string) []string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.own.names(names, instance, after)
}

// appendLive appends the names of those entities that still count something.
func (s *Store) appendLive(names []string, sh *shard, part []*entity) []string {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := s.now().UnixMilli()
	for _, e := range part {
		e.lapse(now)
		if e.end(now) > now {
			names = append(names, e.consumer)
		}
	}
	return names
}
