package memory

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Limits of entities' own lie beside the entities, not in them: they outlast their
// counters, and take no room where there are none, as with nearly all entities. Operators
// set them one by one, so that they are not bounded.

// overrides are those of a shard, whose lock guards them. The zero value has none.
type overrides struct {
	limits map[store.Entity]map[string]int64 // by the IDs of rules; never empty
	// gone are those that were taken away here, known or not, of which a directory that is
	// read later may still tell. There is one for each that an operator took away since the
	// process began, and that was not set again.
	gone map[ownRule]struct{}
	// changed are those that have not been written since they were set or taken away.
	// It is kept only if tracked is set, as the shard's list of changes is.
	changed map[store.Entity]struct{}
}

// ownRule is a rule under which an entity has a limit of its own, or had.
type ownRule struct {
	store.Entity
	rule string
}

// of are the limits of an entity's own, nil if it has none.
func (o *overrides) of(e store.Entity) map[string]int64 {
	if len(o.limits) == 0 {
		return nil
	}
	return o.limits[e]
}

// set gives an entity a limit of its own, or with nil takes it away.
func (o *overrides) set(e store.Entity, rule string, limit *int64) {
	own := o.limits[e]
	_, had := own[rule]
	switch {
	case limit == nil:
		if delete(own, rule); had && len(own) == 0 {
			delete(o.limits, e)
		}
		if o.gone == nil {
			o.gone = make(map[ownRule]struct{})
		}
		o.gone[ownRule{cloned(e), strings.Clone(rule)}] = struct{}{}
		return
	case own == nil:
		if o.limits == nil {
			o.limits = make(map[store.Entity]map[string]int64)
		}
		own = make(map[string]int64)
		o.limits[cloned(e)] = own
	}
	own[strings.Clone(rule)] = max(0, *limit)
	delete(o.gone, ownRule{e, rule})
}

// cloned is an entity that does not keep the request which its names are part of.
func cloned(e store.Entity) store.Entity {
	return store.Entity{Instance: strings.Clone(e.Instance), Consumer: strings.Clone(e.Consumer)}
}

// note has the limits of an entity written.
func (o *overrides) note(e store.Entity) {
	if o.changed == nil {
		o.changed = make(map[store.Entity]struct{})
	}
	o.changed[e] = struct{}{}
}

// join takes the limits of a directory in, but for those that were set here already, or
// taken away. All that it is to have of them is written anew.
func (o *overrides) join(from *overrides) {
	for e, limits := range from.limits {
		for rule, limit := range limits {
			_, mine := o.limits[e][rule]
			_, gone := o.gone[ownRule{e, rule}]
			if !mine && !gone {
				o.set(e, rule, &limit)
			}
		}
		o.note(e)
	}
	for e := range o.limits {
		o.note(e)
	}
}

// Override implements store.Overrides. Where the store has a directory, it is written
// there before this returns. If the disk does not take it, the error wraps
// store.ErrUnavailable: the limit is in force, and is written when that is possible. It
// fails as Reserve does where counts are being read.
func (s *Store) Override(ctx context.Context, e store.Entity, rule string, limit *int64) error {
	if err := s.gate.pass(ctx); err != nil {
		return err
	}
	_, sh := s.shard(e)
	sh.mu.Lock()
	sh.own.set(e, rule, limit)
	if sh.tracked {
		sh.own.note(e)
	}
	sh.mu.Unlock()
	if err := s.flush(); err != nil {
		return fmt.Errorf("setting a limit, which is in force in memory and not yet on the disk: %w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// OverridesOf implements store.Overrides. It fails as Reserve does.
func (s *Store) OverridesOf(ctx context.Context, e store.Entity) (map[string]int64, error) {
	if err := s.gate.pass(ctx); err != nil {
		return nil, err
	}
	_, sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return maps.Clone(sh.own.of(e)), nil
}

// Overridden implements store.Overrides. It fails as Reserve does.
func (s *Store) Overridden(ctx context.Context, instance, after string, n int) ([]store.Entity, error) {
	if n <= 0 {
		return nil, nil
	}
	if err := s.gate.pass(ctx); err != nil {
		return nil, err
	}
	var names []string
	for i := range s.shards {
		names = s.shards[i].appendOverridden(names, instance, after)
	}
	slices.Sort(names)
	entities := make([]store.Entity, min(n, len(names)))
	for i := range entities {
		entities[i] = store.Entity{Instance: strings.Clone(instance), Consumer: names[i]}
	}
	return entities, nil
}

// names appends the consumers of an instance that have limits of their own.
func (o *overrides) names(names []string, instance, after string) []string {
	for e := range o.limits {
		if e.Instance == instance && e.Consumer > after {
			names = append(names, e.Consumer)
		}
	}
	return names
}

// The limits of an entity's own have a record apart from that of its counters, which it
// can be told from by the empty text that it begins with: no instance has that name.
//
//	text "", text instance, text consumer, then for each limit
//	text rule id
//	varint limit
//
// The last record of an entity holds. One without limits is of an entity whose last
// was taken away.

// appendRecord appends the record of an entity's limits.
func (o *overrides) appendRecord(b []byte, e store.Entity) []byte {
	b = appendText(appendText(appendText(b, ""), e.Instance), e.Consumer)
	limits := o.limits[e]
	for _, rule := range slices.Sorted(maps.Keys(limits)) {
		b = binary.AppendVarint(appendText(b, rule), limits[rule])
	}
	return b
}

// isOverrides tells whether a record is of limits.
func isOverrides(record []byte) bool { return len(record) > 0 && record[0] == 0 }

// decodeOverrides reads a record of limits.
func (d *decoder) decodeOverrides(record []byte) (e store.Entity, limits map[string]int64, err error) {
	d.rest, d.bad = record, false
	d.text()
	e = store.Entity{Instance: string(d.text()), Consumer: string(d.text())}
	limits = make(map[string]int64)
	for len(d.rest) > 0 && !d.bad {
		rule, limit := string(d.text()), d.varint()
		limits[rule] = limit
		d.bad = d.bad || limit < 0
	}
	if d.bad || e.Instance == "" {
		return e, nil, errRecord
	}
	return e, limits, nil
}
