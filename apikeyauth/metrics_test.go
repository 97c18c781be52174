package apikeyauth

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmlimits/caddy-llm-limits/internal/keyring"
	"github.com/llmlimits/caddy-llm-limits/internal/metrics"
	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/memory"
)

func TestEveryReasonHasAWord(t *testing.T) {
	seen := make(map[string]bool)
	for _, err := range []error{errNoKey, errTwoKeys, errMalformed, errUnknown, errDisabled, errExpired, errRotated, errTwice, errAway} {
		word := reason(fmt.Errorf("wrapped: %w", err))
		if word == "other" || seen[word] {
			t.Errorf("%v is %q", err, word)
		}
		seen[word] = true
	}
	if word := reason(errors.New("something else")); word != "other" {
		t.Errorf("something else is %q", word)
	}
}

// seriesOf are the series of a metric, by their label, as a new config's registry has
// them.
func seriesOf(t *testing.T, name string) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := metrics.Process.Register(r); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			got[label] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

func TestMetricsOfKeysAreThoseOfTheConfigThatRuns(t *testing.T) {
	known := func(want map[string]float64) {
		t.Helper()
		if got := seriesOf(t, "llm_keys"); !maps.Equal(got, want) {
			t.Errorf("known: got %v, want %v", got, want)
		}
	}
	age := func(store string) float64 {
		t.Helper()
		got := seriesOf(t, "llm_keys_age_seconds")
		if len(got) != 1 {
			t.Fatalf("ages: got %v", got)
		}
		return got[store]
	}
	known(map[string]float64{})
	old := &Handler{}
	b, c := serveStored(t, old)
	old.ring.kind = "memory"
	stored(t, b, store.Key{ID: "a"})
	stored(t, b, store.Key{ID: "b"})
	if err := old.ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	known(map[string]float64{"memory": 2})
	if got := age("memory"); got < 0 || got > 60 {
		t.Errorf("in step: %v s", got)
	}
	b.down.Store(true)
	if err := old.ring.Refresh(t.Context()); err == nil {
		t.Fatal("the store is not away")
	}
	c.step(time.Hour)
	if got := age("memory"); got < 3600 || got > 3700 {
		t.Errorf("away for an hour: %v s", got)
	}

	// another config takes over, which cannot reach its store
	clock := new(stepped)
	other := &keysBackend{Keys: b.Keys}
	other.down.Store(true)
	h := &Handler{KeysStore: true, ring: &ring{kind: "redis", Ring: keyring.New(grantOf, keyring.Options{Now: clock.now})}}
	mustProvision(t, h)
	h.serve(other)
	known(map[string]float64{"redis": 0})
	clock.step(2 * time.Minute)
	if got := age("redis"); got < 120 || got > 180 {
		t.Errorf("never in step: %v s", got)
	}
	if err := old.Cleanup(); err != nil {
		t.Error(err)
	}
	known(map[string]float64{"redis": 0})
	if err := h.Cleanup(); err != nil {
		t.Error(err)
	}
	h.ring.Close()
	known(map[string]float64{})
}

func TestKeysThatAreReadAnewAreCounted(t *testing.T) {
	const name = "llm_keys_rereads_total"
	before := seriesOf(t, name)[""]
	b := &keysBackend{Keys: memory.New(memory.Options{}).Keys()}
	r := newRing("key", "counts", "memory")
	defer r.Close()
	stored(t, b, store.Key{ID: "a"})
	r.follow(b)
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := &keysBackend{Keys: memory.New(memory.Options{}).Keys()}
	stored(t, other, store.Key{ID: "b"})
	b.swap(other.Keys) // as a server that has lost what it was told last
	for range 2 {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := seriesOf(t, name)[""] - before; got != 1 {
		t.Errorf("read anew %v times", got)
	}
}
