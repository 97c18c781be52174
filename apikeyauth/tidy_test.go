package apikeyauth

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

func TestKeysThatExpiredLongAgoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &keysBackend{Keys: memory.New(memory.Options{}).Keys()}
		stored(t, b, store.Key{ID: "never"})
		stored(t, b, store.Key{ID: "expires", Expires: time.Now().Add(time.Hour - store.KeepExpired)})
		r := newRing("key", "counts", "memory")
		r.follow(b)
		r.follow(b) // as a config does that takes over
		count := func(after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := r.Len(); got != want {
				t.Errorf("%d keys are known, want %d", got, want)
			}
		}
		count(time.Second, 2)
		count(30*time.Minute, 2)
		b.down.Store(true)
		count(3*time.Hour, 2)
		b.down.Store(false)
		count(2*time.Hour, 1)
		if _, err := b.Get(t.Context(), "expires"); !errors.Is(err, store.ErrNoKey) {
			t.Errorf("got %v", err)
		}
		if err := r.Destruct(); err != nil {
			t.Error(err)
		}
	})
}
