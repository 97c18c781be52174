package redis

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/llmlimits/caddy-llm-limits/store"
)

// ownField is the field with the limits that an entity has of its own; see edit.lua.
const ownField = "o"

// Clear implements store.Counters. Errors wrap store.ErrUnavailable; it may have been
// done all the same. What this process has settled before is charged before.
func (s *Store) Clear(ctx context.Context, e store.Entity) error {
	return s.editEntity(ctx, e, "", "", "")
}

// Override implements store.Overrides. Errors wrap store.ErrUnavailable; it may have
// been done all the same.
func (s *Store) Override(ctx context.Context, e store.Entity, rule string, limit *int64) error {
	text := ""
	if limit != nil {
		text = strconv.FormatInt(max(0, *limit), 10)
	}
	return s.editEntity(ctx, e, s.fields.of(s.seeds[0], rule), text, url.QueryEscape(rule))
}

// editEntity runs the script for changes by hand, after all that is queued for the
// entity.
func (s *Store) editEntity(ctx context.Context, e store.Entity, args ...any) error {
	if s.closed.Load() {
		return errClosed
	}
	if err := s.change(ctx, e, nil); err != nil {
		return err
	}
	defer s.forget(e)
	args = append([]any{unsaid(e)}, args...)
	return s.repeat(ctx, func(ctx context.Context) error {
		_, err := s.edit.run(ctx, s.client, s.key(e), args...)
		return err
	})
}

// OverridesOf implements store.Overrides. Errors wrap store.ErrUnavailable.
func (s *Store) OverridesOf(ctx context.Context, e store.Entity) (map[string]int64, error) {
	all, err := s.OverridesOfAll(ctx, []store.Entity{e})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// OverridesOfAll implements store.ManyOverrides. A hundred entities take one round trip and
// the time of one call at most. Errors wrap store.ErrUnavailable.
func (s *Store) OverridesOfAll(ctx context.Context, entities []store.Entity) ([]map[string]int64, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	all := make([]map[string]int64, 0, len(entities))
	for part := range slices.Chunk(entities, readMost) {
		var own []map[string]int64
		err := s.repeat(ctx, func(ctx context.Context) (err error) {
			own, err = s.overridesOf(ctx, part)
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, own...)
		if err := ctx.Err(); err != nil { // nobody wants the rest
			return nil, unavailable(err)
		}
	}
	return all, nil
}

func (s *Store) overridesOf(ctx context.Context, part []store.Entity) ([]map[string]int64, error) {
	pipe := s.client.Pipeline()
	cmds := make([]*goredis.StringCmd, len(part))
	for i, e := range part {
		cmds[i] = pipe.HGet(ctx, s.key(e), ownField)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	own := make([]map[string]int64, len(part))
	for i, cmd := range cmds {
		text, err := cmd.Result()
		switch {
		case errors.Is(err, goredis.Nil):
		case err != nil:
			return nil, err
		default:
			own[i] = readOwn(text)
		}
	}
	return own, nil
}

// readOwn reads limits as edit.lua writes them. What cannot be read is left out.
func readOwn(text string) map[string]int64 {
	own := make(map[string]int64)
	for line := range strings.SplitSeq(text, "\n") {
		_, line, _ = strings.Cut(line, " ")
		limit, id, ok := strings.Cut(line, " ")
		n, err := strconv.ParseInt(limit, 10, 64)
		rule, badID := url.QueryUnescape(id)
		if ok && err == nil && badID == nil {
			own[rule] = n
		}
	}
	return own
}

// Overridden implements store.Overrides. It goes through all keys of the server, as
// Entities does.
func (s *Store) Overridden(ctx context.Context, instance, after string, n int) ([]store.Entity, error) {
	return s.list(ctx, instance, after, n, ownField)
}

// repeat does what comes to the same when it is done twice, again if a connection ends.
// All tries together have the time of one call.
func (s *Store) repeat(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	for tries := 1; ; tries++ {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if tries == triesMost || !lost(err) {
			return unavailable(err)
		}
	}
}
