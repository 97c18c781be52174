package redis

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/llmlimits/caddy-llm-limits/store"
)

//go:embed keysexpired.lua
var keysExpiredLua string

// lookedAt is how many keys are looked at in one call: the server does nothing else
// meanwhile.
const lookedAt = 200

// Expire implements store.Keys. The server's clock decides, so that a gateway whose own
// is wrong forgets no key.
func (k *Keys) Expire(ctx context.Context) (ids []string, err error) {
	for after := ""; ; {
		cmd, _, err := k.run(ctx, k.expired, []any{after, lookedAt, store.KeepExpired.Milliseconds()})
		if err != nil {
			return ids, err
		}
		found, err := cmd.StringSlice()
		if err != nil || len(found)%2 != 1 {
			return ids, unanswered(errReply)
		}
		for due := found[1:]; len(due) > 0; due = due[2:] {
			answer, _, err := k.change(ctx, "delete", due[0], "", due[1])
			if err != nil {
				return ids, fmt.Errorf("forgetting the key %q: %w", due[0], err)
			}
			if answer != "none" && answer != "changed" { // by another gateway, or somebody, just now
				ids = append(ids, due[0])
			}
		}
		if after = found[0]; after == "" {
			return ids, nil
		}
	}
}
