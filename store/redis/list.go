package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// scanned is how many keys the server looks at in one step of a listing.
const scanned = 1000

// Entities implements store.Counters. It goes through all keys of the server, so
// it is for operators, and waits as long as ctx lets it. Who goes on within a minute where
// a page ended is told what was found then. A consumer is listed for some minutes after its
// counters are over. Errors wrap store.ErrUnavailable.
func (s *Store) Entities(ctx context.Context, instance, after string, n int) ([]store.Entity, error) {
	return s.list(ctx, instance, after, n, "")
}

// list lists the consumers of an instance, those alone that have a field if one is given.
func (s *Store) list(ctx context.Context, instance, after string, n int, field string) ([]store.Entity, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	if n <= 0 {
		return nil, nil
	}
	began := s.now()
	l := &listing{s: s, after: after, most: n + restMost, suffix: "}" + part(instance), field: field}
	if names, ok := s.rests.next(l.suffix, field, after, n, began); ok {
		return entitiesOf(instance, names), nil
	}
	var err error
	if cluster, ok := s.client.(*goredis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error { return l.scan(ctx, c) })
	} else {
		err = l.scan(ctx, s.client)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	l.trim()
	told := min(n, len(l.names))
	s.rests.keep(rest{l.suffix, field, l.names, told, len(l.names) < l.most, began})
	return entitiesOf(instance, l.names[:told]), nil
}

func entitiesOf(instance string, names []string) []store.Entity {
	entities := make([]store.Entity, len(names))
	for i, name := range names {
		entities[i] = store.Entity{Instance: instance, Consumer: name}
	}
	return entities
}

// listing gathers the first names after one.
type listing struct {
	s      *Store
	after  string
	most   int
	suffix string // of the instance's keys
	field  string // that an entity must have, empty for none

	mu    sync.Mutex
	names []string
}

// scan goes through the keys of one server. The client is that server's, so that
// what is read in one pipeline needs to be in no one slot.
func (l *listing) scan(ctx context.Context, c goredis.Cmdable) error {
	pattern := globbed(l.s.prefix) + "{?*" + globbed(l.suffix)
	var cursor uint64
	for {
		keys, next, err := c.Scan(ctx, cursor, pattern, scanned).Result()
		if err != nil {
			return err
		}
		if l.field != "" {
			if keys, err = l.having(ctx, c, keys); err != nil {
				return err
			}
		}
		if err := l.add(ctx, c, keys); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (l *listing) add(ctx context.Context, c goredis.Cmdable, keys []string) error {
	var names, hashed []string
	for _, key := range keys {
		tag := strings.TrimSuffix(strings.TrimPrefix(key, l.s.prefix+"{"), l.suffix)
		if strings.HasPrefix(tag, "#") {
			hashed = append(hashed, key)
		} else {
			names = append(names, tag)
		}
	}
	if len(hashed) > 0 {
		full, err := l.fullNames(ctx, c, hashed)
		if err != nil {
			return err
		}
		names = append(names, full...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if name > l.after {
			l.names = append(l.names, name)
		}
	}
	if len(l.names) > 2*l.most {
		l.trim()
	}
	return nil
}

// having are the keys of hashes that have the field.
func (l *listing) having(ctx context.Context, c goredis.Cmdable, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	pipe := c.Pipeline()
	for _, key := range keys {
		pipe.HExists(ctx, key, l.field)
	}
	cmds, _ := pipe.Exec(ctx) // each command has its own error
	var some []string
	for i, cmd := range cmds {
		has, err := cmd.(*goredis.BoolCmd).Result()
		if err != nil {
			return nil, err
		}
		if has {
			some = append(some, keys[i])
		}
	}
	return some, nil
}

// fullNames reads the names that are not in the keys.
func (l *listing) fullNames(ctx context.Context, c goredis.Cmdable, keys []string) ([]string, error) {
	pipe := c.Pipeline()
	for _, key := range keys {
		pipe.HGet(ctx, key, nameField)
	}
	cmds, _ := pipe.Exec(ctx) // each command has its own error
	var names []string
	for _, cmd := range cmds {
		name, err := cmd.(*goredis.StringCmd).Result()
		if errors.Is(err, goredis.Nil) { // it has come to its end meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// trim keeps the first names, each once.
func (l *listing) trim() {
	slices.Sort(l.names)
	l.names = slices.Compact(l.names)
	l.names = l.names[:min(l.most, len(l.names))]
}

// globbed escapes a part of a pattern that stands for itself.
func globbed(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
