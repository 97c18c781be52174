package outage

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// Limits of entities' own are the remote's. A replica remembers those that it was told of
// with the answers of the remote, or has set itself, and goes by them in an outage.

// Override implements store.Overrides. It does not wait for the end of an outage.
func (c *Counters) Override(ctx context.Context, e store.Entity, rule string, limit *int64) error {
	c.Start()
	_, err := c.ask(ctx, e, func() (*store.Ticket, error) { return nil, c.remote.Override(ctx, e, rule, limit) })
	if err == nil {
		c.seen.overrode(e, rule, limit)
	}
	return err
}

// OverridesOf implements store.Overrides. In an outage it fails: what this process knows
// is not all.
func (c *Counters) OverridesOf(ctx context.Context, e store.Entity) (own map[string]int64, err error) {
	c.Start()
	_, err = c.ask(ctx, e, func() (_ *store.Ticket, err error) {
		own, err = c.remote.OverridesOf(ctx, e)
		return nil, err
	})
	return own, err
}

// OverridesOfAll implements store.ManyOverrides. It fails as OverridesOf does.
func (c *Counters) OverridesOfAll(ctx context.Context, entities []store.Entity) (all []map[string]int64, err error) {
	c.Start()
	_, err = c.ask(ctx, store.Entity{}, func() (_ *store.Ticket, err error) {
		all, err = store.OverridesOfAll(ctx, c.remote, entities)
		return nil, err
	})
	return all, err
}

// Overridden implements store.Overrides. It fails as OverridesOf does.
func (c *Counters) Overridden(ctx context.Context, instance, after string, n int) (list []store.Entity, err error) {
	c.Start()
	_, err = c.ask(ctx, store.Entity{}, func() (_ *store.Ticket, err error) {
		list, err = c.remote.Overridden(ctx, instance, after, n)
		return nil, err
	})
	return list, err
}

// told notes what limit the remote went by.
func (g *sight) told(rule string, res *store.Result) {
	if res.Overridden {
		g.override(rule, &res.Limit)
	} else if g.own != nil {
		g.override(rule, nil)
	}
}

func (g *sight) override(rule string, limit *int64) {
	g.touch()
	switch {
	case limit == nil:
		if delete(g.own, rule); len(g.own) == 0 {
			g.own = nil
		}
	case g.own == nil:
		g.own = map[string]int64{strings.Clone(rule): max(0, *limit)}
	default:
		g.own[strings.Clone(rule)] = max(0, *limit)
	}
}

// overrode notes what was set by hand.
func (s *seen) overrode(e store.Entity, rule string, limit *int64) {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if limit == nil && sh.find(e) == nil {
		return
	}
	sh.of(e, 0).override(rule, limit)
}

// own are the limits that an entity is known to have of its own, nil for none.
func (s *seen) own(e store.Entity) map[string]int64 {
	sh := s.shard(e)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if g := sh.find(e); g != nil {
		return maps.Clone(g.own)
	}
	return nil
}

// by is the reservation by an entity's own limits.
func by(own map[string]int64, r *store.Reservation) *store.Reservation {
	if len(own) == 0 {
		return r
	}
	mine := *r
	mine.Takes = slices.Clone(r.Takes)
	for i := range mine.Takes {
		if limit, ok := own[mine.Takes[i].Rule.ID]; ok {
			mine.Takes[i].Limit = limit
		}
	}
	return &mine
}

// mark tells which of the results are by an entity's own limits.
func mark(own map[string]int64, r *store.Reservation, results []store.Result) {
	if len(own) == 0 {
		return
	}
	for i := range r.Takes {
		_, results[i].Overridden = own[r.Takes[i].Rule.ID]
	}
}

// recordOwn is the record of an entity's limits, if it has any, or had in the file.
func (g *sight) recordOwn(e store.Entity) [][]byte {
	if len(g.own) == 0 && g.file != fileOld {
		return nil
	}
	b := appendString(appendString([]byte{kindOwn}, e.Instance), e.Consumer)
	for _, rule := range slices.Sorted(maps.Keys(g.own)) {
		b = binary.AppendVarint(appendString(b, rule), g.own[rule])
	}
	return [][]byte{b}
}

// readOwn reads what recordOwn wrote, without its kind.
func readOwn(data []byte) (e store.Entity, own map[string]int64, err error) {
	d := decoder{b: data}
	e = store.Entity{Instance: d.string(), Consumer: d.string()}
	own = make(map[string]int64)
	for len(d.b) > 0 && !d.bad {
		rule, limit := d.string(), d.varint()
		own[rule] = limit
		d.bad = d.bad || limit < 0
	}
	if d.bad {
		return e, nil, errRecord
	}
	if len(own) == 0 {
		return e, nil, nil
	}
	return e, own, nil
}
