package apikeyauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/internal/keyring"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

// keysBackend is a store of keys that may be away, and counts how often it is asked.
type keysBackend struct {
	store.Keys
	down  atomic.Bool
	asked atomic.Int64
	other atomic.Pointer[store.Keys] // in the place of Keys, once swapped
	heed  atomic.Bool                // Put ends with its context

	unsure atomic.Int64 // so many of the next Puts say that they have failed
	made   atomic.Bool  // and have not

	unsureGone atomic.Int64 // so many of the next Deletes say that they have failed, and have not
}

// swap puts another store in the place of this one.
func (b *keysBackend) swap(keys store.Keys) { b.other.Store(&keys) }

func (b *keysBackend) now() store.Keys {
	if other := b.other.Load(); other != nil {
		return *other
	}
	return b.Keys
}

func (b *keysBackend) Delete(ctx context.Context, id string) error {
	err := b.now().Delete(ctx, id)
	if b.unsureGone.Add(-1) >= 0 {
		return errBackend
	}
	return err
}

var errBackend = fmt.Errorf("asking for keys: timeout: %w", store.ErrUnavailable)

func (b *keysBackend) fails() error {
	b.asked.Add(1)
	if b.down.Load() {
		return errBackend
	}
	return nil
}

func (b *keysBackend) Changes(ctx context.Context, since int64, n int) (store.KeyChanges, error) {
	if err := b.fails(); err != nil {
		return store.KeyChanges{}, err
	}
	return b.now().Changes(ctx, since, n)
}

func (b *keysBackend) Expire(ctx context.Context) ([]string, error) {
	if err := b.fails(); err != nil {
		return nil, err
	}
	return b.now().Expire(ctx)
}

func (b *keysBackend) Get(ctx context.Context, id string) (store.Key, error) {
	if err := b.fails(); err != nil {
		return store.Key{}, err
	}
	return b.now().Get(ctx, id)
}

func (b *keysBackend) Put(ctx context.Context, k store.Key) (int64, error) {
	if err := b.fails(); err != nil {
		return 0, err
	}
	if b.heed.Load() && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if b.unsure.Add(-1) >= 0 {
		if b.made.Load() {
			_, _ = b.now().Put(ctx, k)
		}
		return 0, errBackend
	}
	return b.now().Put(ctx, k)
}

// stepped is a clock that goes on by itself and can be put forward.
type stepped struct{ ahead atomic.Int64 }

func (c *stepped) now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *stepped) step(d time.Duration) { c.ahead.Add(int64(d)) }

// serveStored has a handler take keys from a store, too, as in a config that runs.
func serveStored(t testing.TB, h *Handler) (*keysBackend, *stepped) {
	t.Helper()
	b := &keysBackend{Keys: memory.New(memory.Options{}).Keys()}
	return b, serveStoredIn(t, h, b)
}

func serveStoredIn(t testing.TB, h *Handler, b *keysBackend) *stepped {
	t.Helper()
	c := new(stepped)
	h.KeysStore, h.now = true, c.now
	h.ring = &ring{counts: t.Name(), Ring: keyring.New(grantOf, keyring.Options{Now: c.now})}
	mustProvision(t, h)
	h.serve(b)
	t.Cleanup(func() {
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
		h.ring.Close()
	})
	if err := h.ring.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	return c
}

// stored puts a key into the store, with a secret of its own that is returned.
func stored(t testing.TB, b *keysBackend, k store.Key) string {
	t.Helper()
	secret := apikey.New()
	k.Hash = apikey.Hash(secret)
	if _, err := b.Keys.Put(context.Background(), k); err != nil {
		t.Fatal(err)
	}
	return secret
}

// callWith makes a call with a key.
func callWith(t testing.TB, h *Handler, key string) (*httptest.ResponseRecorder, *upstream) {
	t.Helper()
	var next upstream
	rec := httptest.NewRecorder()
	if err := h.ServeHTTP(rec, newRequest(http.MethodPost, chat, `{"model":"m"}`, "Authorization", "Bearer "+key), &next); err != nil {
		t.Fatal(err)
	}
	return rec, &next
}

func TestIdentityOfAStoredKey(t *testing.T) {
	h := &Handler{}
	b, _ := serveStored(t, h)
	secret := stored(t, b, store.Key{ID: "issued", Application: "app-1", Group: "gold", Models: []string{"m"}})
	rec, next := callWith(t, h, secret) // the call itself finds out that there is the key
	if !next.called {
		t.Fatalf("refused: %s", rec.Body)
	}
	if next.userID != "issued" || next.vars["llm.key_id"] != "issued" || next.vars["x-wso2-application-id"] != "app-1" || next.vars["llm_group"] != "gold" {
		t.Errorf("got %v, user %q", next.vars, next.userID)
	}
	if next.header.Get("Authorization") != "" {
		t.Error("the key went on")
	}
	other := stored(t, b, store.Key{ID: "narrow", Models: []string{"none"}})
	if rec, _ := callWith(t, h, other); rec.Code != http.StatusForbidden {
		t.Errorf("a model that is not on the list: %d", rec.Code)
	}
}

func TestStoredKeysThatDoNotWork(t *testing.T) {
	h := &Handler{Keys: []Key{{ID: "stated", Hash: hashOf("key-stated")}}}
	b, c := serveStored(t, h)
	now := c.now()
	disabled := stored(t, b, store.Key{ID: "disabled", Disabled: true})
	expires := stored(t, b, store.Key{ID: "expires", Expires: now.Add(time.Hour)})
	twice := stored(t, b, store.Key{ID: "stated"})
	rotated := apikey.New()
	stored(t, b, store.Key{ID: "rotated", Previous: apikey.Hash(rotated), Until: now.Add(time.Hour)})
	damaged := stored(t, b, store.Key{ID: "damaged", Application: "default"})

	for _, tc := range []struct {
		name, key string
		want      error
	}{
		{"disabled", disabled, errDisabled},
		{"before it expires", expires, nil},
		{"in its grace", rotated, nil},
		{"id of a stated key", twice, errTwice},
		{"the stated key", "key-stated", nil},
		{"unusable", damaged, errUnknown},
		{"made up", "sk-made-up", errUnknown},
		{"made up well", apikey.New(), errUnknown},
		{"malformed", "two words", errMalformed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := h.find(t.Context(), tc.key); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	c.step(time.Hour)
	if err := h.ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]error{expires: errExpired, rotated: errRotated} {
		if _, err := h.find(t.Context(), key); !errors.Is(err, want) {
			t.Errorf("an hour later: got %v, want %v", err, want)
		}
	}
}

func TestAKeyInTheConfigurationIsWhatThatSaysItIs(t *testing.T) {
	secret := apikey.New()
	h := &Handler{Keys: []Key{{ID: "stated", Hash: hashText(secret), Application: "stated-app"}}}
	b, _ := serveStored(t, h)
	if _, err := b.Keys.Put(t.Context(), store.Key{ID: "issued", Hash: apikey.Hash(secret), Application: "other-app"}); err != nil {
		t.Fatal(err)
	}
	if err := h.ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g, err := h.find(t.Context(), secret); err != nil || g.id != "stated" || g.application != "stated-app" {
		t.Errorf("got %+v, %v", g, err)
	}
}

func TestKnownKeysWorkWhileTheStoreIsAway(t *testing.T) {
	h := &Handler{Keys: []Key{{ID: "stated", Hash: hashOf("key-stated")}}}
	b, c := serveStored(t, h)
	known := stored(t, b, store.Key{ID: "known"})
	if rec, next := callWith(t, h, known); !next.called {
		t.Fatalf("refused: %s", rec.Body)
	}
	b.down.Store(true)
	if err := h.ring.Refresh(t.Context()); err == nil {
		t.Fatal("the store is not away")
	}
	status := func(key string) int {
		t.Helper()
		rec, next := callWith(t, h, key)
		if next.called {
			return http.StatusOK
		}
		if rec.Code == http.StatusServiceUnavailable {
			got := refusalOf(t, rec)
			if got.Error.Code != "keys_unavailable" || rec.Header().Get("Retry-After") != "1" || rec.Header().Get("WWW-Authenticate") != "" {
				t.Errorf("got %+v with %v", got, rec.Header())
			}
		}
		return rec.Code
	}
	for _, tc := range []struct {
		name, key string
		step      time.Duration
		want      int
	}{
		{"known", known, 0, http.StatusOK},
		{"not known", apikey.New(), 0, http.StatusServiceUnavailable},
		{"not known, and not ours", "sk-other", 0, http.StatusServiceUnavailable},
		{"malformed", strings.Repeat("x", maxKeyLen+1), 0, http.StatusUnauthorized},
		{"known, at the end of key_cache", known, defaultKeyCache - time.Minute, http.StatusOK},
		{"known, after key_cache", known, 2 * time.Minute, http.StatusServiceUnavailable},
		{"of the configuration", "key-stated", 0, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.step(tc.step)
			if got := status(tc.key); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
	b.down.Store(false)
	if err := h.ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := status(known); got != http.StatusOK {
		t.Errorf("known, and the store is back: %d", got)
	}
	if got := status(apikey.New()); got != http.StatusUnauthorized {
		t.Errorf("not known, and the store is back: %d", got)
	}
}

// A server that restarts without what it had written down.
func TestAStoreThatHasLostAllKeysEndsNone(t *testing.T) {
	h := &Handler{}
	b, c := serveStored(t, h)
	known := stored(t, b, store.Key{ID: "known"})
	full := b.Keys
	status := func(key string) int {
		t.Helper()
		rec, next := callWith(t, h, key)
		if next.called {
			return http.StatusOK
		}
		return rec.Code
	}
	if got := status(known); got != http.StatusOK {
		t.Fatalf("known: %d", got)
	}
	b.swap(memory.New(memory.Options{}).Keys())
	if err := h.ring.Refresh(t.Context()); !errors.Is(err, keyring.ErrEmptied) {
		t.Fatalf("refreshing: %v", err)
	}
	if got := status(known); got != http.StatusOK {
		t.Errorf("known, and lost: %d", got)
	}
	if got := status(apikey.New()); got != http.StatusServiceUnavailable {
		t.Errorf("not known: %d", got)
	}
	for _, target := range []string{"POST /llm/keys", "DELETE /llm/keys/known"} {
		method, path, _ := strings.Cut(target, " ")
		if w := ask(t, method, path, ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "has lost all keys") {
			t.Errorf("%s: got %d: %s", target, w.Code, w.Body)
		}
	}
	c.step(defaultKeyCache)
	if got := status(known); got != http.StatusServiceUnavailable {
		t.Errorf("known, after key_cache: %d", got)
	}
	b.swap(full)
	if err := h.ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := status(known); got != http.StatusOK {
		t.Errorf("known, and restored: %d", got)
	}
	b.swap(memory.New(memory.Options{}).Keys())
	if err := h.ring.Refresh(t.Context()); !errors.Is(err, keyring.ErrEmptied) {
		t.Fatalf("refreshing: %v", err)
	}
	var key issued
	asked(t, http.StatusCreated, "POST", "/llm/keys", `{"anew":true}`, &key)
	if got := status(key.Key); got != http.StatusOK {
		t.Errorf("issued anew: %d", got)
	}
	if got := status(known); got != http.StatusUnauthorized {
		t.Errorf("known, and the store began anew: %d", got)
	}
}

// A reload that changes how the store is reached, while it is away.
func TestAConfigThatReachesTheStoreInAnotherWayKnowsItsKeys(t *testing.T) {
	old := &Handler{}
	b, _ := serveStored(t, old)
	known := stored(t, b, store.Key{ID: "known"})
	if rec, next := callWith(t, old, known); !next.called {
		t.Fatalf("refused: %s", rec.Body)
	}
	b.down.Store(true)
	for counts, want := range map[string]error{t.Name(): nil, "another store": errAway} {
		h := &Handler{KeysStore: true, ring: &ring{counts: counts, Ring: keyring.New(grantOf, keyring.Options{})}}
		mustProvision(t, h)
		h.serve(b)
		_ = h.ring.Refresh(t.Context())
		if _, err := h.find(t.Context(), known); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", counts, err, want)
		}
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
		h.ring.Close()
	}
}

// Calls with wrong keys neither ask the store for each, nor keep calls with right ones
// waiting.
func TestAFloodOfWrongKeysLeavesTheStoreAndRightKeysAlone(t *testing.T) {
	h := &Handler{}
	b, _ := serveStored(t, h)
	right := stored(t, b, store.Key{ID: "right"})
	if rec, next := callWith(t, h, right); !next.called {
		t.Fatalf("refused: %s", rec.Body)
	}
	asked, began := b.asked.Load(), time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var wrong atomic.Int64
	for i := range 200 {
		wg.Go(func() {
			for ctx.Err() == nil {
				key := apikey.New()
				if i%2 == 0 {
					key = "sk-" + key
					time.Sleep(time.Millisecond) // these are refused at once
				}
				if _, err := h.find(ctx, key); err == nil {
					t.Error("a wrong key is right")
				}
				wrong.Add(1)
			}
		})
	}
	for wrong.Load() < 5000 {
		if _, err := h.find(t.Context(), right); err != nil {
			t.Error(err)
		}
	}
	cancel()
	wg.Wait()
	took := time.Since(began)
	if n := b.asked.Load() - asked; float64(n) > 10*took.Seconds()+2 {
		t.Errorf("asked %d times in %s for %d wrong keys", n, took, wrong.Load())
	}
}

func TestKeyCacheMustFit(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		h          *Handler
	}{
		{"without a store", "there is no keys_store", &Handler{Keys: []Key{{ID: "a", Hash: hashOf("key-a")}}, KeyCache: 1e10}},
		{"too short", "at least 1s", &Handler{KeysStore: true, KeyCache: 1e8}},
		{"negative", "at least 1s", &Handler{KeysStore: true, KeyCache: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := provision(t, tc.h); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
