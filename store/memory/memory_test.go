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

func TestConformance(t *testing.T) { storetest.Run(t, open) }

func TestConformanceInTime(t *testing.T) { storetest.RunClock(t, open) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
