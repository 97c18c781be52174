package keyring

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmlimits/caddy-llm-limits/internal/apikey"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

var (
	modelIDs     = []string{"a", "b", "c"}
	modelSecrets = []string{"1", "2", "3", "4", "5"}
)

// past is what was done to a store, from which one can be made that has not heard of the
// last of it, as after a failover or out of a backup.
type past struct {
	now  time.Time
	done []deed
}

type deed struct {
	at time.Time
	do func(store.Keys)
}

// store makes one of which all is true but the last so many deeds.
func (p *past) store(without int) store.Keys {
	keys := memory.New(memory.Options{Now: func() time.Time { return p.now }}).Keys()
	now := p.now
	p.done = p.done[:max(0, len(p.done)-without)]
	for _, d := range p.done {
		p.now = d.at
		d.do(keys)
	}
	p.now = now
	return keys
}

func (p *past) do(keys store.Keys, f func(store.Keys)) {
	p.now = p.now.Add(time.Millisecond)
	p.done = append(p.done, deed{p.now, f})
	f(keys)
}

// change is something that is done to a key.
func change(t *rapid.T) func(store.Keys) {
	ctx := context.Background()
	id := rapid.SampledFrom(modelIDs).Draw(t, "id")
	if rapid.IntRange(0, 4).Draw(t, "what") == 0 {
		return func(keys store.Keys) { _ = keys.Delete(ctx, id) }
	}
	secret := rapid.SampledFrom(modelSecrets).Draw(t, "secret")
	group := rapid.SampledFrom([]string{"", "bad", "gold"}).Draw(t, "group")
	previous := rapid.SampledFrom(append(modelSecrets, "")).Draw(t, "previous")
	return func(keys store.Keys) {
		k, _ := keys.Get(ctx, id)
		k.ID, k.Hash, k.Group = id, apikey.Hash(secret), group
		if k.Previous, k.Until = (store.KeyHash{}), (time.Time{}); previous != "" {
			k.Previous, k.Until = apikey.Hash(previous), time.UnixMilli(1000)
		}
		_, _ = keys.Put(ctx, k) // what is taken is refused
	}
}

// like compares every secret there was.
func like(r *Ring[*value], keys store.Keys) error {
	for _, secret := range modelSecrets {
		want, err := keys.Find(context.Background(), apikey.Hash(secret))
		there := err == nil && want.Group != "bad"
		e, ok := r.Find(apikey.Hash(secret))
		switch {
		case ok != there:
			return fmt.Errorf("%s: found %t, want %+v", secret, ok, want)
		case ok && (e.Value.id != want.ID || e.Value.group != want.Group || (e.Until == 0) != (want.Hash == apikey.Hash(secret))):
			return fmt.Errorf("%s: got %+v until %d, want %+v", secret, e.Value, e.Until, want)
		}
	}
	return nil
}

// Keys are changed and pass secrets on, pages cannot be read, the store goes back in time,
// and one config takes over from another: whenever the ring says that it is like the
// store, it is.
func TestTheRingIsLikeTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &past{now: time.Date(2026, 3, 15, 12, 30, 0, 0, time.UTC)}
		b := &backend{Keys: p.store(0)}
		rings := []*Ring[*value]{New(valueOf, Options{})} // of configs, each begun with another's
		reread, back := 0, 0
		some := func() *Ring[*value] { return rings[rapid.IntRange(0, len(rings)-1).Draw(t, "ring")] }
		follow := func(r *Ring[*value]) {
			r.reread = time.Time{} // it may read all again
			r.page = rapid.IntRange(1, 3).Draw(t, "page")
			before := r.synced.Load()
			err := r.round(b)
			reread = max(reread, r.rereads)
			switch synced := r.synced.Load() != before; {
			case b.down.Load():
				if err == nil || synced {
					t.Fatalf("the store is away: %v, %t", err, synced)
				}
			case errors.Is(err, ErrEmptied):
				if back == 0 {
					t.Fatal(err)
				}
			case err != nil || !synced:
				t.Fatalf("got %v, %t", err, synced)
			default:
				if err := like(r, b); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				b.down.Store(!b.down.Load())
			case 1:
				n := rapid.IntRange(0, 3).Draw(t, "lost")
				back += n
				b.Keys = p.store(n)
			case 2:
				next := New(valueOf, Options{})
				next.Seed(some())
				rings = append(rings, next)
			case 3, 4, 5:
				follow(some())
			default:
				p.do(b, change(t))
			}
		}
		b.down.Store(false)
		for _, r := range rings {
			follow(r)
		}
		if reread > 0 && back == 0 {
			t.Fatal("changes were missed")
		}
	})
}
