package memory

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/llmlimits/caddy-llm-limits/store"
	"github.com/llmlimits/caddy-llm-limits/store/internal/appendlog/crashtest"
)

// Who revokes a key and hears that the disk did not take it asks again, and must not hear
// that there is no such key while a crash would bring it back.
func TestARevokedKeyIsUnknownOnlyOnceTheDiskHasIt(t *testing.T) {
	c, dir, disk := newClock(), t.TempDir(), crashtest.New()
	s := c.store()
	s.disk = disk
	if _, err := s.Persist(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putKey(t, s, keyOf("a"))
	disk.Fail(0, syscall.ENOSPC)
	for range 3 {
		err := s.Keys().Delete(t.Context(), "a")
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) || errors.Is(err, store.ErrNoKey) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	wantKeys(t, s) // it works for nobody all the same
	disk.Fail(0, nil)
	if err := s.Keys().Delete(t.Context(), "a"); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("with room on the disk: %v", err)
	}
	next, _ := persisted(t, c, killed(t, dir))
	wantKeys(t, next)
}

// A secret that was one key's is another's since, as another process has written it.
func TestKeysThatPassedASecretOnAreBothTakenIn(t *testing.T) {
	for range 20 { // whichever is looked at first
		c, dir := newClock(), t.TempDir()
		s := unsynced(t, c, dir)
		first := putKey(t, s, keyOf("first"))
		copied := killed(t, dir)

		other := unsynced(t, c, copied)
		passedOn := first.Hash
		first.Hash = keyOf("another").Hash
		first = putKey(t, other, first)
		putKey(t, other, store.Key{ID: "second", Hash: passedOn})
		first.Group = "gold"
		first = putKey(t, other, first)
		mustClose(t, other)

		if _, err := s.Persist(copied); err != nil {
			t.Fatal(err)
		}
		wantKeys(t, s, "first", "second")
		for hash, id := range map[store.KeyHash]string{first.Hash: "first", passedOn: "second"} {
			if k, err := s.Keys().Find(t.Context(), hash); err != nil || k.ID != id {
				t.Errorf("the secret of %q leads to %q, %v", id, k.ID, err)
			}
		}
		next := unsynced(t, c, killed(t, copied))
		wantKeys(t, next, "first", "second")
		mustClose(t, next)
		mustClose(t, s)
	}
}

// wantUnchanged wants the secrets of keys to lead to them as they were.
func wantUnchanged(t *testing.T, s *Store, keys ...store.Key) {
	t.Helper()
	for _, want := range keys {
		if k, err := s.Keys().Find(t.Context(), want.Hash); err != nil || k.ID != want.ID || k.Revision != want.Revision {
			t.Errorf("the secret of %q leads to %q, %v", want.ID, k.ID, err)
		}
	}
}

// A copy in which a key that is here has another's secret changes neither.
func TestAKeyWhoseSecretIsAnothersHereStaysAsItIs(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s, _ := persisted(t, c, dir)
	first := putKey(t, s, keyOf("first"))
	copied := killed(t, dir)
	second := putKey(t, s, keyOf("second"))

	other, _ := persisted(t, c, copied)
	changed := first
	changed.Hash = second.Hash
	c.step(time.Minute)
	putKey(t, other, changed)
	mustClose(t, other)

	if _, err := s.Persist(copied); err != nil {
		t.Fatal(err)
	}
	wantUnchanged(t, s, first, second)
	ch, err := s.Keys().Changes(t.Context(), 0, 10)
	sum := store.AddRevision(store.AddRevision(0, 0, first.Revision), 0, second.Revision)
	if err != nil || len(ch.Keys) != 2 || ch.Sum != sum {
		t.Errorf("got %+v, %v", ch, err)
	}
}

// A key that stays as it is has its secrets still, though another had one of them meanwhile.
func TestAKeyThatStaysKeepsASecretThatWasPassedOn(t *testing.T) {
	for range 20 { // whichever is looked at first
		c, dir := newClock(), t.TempDir()
		s := unsynced(t, c, dir)
		x := putKey(t, s, keyOf("x"))
		copied := killed(t, dir)
		y := putKey(t, s, keyOf("y"))

		other := unsynced(t, c, copied)
		c.step(time.Minute)
		changed := x
		changed.Hash = keyOf("for now").Hash
		changed = putKey(t, other, changed)
		putKey(t, other, store.Key{ID: "z", Hash: x.Hash})
		changed.Hash = y.Hash
		putKey(t, other, changed)
		mustClose(t, other)

		if _, err := s.Persist(copied); err != nil {
			t.Fatal(err)
		}
		wantKeys(t, s, "x", "y")
		wantUnchanged(t, s, x, y)
		next := unsynced(t, c, killed(t, copied))
		wantKeys(t, next, "x", "y")
		mustClose(t, next)
		mustClose(t, s)
	}
}

// What is told to be forgotten is, also by the next process.
func TestKeysThatExpiredLongAgoAreForgottenForGood(t *testing.T) {
	c, dir := newClock(), t.TempDir()
	s := unsynced(t, c, dir)
	for _, id := range []string{"a", "b", "kept"} {
		k := keyOf(id)
		if id != "kept" {
			k.Expires = c.Now().UTC()
		}
		putKey(t, s, k)
	}
	c.step(store.KeepExpired)
	if ids, err := s.Keys().Expire(t.Context()); err != nil || !slices.Equal(ids, []string{"a", "b"}) {
		t.Errorf("got %q, %v", ids, err)
	}
	c.step(-store.KeepExpired) // the clock was wrong
	wantKeys(t, unsynced(t, c, killed(t, dir)), "kept")
}
