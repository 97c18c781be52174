package store

import "context"

// Overrides are the limits of entities' own, which operators set while calls go on.
// One acts in place of Take.Limit, whatever the config says, until it is removed:
// no window ends it, and neither the end of the entity's counters nor Clear. Nothing
// that was charged is touched by it.
//
// Errors are as those of Counters.
type Overrides interface {
	// Override gives an entity a limit of its own under the rule of that ID, or with
	// nil takes it away. A limit below zero is as zero, which admits nothing. A
	// following Reserve in this process goes by it, and one in another process
	// within a second. A store that is full takes it all the same.
	Override(ctx context.Context, e Entity, rule string, limit *int64) error

	// OverridesOf are the limits of an entity's own, by the IDs of their rules.
	OverridesOf(ctx context.Context, e Entity) (map[string]int64, error)

	// Overridden lists the consumers of an instance that have limits of their own, as
	// Counters.Entities lists those that have counters.
	Overridden(ctx context.Context, instance, after string, n int) ([]Entity, error)
}

// ManyOverrides are Overrides that many entities' limits can be read of at once.
type ManyOverrides interface {
	// OverridesOfAll is OverridesOf of each of the entities, in their order.
	OverridesOfAll(ctx context.Context, entities []Entity) ([]map[string]int64, error)
}

// OverridesOfAll reads many entities' limits, at once where the store can.
func OverridesOfAll(ctx context.Context, o Overrides, entities []Entity) ([]map[string]int64, error) {
	if many, ok := o.(ManyOverrides); ok {
		return many.OverridesOfAll(ctx, entities)
	}
	all := make([]map[string]int64, len(entities))
	for i, e := range entities {
		var err error
		if all[i], err = o.OverridesOf(ctx, e); err != nil {
			return nil, err
		}
	}
	return all, nil
}
