package apikeyauth

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/store"
)

const (
	// tidyFirst is within which time a process looks for keys that expired long ago for
	// the first time, and tidyEvery how often it does. Many gateways that start together
	// are not to do it together.
	tidyFirst = 10 * time.Minute
	tidyEvery = time.Hour
)

// tidy has the store forget keys that expired long ago, until the ring is closed. All
// replicas do so, and follow the store.
func (r *ring) tidy(keys store.Keys) {
	ctx := r.Context()
	timer := time.NewTimer(rand.N(tidyFirst))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := forgetExpired(ctx, keys); errors.Is(err, store.ErrKeysClosed) {
			return
		}
		timer.Reset(tidyEvery + rand.N(tidyEvery/10))
	}
}

// forgetExpired does it once, and logs which keys there were.
func forgetExpired(ctx context.Context, keys store.Keys) error {
	log := caddy.Log().Named("llm.keys")
	ids, err := keys.Expire(ctx)
	for _, id := range ids {
		log.Info("API key forgotten: it expired 30 days ago", zap.String("key_id", id))
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrKeysClosed) {
		log.Warn("forgetting API keys that expired 30 days ago; it is tried again within an hour or so", zap.Error(err))
	}
	return err
}
