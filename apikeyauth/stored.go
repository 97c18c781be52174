package apikeyauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/internal/keyring"
	"github.com/llmlimits/caddy-llm-limits/internal/llmapp"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/store"
)

const (
	// defaultKeyCache is how long known keys work while the store is away.
	defaultKeyCache = 10 * time.Minute
	// leastKeyCache is longer than it takes to follow the store.
	leastKeyCache = time.Second
	// fresh is how old, at most, what is known of the store may be for a key that cannot
	// be real to be refused without asking.
	fresh = time.Second
	// patience is how long a call with a key that is not known waits for the store, and
	// loading how long it does while all keys are being read for the first time.
	patience = 2 * time.Second
	loading  = 15 * time.Second
)

// ring is all keys of a store, and where they are from. It is shared by all handlers
// and configs that use the store.
type ring struct {
	*keyring.Ring[*grant]
	key    string // in the pool
	counts string // the same for all ways to reach the same store
	kind   string // of the store

	mu   sync.Mutex
	keys store.Keys // nil until a config runs

	tidying sync.Once
}

// rings keeps them, by store, from one config to the next.
var rings = caddy.NewUsagePool()

// serving are the handlers with keys_store whose configs run, the newest last: two
// configs do while one takes over from another.
var serving struct {
	mu       sync.Mutex
	handlers []*Handler
}

func newRing(key, counts, kind string) *ring {
	// not a handler's logger: the ring outlives the config it belongs to
	log := func() *zap.Logger { return caddy.Log().Named("llm.keys") }
	return &ring{key: key, counts: counts, kind: kind, Ring: keyring.New(grantOf, keyring.Options{
		OnAway: func(err error) {
			log().Error("the store of API keys cannot be reached: keys that are known work as long as key_cache says", zap.Error(err))
		},
		OnBack: func(away time.Duration) {
			log().Info("the store of API keys is back", zap.Duration("away", away))
		},
		OnLost: func(err error, keys int) {
			log().Error("API keys are lost in their store, as by a Redis that restarts without AOF, or that evicts: those that are known work as long as key_cache says, and no longer unless the store is restored", zap.Int("keys", keys), zap.Error(err))
		},
		OnBad: func(id string, err error) {
			log().Error("a stored API key cannot be used", zap.String("key_id", id), zap.Error(err))
		},
		OnReread: func(times int) {
			metrics.Process.KeysReread()
			log().Warn("the store of API keys has lost changes, as after a failover: all keys were read again", zap.Int("times", times))
		},
	})}
}

// Destruct implements caddy.Destructor.
func (r *ring) Destruct() error {
	r.Close()
	return nil
}

// follow begins to follow the store, if that has not begun.
func (r *ring) follow(keys store.Keys) {
	r.mu.Lock()
	r.keys = keys
	r.mu.Unlock()
	r.Start(keys)
	r.tidying.Do(func() { go r.tidy(keys) })
}

func (r *ring) store() store.Keys {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys
}

// provisionStored readies the keys of the store. It does no I/O.
func (h *Handler) provisionStored(app *llmapp.App) error {
	if err := h.checkKeyCache(); err != nil || !h.KeysStore {
		return err
	}
	h.keyCache = cmp.Or(time.Duration(h.KeyCache), defaultKeyCache)
	if h.ring != nil {
		return nil // a test's
	}
	if !app.KeepsKeys() {
		return errors.New("keys_store: the store of the llm option keeps no keys")
	}
	v, _, err := rings.LoadOrNew(app.StoreKey(), func() (caddy.Destructor, error) {
		return newRing(app.StoreKey(), app.CountsKey(), app.StoreKind()), nil
	})
	if err != nil {
		return fmt.Errorf("keys_store: %w", err)
	}
	h.ring, h.acquired = v.(*ring), true
	app.UseKeys()
	app.OnStart(func() { h.serve(app.Keys()) })
	return nil
}

func (h *Handler) checkKeyCache() error {
	switch cache := time.Duration(h.KeyCache); {
	case cache != 0 && !h.KeysStore:
		return errors.New("key_cache says how long keys of keys_store work while the store is away, and there is no keys_store")
	case cache != 0 && cache < leastKeyCache:
		return fmt.Errorf("key_cache %s must be at least %s", cache, leastKeyCache)
	}
	return nil
}

// serve is called once the config is to run.
func (h *Handler) serve(keys store.Keys) {
	if k, ok := keys.(interface{ Durable() bool }); ok && !k.Durable() {
		h.logger.Warn("API keys that are issued at run time are in memory only: a restart forgets them")
	}
	serving.mu.Lock()
	defer serving.mu.Unlock()
	// The store may be away, and a config that reaches it in another way knows its keys.
	for _, other := range slices.Backward(serving.handlers) {
		if other.ring != h.ring && other.ring.counts == h.ring.counts {
			h.ring.Seed(other.ring.Ring)
			break
		}
	}
	h.ring.follow(keys)
	serving.handlers = append(serving.handlers, h)
}

// Cleanup implements caddy.CleanerUpper.
func (h *Handler) Cleanup() error {
	serving.mu.Lock()
	serving.handlers = slices.DeleteFunc(serving.handlers, func(other *Handler) bool { return other == h })
	serving.mu.Unlock()
	if !h.acquired {
		return nil
	}
	h.acquired = false
	_, err := rings.Delete(h.ring.key)
	return err
}

// findStored is find for keys that neither the configuration nor the keys file has.
// Calls with a key that is known, or that cannot be one, ask no store.
func (h *Handler) findStored(ctx context.Context, secret string, d digest, now time.Time) (*grant, error) {
	e, ok := h.ring.Find(d)
	if !ok {
		if err := h.await(ctx, secret); err != nil {
			return nil, err
		}
		if e, ok = h.ring.Find(d); !ok {
			return nil, errUnknown
		}
	}
	if h.ring.Age() > h.keyCache {
		return e.Value, errAway
	}
	if _, taken := h.index.Load().ids[e.Value.id.(string)]; taken {
		return e.Value, errTwice
	}
	c := credential{grant: e.Value}
	if e.Until != 0 {
		c.until = time.UnixMilli(e.Until)
	}
	return c.check(now)
}

// await returns when a key that is not known would be, had it been issued before the
// call. However many wait, the store is asked ten times a second at most.
func (h *Handler) await(ctx context.Context, secret string) error {
	switch {
	case h.ring.Away():
		return errAway
	case h.ring.Age() < fresh && !apikey.Valid(secret):
		return errUnknown // nobody has issued it
	}
	most := patience
	if !h.ring.Loaded() {
		most = loading
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if err := h.ring.Refresh(ctx); err != nil {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	return nil
}

// grantOf makes of a stored key what a request is given.
func grantOf(k *store.Key) (*grant, error) {
	if err := checkName("id", k.ID); err != nil {
		return nil, err
	}
	if err := checkApplication(k.Application); err != nil {
		return nil, err
	}
	if err := checkOptionalName("group", k.Group); err != nil {
		return nil, err
	}
	models, err := Models(k.Models).compile()
	if err != nil {
		return nil, err
	}
	return &grant{
		id: k.ID, application: k.Application, group: k.Group,
		models: models, expires: k.Expires, disabled: k.Disabled,
	}, nil
}
