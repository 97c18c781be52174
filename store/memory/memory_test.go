package memory

import (
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/storetest"
)

func open(_ *testing.T, now func() time.Time) store.Counters {
	return New(Options{Now: now})
}

// openPersisted opens a store that writes what it counts.
func openPersisted(t *testing.T, now func() time.Time) store.Counters {
	s := New(Options{Now: now})
	if _, err := s.Persist(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformancePersisted(t *testing.T) { storetest.Run(t, openPersisted) }

func TestConformance(t *testing.T) { storetest.Run(t, open) }

func TestConformanceInTime(t *testing.T) { storetest.RunClock(t, open) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
