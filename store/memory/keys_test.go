package memory

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

func TestKeysConformance(t *testing.T) {
	storetest.RunKeys(t, func(_ *testing.T, now func() time.Time) store.Keys { return New(Options{Now: now}).Keys() })
}

func TestKeysConformancePersisted(t *testing.T) {
	storetest.RunKeys(t, func(t *testing.T, now func() time.Time) store.Keys {
		s := New(Options{Now: now})
		if _, err := s.Persist(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s.Keys()
	})
}
