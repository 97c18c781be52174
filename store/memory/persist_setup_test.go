package memory

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// clock is one that is stepped by hand, while stores read it.
type clock struct {
	mu  sync.Mutex
	now int64
}

func newClock() *clock { return &clock{now: at} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMilli(c.now)
}

func (c *clock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d.Milliseconds()
}

func (c *clock) store() *Store { return New(Options{Now: c.Now}) }

// persisted returns a store with the directory, which it has until the test is over.
func persisted(t testing.TB, c *clock, dir string) (*Store, Restored) {
	t.Helper()
	s := c.store()
	found, err := s.Persist(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, found
}

// unsynced is persisted on a disk that syncs nothing, which is fast.
func unsynced(t testing.TB, c *clock, dir string) *Store {
	t.Helper()
	s := c.store()
	s.disk = crashtest.New()
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustSync(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// crashed is a directory as a process that is killed now leaves it.
func crashed(t testing.TB, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, logName))
	if err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.WriteFile(filepath.Join(copied, logName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

func adjust(t testing.TB, s *Store, e store.Entity, r *store.Rule, amount int64) {
	t.Helper()
	if err := s.Adjust(context.Background(), e, store.Amount{Rule: r, Amount: amount}); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, s *Store, e store.Entity, rules ...*store.Rule) []store.Result {
	t.Helper()
	results := make([]store.Result, len(rules))
	if err := s.Read(context.Background(), e, rules, results); err != nil {
		t.Fatal(err)
	}
	return results
}

func wantUsed(t testing.TB, s *Store, e store.Entity, r *store.Rule, want int64) {
	t.Helper()
	if got := read(t, s, e, r)[0].Used; got != want {
		t.Errorf("%s: %s has used %d, want %d", e.Consumer, r.ID, got, want)
	}
}
